"""Starts that meet under one business key: one run, the same one for everybody, and loud conflicts (R37)."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction

from durableflows import KeyConflict, Run, Workflow, api, step
from durableflows.core.states import RunState
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import PayState, Provider, pay_workflow
from tests.support.rivals import Rival, at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

CALLERS = 20


def other_workflow() -> type[Workflow[PayState]]:
    class Other(Workflow[PayState]):
        """Takes the same state and does nothing."""

        name, version = "other", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def only(self, run: Run[PayState]) -> None:
            run.note("other")

    return Other


def facts_of(run_id: UUID) -> tuple[object, ...]:
    """All that a conflict must leave as it was."""
    run = WorkflowRun.objects.get(pk=run_id)
    return (
        run.row_version,
        run.data,
        run.state,
        run.event_sequence,
        run.changed_at,
        StepRun.objects.filter(run=run).count(),
    )


def test_twenty_starts_at_once_are_one_run(world: World):
    """S3.28, R37: one run, and all twenty get its id."""
    flow = pay_workflow(Provider())

    runs = at_once(*[lambda: api.start(flow, {"amount": 5}, key="refund:17")] * CALLERS)

    assert {getattr(run, "pk", run) for run in runs} == {WorkflowRun.objects.get().pk}
    assert StepRun.objects.count() == 1
    assert RunEvent.objects.filter(kind="run.started").count() == 1
    assert len(world.sent) == 1


def test_twenty_starts_with_other_inputs_at_once_are_one_run_and_nineteen_conflicts(world: World):
    """R37: whichever comes first, nobody is given a run that has another input."""
    flow = pay_workflow(Provider())

    results = at_once(*[lambda n=n: api.start(flow, {"amount": n}, key="k") for n in range(CALLERS)])

    run = WorkflowRun.objects.get()
    assert sum(isinstance(result, KeyConflict) for result in results) == CALLERS - 1
    winner = next(place for place, result in enumerate(results) if isinstance(result, WorkflowRun))
    assert run.data["amount"] == winner


def test_a_start_waits_for_another_of_the_same_key_and_sees_what_it_committed(world: World):
    """R37, R32: the first has not committed yet."""
    flow = pay_workflow(Provider())
    second = Rival(lambda: api.start(flow, {"amount": 5}, key="k").pk)

    with transaction.atomic():
        first = api.start(flow, {"amount": 5}, key="k")
        second.begin().wait_until_blocked()

    assert second.outcome() == first.pk


def test_a_start_whose_rival_rolls_back_starts_itself(world: World):
    """R37, R32: the first is given up at the last moment; the second must not come back without a run."""
    flow = pay_workflow(Provider())
    second = Rival(lambda: api.start(flow, {"amount": 7}, key="k").pk)

    with transaction.atomic():
        api.start(flow, {"amount": 5}, key="k")
        second.begin().wait_until_blocked()
        transaction.set_rollback(True)

    assert second.outcome() == WorkflowRun.objects.get().pk
    assert WorkflowRun.objects.get().data["amount"] == 7


@pytest.mark.parametrize("other", ["input", "workflow"])
def test_the_same_key_with_another_request_is_a_loud_conflict(world: World, other: str):
    """R37: a clear conflict, and the first run is untouched."""
    flow, second = pay_workflow(Provider()), other_workflow()
    run = api.start(flow, {"amount": 5}, key="k")
    before = facts_of(run.pk)

    with pytest.raises(KeyConflict, match=str(run.pk)):
        api.start(*((flow, {"amount": 6}) if other == "input" else (second, {"amount": 5})), key="k")

    assert facts_of(run.pk) == before
    assert WorkflowRun.objects.count() == 1


def test_a_conflict_does_not_break_the_caller_s_transaction(world: World):
    """R37, R32: whoever catches it can go on and commit."""
    flow = pay_workflow(Provider())
    api.start(flow, {"amount": 5}, key="k")

    with transaction.atomic():
        with pytest.raises(KeyConflict):
            api.start(flow, {"amount": 6}, key="k")
        other = api.start(flow, {"amount": 6}, key="l")

    assert WorkflowRun.objects.filter(pk=other.pk).exists()


def test_another_tenant_s_key_is_another_key(world: World):
    """R37: independent, and at the same instant too."""
    flow = pay_workflow(Provider())

    runs = at_once(
        *[lambda t=t: api.start(flow, {"amount": 5}, key="k", tenant=t).pk for t in ("", "a", "b")],
        lambda: api.start(flow, {"amount": 6}, key="k", tenant="c").pk,
    )

    assert len(set(runs)) == 4
    assert WorkflowRun.objects.count() == 4


@pytest.mark.parametrize("how", ["succeeded", "cancelled"])
def test_after_the_end_the_old_run_is_given_back(world: World, how: str):
    """R37: never a silent second refund; another input is still a conflict."""
    provider = Provider()
    flow = pay_workflow(provider)
    run = api.start(flow, {"amount": 5}, key="k")
    if how == "cancelled":
        api.cancel(run.pk, reason="no")
    world.run_until_idle()
    acts = list(provider.acts)

    again = at_once(*[lambda: api.start(flow, {"amount": 5}, key="k").pk] * 5)
    world.run_until_idle()

    assert set(again) == {run.pk}
    assert WorkflowRun.objects.get().state == (RunState.SUCCEEDED if how == "succeeded" else RunState.CANCELLED)
    assert provider.acts == acts
    with pytest.raises(KeyConflict):
        api.start(flow, {"amount": 6}, key="k")


def test_without_a_key_each_start_is_a_run(world: World):
    """R37: the empty key is no key."""
    flow = pay_workflow(Provider())

    runs = at_once(*[lambda: api.start(flow, {"amount": 5}).pk] * 5)

    assert len(set(runs)) == WorkflowRun.objects.count() == 5


def test_the_same_request_after_a_deploy_is_the_same_request(world: World):
    """R37, R36: the old run is given back though a new one would be of version 2; another input is still a conflict."""
    old = api.start(pay_workflow(Provider()), {"amount": 5}, key="k")

    class Pay2(Workflow[PayState]):
        """The next release."""

        name, version = "pay", 2
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def only(self, run: Run[PayState]) -> None:
            run.note("two")

    assert api.start(Pay2, {"amount": 5}, key="k").pk == api.start("pay", {"amount": 5}, key="k").pk == old.pk
    with pytest.raises(KeyConflict):
        api.start(Pay2, {"amount": 6}, key="k")
    assert api.start(Pay2, {"amount": 5}, key="l").version == 2
