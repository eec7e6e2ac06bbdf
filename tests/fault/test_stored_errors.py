"""A provider that keeps its 5xx under the key and replays it: that is no outcome, however often it is heard (P5).

Some providers answer every request with a key as they answered the first one, an error of their own too. Asking again
tells nothing then; a lookup does.
"""

from datetime import timedelta

import pytest

from durableflows import EffectCall, Retry, UnknownOutcome
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider, pay_effect
from tests.support.payers import start_many, states

pytestmark = pytest.mark.django_db(transaction=True)

TRIES = Retry(attempts=4, base_seconds=60, cap_seconds=600)


def replay(provider: Provider, *, acts: bool) -> None:
    """Answer 500 to the first request with a key, and the same to each one after it."""

    def fault(books: Provider, call: EffectCall, amount: int) -> PayReceipt:
        if acts and call.key not in books.known:
            books.act(call.key, amount)
        raise UnknownOutcome("500, as it was kept under this key")

    provider.faults = [fault] * 50


def test_what_it_did_is_found_by_a_lookup_and_not_done_again(world: World):
    provider = Provider()
    replay(provider, acts=True)
    [run] = start_many(provider, 1, retry=TRIES)

    world.run_through()

    assert states([run]) == {RunState.SUCCEEDED}
    assert len(provider.acts) == 1
    assert len(set(provider.sends)) == 1, "never under another key"
    assert provider.lookups


def test_what_it_did_not_do_is_neither_failed_nor_done_before_it_was_looked_up(world: World):
    provider = Provider()
    replay(provider, acts=False)
    [run] = start_many(provider, 1, retry=TRIES)

    world.run_through()

    row = SideEffect.objects.get()
    assert row.state == EffectState.ABSENT
    assert "decides about a new try" in WorkflowRun.objects.get(pk=run).alert
    assert states([run]) == {RunState.NEEDS_RECONCILIATION}
    assert provider.acts == []


def test_without_a_lookup_a_person_is_asked_and_it_is_never_sent_past_the_window(world: World):
    provider = Provider()
    replay(provider, acts=True)
    window = timedelta(minutes=5)
    effect = pay_effect(provider, key_window=window, with_lookup=False)
    [run] = start_many(provider, 1, effect, retry=Retry(attempts=50, base_seconds=30, cap_seconds=60))

    world.run_through()

    row = SideEffect.objects.get()
    assert row.state == EffectState.UNKNOWN
    assert row.dispatched_at is not None
    assert row.first_dispatched_at is not None
    assert row.dispatched_at - row.first_dispatched_at < window - timedelta(seconds=30)
    assert WorkflowRun.objects.get(pk=run).alert
