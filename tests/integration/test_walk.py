"""A run from its start to its end, in one process: rows, ledger, retries, doubt, lookups, approvals."""

import pytest

from durableflows import TooLate, Transient, UnknownOutcome, api
from durableflows.core import registry
from durableflows.core.keys import new_id
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World, effect_states, open_request, virtual
from tests.support.flows import (
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
    pay_workflow,
    raise_without_acting,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


@pytest.fixture
def manager(django_user_model):
    return django_user_model.objects.create_superuser("manager", password="x")


def state_of(run: WorkflowRun) -> RunState:
    return RunState(WorkflowRun.objects.get(pk=run.pk).state)


def test_a_run_without_trouble_pays_once(world: World):
    provider = Provider()

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert effect_states(run.pk) == [("test.pay", EffectState.CONFIRMED)]
    assert WorkflowRun.objects.get(pk=run.pk).data["receipt_id"] == "pay_1"


def test_a_lost_answer_is_asked_again_under_the_same_key(world: World):
    """S1.1, S1.3, S1.4, S1.24, P5."""
    provider = Provider(faults=[act_then_raise(UnknownOutcome("read timed out"))])

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    assert state_of(run) is RunState.NEEDS_RECONCILIATION
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert len(set(provider.sends)) == 1
    assert len(provider.sends) == 2


def test_a_transient_failure_is_tried_again_later(world: World):
    """S3.32."""
    provider = Provider(faults=[raise_without_acting(Transient("429", retry_after_seconds=120))])

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    before = world.clock.now()
    assert effect_states(run.pk) == [("test.pay", EffectState.PLANNED)]
    world.run_through()

    assert (world.clock.now() - before).total_seconds() >= 120
    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_a_pending_answer_is_not_done(world: World):
    """R17 (a)."""
    provider = Provider(faults=[answer_pending])

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING
    key = provider.acts[0]
    provider.known[key] = provider.known[key].model_copy(update={"status": "done"})
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_an_approval_waits_and_then_goes_on(world: World, manager):
    """S1.11 to S1.16."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 900, "ask": True})
    world.run_until_idle()
    request = open_request(run.pk)
    assert state_of(run) is RunState.WAITING_HUMAN
    assert request.title == "Pay 900 to Ada"
    assert provider.sends == []

    api.answer(request.pk, "approve", by=manager, facts_digest=request.facts_digest)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_nobody_answers(world: World, manager):
    """S1.20, S3.39: escalated once, then denied."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 900, "ask": True})
    world.run_until_idle()

    world.clock.advance(days=3, seconds=1)
    world.run_until_idle()
    assert open_request(run.pk).permission == "durableflows.operate_run"
    world.clock.advance(days=3, seconds=1)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert provider.sends == []


def test_cancel_before_anything_was_sent(world: World):
    """S2.10."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})

    api.cancel(run.pk, reason="changed my mind")
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert provider.sends == []


def test_a_row_can_be_read_again(world: World):
    """A protected state must not keep a user from `refresh_from_db`."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    world.run_until_idle()

    run.refresh_from_db()

    assert run.state == RunState.SUCCEEDED


def test_a_run_that_waits_to_end_is_left_alone_by_the_sweep(world: World):
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    without = pay_effect(provider, key_window=None, with_lookup=False)
    run = api.start(pay_workflow(provider, without), {"amount": 5})
    world.run_until_idle()
    api.cancel(run.pk, reason="too late")
    world.run_through()
    before = WorkflowRun.objects.get(pk=run.pk)

    world.clock.advance(hours=1)
    world.run_until_idle()

    after = WorkflowRun.objects.get(pk=run.pk)
    assert after.state == RunState.ENDING
    assert (after.row_version, after.changed_at) == (before.row_version, before.changed_at)


def test_what_a_lookup_said_counts_at_once(world: World):
    """The pause after which a lost question is asked again is no pause before an allowed re-send."""
    provider = Provider(keyed=False, faults=[raise_without_acting(UnknownOutcome("cut"))])
    looked_up = pay_effect(provider, key_window=None, resend_when_absent=True)
    run = api.start(pay_workflow(provider, looked_up), {"amount": 5})
    world.run_until_idle()

    world.clock.advance(seconds=31)  # the send has landed or is lost
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert effect_states(run.pk) == [("test.pay", EffectState.ABSENT), ("test.pay", EffectState.CONFIRMED)]


def test_a_verdict_on_a_row_that_was_tried_anew_is_refused(world: World, manager):
    """Two confirmed rows of one operation would say that money moved twice."""
    provider = Provider(keyed=False, faults=[raise_without_acting(UnknownOutcome("cut"))] * 2)
    looked_up = pay_effect(provider, key_window=None, resend_when_absent=True)
    run = api.start(pay_workflow(provider, looked_up), {"amount": 5})
    world.run_until_idle()
    world.clock.advance(seconds=31)
    world.run_until_idle()
    old = SideEffect.objects.get(run=run, issue=1)
    assert [state for _, state in effect_states(run.pk)] == [EffectState.ABSENT, EffectState.UNKNOWN]

    with pytest.raises(TooLate, match="newest row"):
        api.resolve_effect(
            old.pk, "happened", by=manager, reason="?", row_version=old.row_version, receipt={"id": "pay_1"}
        )


def test_a_verdict_on_one_effect_keeps_the_alert_about_another(world: World, manager):
    """A contradiction is loud until somebody looked at it, whatever else is decided meanwhile."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    without = pay_effect(provider, key_window=None, with_lookup=False)
    run = api.start(pay_workflow(provider, without), {"amount": 5})
    world.run_through()
    asked = SideEffect.objects.get(run=run)
    other = SideEffect.objects.get(pk=asked.pk)
    other.pk, other.key, other.operation, other.contradiction = new_id(), "another", "another", "it acted twice"
    other.receipt, other.settles_at = {"id": "pay_9"}, None
    other.confirm()
    other.save(force_insert=True)
    WorkflowRun.objects.filter(pk=run.pk).update(alert="test.pay: it acted twice", alert_at=world.clock.now())
    world.clock.advance(seconds=31)

    api.resolve_effect(
        asked.pk, "happened", by=manager, reason="seen", row_version=asked.row_version, receipt={"id": "pay_1"}
    )

    assert WorkflowRun.objects.get(pk=run.pk).alert == "test.pay: it acted twice"
