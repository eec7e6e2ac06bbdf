"""Cancelled is final, and says what could not be stopped any more (P6, R34)."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from durableflows import EffectCall, TooLate, Transient, api
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of, steps_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("boss")


def page(boss: User, run: WorkflowRun) -> str:
    """What the run's page in the admin says."""
    client = Client()
    client.force_login(boss)
    return client.get(reverse("admin:durableflows_workflowrun_change", args=[run.pk])).content.decode()


def everything(run: WorkflowRun) -> tuple[object, ...]:
    """All that a second cancel must leave as it was."""
    return fresh(run).row_version, steps_of(run), RunEvent.objects.filter(run=run).count()


def test_a_cancel_while_a_payment_is_under_way_ends_cancelled_with_its_receipt(world: World, boss: User):
    """R34: the page says meanwhile what cannot be stopped, and afterwards that it happened; no step follows."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})
    seen: list[Any] = []

    def cancel(call: EffectCall) -> None:
        asked = api.cancel(run.pk, by=boss, reason="the customer called")
        seen.extend([asked.state, api.explain(run.pk).sentence, page(boss, run)])
        before = everything(run)
        api.cancel(run.pk, by=boss, reason="and again")
        seen.append(everything(run) == before)

    provider.before_call = cancel
    world.run_until_idle()
    world.run_through()

    state, sentence, meanwhile, is_unchanged = seen
    assert (state, is_unchanged) == (RunState.ENDING, True)
    assert "Ending (cancel by boss): the customer called; first test.pay must be settled" in sentence
    assert "first test.pay must be settled" in meanwhile
    assert state_of(run) is RunState.CANCELLED
    assert not StepRun.objects.filter(run=run, name="done", attempts__gt=0).exists()
    row = SideEffect.objects.get(run=run)
    assert (row.state, row.receipt) == (EffectState.CONFIRMED, {"id": "pay_1", "status": "done"})
    assert len(provider.sends) == len(provider.acts) == 1
    ends = RunEvent.objects.filter(run=run, kind="run.ended")
    assert [event.data["state"] for event in ends] == [RunState.CANCELLED]
    after = page(boss, run)
    assert "Cancelled by boss" in after
    certain = "test.pay: happened; test calls it pay_1"
    assert api.explain(run.pk).certain == (certain,)
    assert certain in after
    assert not [found for found in examine(run.pk) if found.severity is Severity.BROKEN]


def test_a_cancelled_run_stays_so_whatever_comes_late(world: World, boss: User):
    """R34: every message of it once more, every sweep, and time."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})

    def cancel(call: EffectCall) -> None:
        api.cancel(run.pk, by=boss, reason="no")

    provider.before_call = cancel
    world.run_until_idle()
    world.run_through()
    before = everything(run)

    for message in list(world.sent):
        world.deliver(*message)
    world.clock.advance(days=20)
    world.run_until_idle()

    assert everything(run) == before
    assert state_of(run) is RunState.CANCELLED
    assert len(provider.sends) == 1


def test_a_cancel_while_a_retry_is_scheduled_leaves_no_retry(world: World, boss: User):
    """R34."""
    provider = Provider(faults=[raise_without_acting(Transient("503"))])
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    assert StepRun.objects.get(run=run, name="pay").state == StepState.RETRY_SCHEDULED

    cancelled = api.cancel(run.pk, by=boss, reason="no")
    world.clock.advance(days=1)
    world.run_until_idle()

    assert cancelled.state == state_of(run) == RunState.CANCELLED
    pay = StepRun.objects.get(run=run, name="pay")
    assert (pay.state, pay.attempts, pay.wake_at) == (StepState.CANCELLED, 1, None)
    assert provider.acts == []
    assert len(provider.sends) == 1


@pytest.mark.parametrize("end", [RunState.SUCCEEDED, RunState.CANCELLED])
def test_a_cancel_after_the_end_is_refused_and_leaves_no_trace(world: World, boss: User, end: RunState):
    """R34: "already finished"; the page offers no cancel either."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    if end is RunState.CANCELLED:
        api.cancel(run.pk, by=boss, reason="no")
    world.run_until_idle()
    before = everything(run)

    with pytest.raises(TooLate, match=r"finished|cancelled"):
        api.cancel(run.pk, by=boss, reason="late")

    assert everything(run) == before
    assert state_of(run) is end
    assert "cancel" not in api.explain(run.pk).safe
