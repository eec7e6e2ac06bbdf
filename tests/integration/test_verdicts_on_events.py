"""What a person says about what is pending for too long, and about what contradicts the ledger (P5, R17)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durableflows import Permanent, TooLate, api
from durableflows.core.states import EffectState, RunState
from durableflows.doctor import examine
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import (
    PayReceipt,
    Provider,
    answer_pending,
    pay_effect,
    pay_workflow,
    read_event,
    told,
)
from tests.support.told import assert_whole, effect_of, now_of, pass_time, start, tell

pytestmark = pytest.mark.django_db(transaction=True)
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = AT + timedelta(seconds=5)


@pytest.fixture
def pending(world: World) -> WorkflowRun:
    """A run whose payment the provider has accepted."""
    run = start(Provider(faults=[answer_pending]))
    world.run_until_idle()
    assert effect_of(run).state == EffectState.ACCEPTED
    return run


def overdue(world: World, **options: Any) -> WorkflowRun:
    """A run whose payment was accepted, and which nobody has heard of since for longer than it may be pending."""
    run = start(Provider(faults=[answer_pending]), **options)
    world.run_until_idle()
    pass_time(world, timedelta(days=3))
    assert StepRun.objects.get(run=run, name="pay").needs_person
    return run


def resolve(run: WorkflowRun, verdict: str, **more: Any) -> SideEffect:
    row = effect_of(run)
    return api.resolve_effect(row.pk, verdict, reason="I called them", row_version=row.row_version, **more)


def test_what_is_pending_for_too_long_can_be_said_not_to_have_happened_and_is_tried_anew(world: World):
    """R17 (c): the person's word; before that time only the provider takes its word back."""
    run = start(Provider(faults=[answer_pending]))
    world.run_until_idle()
    with pytest.raises(TooLate, match="accepted by the provider"):
        resolve(run, "did_not_happen")
    pass_time(world, timedelta(days=3))

    resolve(run, "did_not_happen")
    world.run_until_idle()

    first, second = SideEffect.objects.filter(run=run).order_by("issue")
    assert (first.state, second.state, first.key != second.key) == ("REJECTED", "CONFIRMED", True)
    assert now_of(run).state == RunState.SUCCEEDED
    assert_whole(run.pk)


def test_a_person_who_was_wrong_about_what_was_pending_is_contradicted_loudly(world: World):
    """The event is older than the person's word, and true all the same."""
    run = overdue(world)
    first = resolve(run, "did_not_happen")
    world.run_until_idle()

    event = tell("evt_1", told("done", key=first.key, at=AT))

    first.refresh_from_db()
    assert (event.verdict, first.state) == ("settled", EffectState.CONFIRMED)
    assert "REJECTED: it did happen" in first.contradiction
    assert "REJECTED: it did happen" in now_of(run).alert


def test_what_is_pending_for_too_long_can_be_asked_about_once_more(world: World):
    """The lookup is made, and if it brings nothing new the person is asked again."""
    provider = Provider(faults=[answer_pending])
    run = api.start(pay_workflow(provider, pay_effect(provider, event=read_event)), {"amount": 5})
    world.run_until_idle()
    world.clock.advance(days=3)
    world.run_until_idle()
    asked = len(provider.lookups)
    assert StepRun.objects.get(run=run, name="pay").needs_person

    resolve(run, "ask_again")
    world.run_until_idle()
    assert len(provider.lookups) == asked + 1
    assert StepRun.objects.get(run=run, name="pay").needs_person
    provider.known[effect_of(run).key] = PayReceipt(id="pay_1")
    resolve(run, "ask_again")
    world.run_until_idle()

    assert now_of(run).state == RunState.SUCCEEDED
    assert_whole(run.pk)


def test_what_was_pending_and_a_lookup_finds_failed_is_told_to_a_person(world: World):
    """R17 (b), by a lookup."""
    provider = Provider(faults=[answer_pending])
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    provider.lookup_answers = [Permanent("the bank said no")]
    world.run_until_idle()

    assert (now_of(run).state, effect_of(run).state) == (RunState.FAILED, EffectState.REJECTED)
    assert "was accepted, and has failed: the bank said no" in now_of(run).alert


def test_a_contradiction_is_loud_until_a_person_says_that_it_was_seen(world: World, pending: WorkflowRun):
    """P5: with a reason, on record; the row stays what it is."""
    tell("evt_1", told("done", key=effect_of(pending).key, amount=6))
    tell("evt_2", told("done", key=effect_of(pending).key))
    world.run_until_idle()
    assert now_of(pending).alert

    resolve(pending, "seen")

    assert (effect_of(pending).contradiction, effect_of(pending).state) == ("", EffectState.CONFIRMED)
    assert now_of(pending).alert == ""
    assert examine(pending.pk) == ()
    resolved = RunEvent.objects.get(run=pending, kind="effect.resolved")
    assert "amount" in resolved.data["was"]
    said = [line.text for line in api.explain(pending.pk).lines]
    assert any("has looked at what contradicts test.pay: I called them" in text for text in said), said
    with pytest.raises(TooLate, match="contradicts nothing"):
        resolve(pending, "seen")


def test_seeing_one_contradiction_does_not_silence_whoever_waits_for_a_person(world: World):
    run = overdue(world)
    tell("evt_1", told("done", key=effect_of(run).key, amount=6))
    resolve(run, "seen")

    assert now_of(run).alert
    assert StepRun.objects.get(run=run, name="pay").needs_person
