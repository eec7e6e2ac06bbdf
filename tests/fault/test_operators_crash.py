"""An operator's page dies before or after the commit of each verb: it was done as a whole, or not at all."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import QuerySet

from durableflows import UnknownOutcome, api
from durableflows.core.states import RunState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.flows import act_then_raise
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.play import assert_chain

pytestmark = pytest.mark.django_db(transaction=True)

Verb = Callable[[WorkflowRun, Any], object]
Prepare = Callable[[World, Depot], WorkflowRun]


def asking(world: World, depot: Depot) -> WorkflowRun:
    run = api.start(parcel_workflow(depot), {"ask": True})
    world.run_until_idle()
    return run


def paused(world: World, depot: Depot) -> WorkflowRun:
    run = api.start(parcel_workflow(depot), {})
    api.pause(run.pk, reason="x")
    return run


def too_late(world: World, depot: Depot) -> WorkflowRun:
    run = asking(world, depot)
    world.clock.advance(days=11)
    world.run_until_idle()
    return run


def failed(world: World, depot: Depot) -> WorkflowRun:
    depot.handing.append(lost_address())
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    return run


def in_doubt(world: World, depot: Depot) -> WorkflowRun:
    depot.carrier.faults.append(act_then_raise(UnknownOutcome("cut")))
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    return run


VERBS: dict[str, tuple[Prepare, Verb, RunState]] = {
    "pause": (asking, lambda run, who: api.pause(run.pk, by=who, reason="x"), RunState.PARKED),
    "resume": (paused, lambda run, who: api.resume(run.pk, by=who, reason="x"), RunState.SUCCEEDED),
    "extend": (
        too_late,
        lambda run, who: api.extend(run.pk, by=who, reason="x", deadline=timedelta(days=5)),
        RunState.WAITING_HUMAN,
    ),
    "edit": (paused, lambda run, who: api.edit(run.pk, by=who, reason="x", changes={"rounds": 3}), RunState.PARKED),
    "redrive": (
        failed,
        lambda run, who: api.redrive(run.pk, by=who, reason="x", step="pay", repeat=("post.pay",)),
        RunState.SUCCEEDED,
    ),
    "abandon": (in_doubt, lambda run, who: api.abandon(run.pk, by=who, reason="x", heir=who), RunState.ABANDONED),
}


def rows_of(run: WorkflowRun) -> list[list[dict[str, Any]]]:
    """Everything that is stored of the run."""
    rows: list[QuerySet[Any]] = [
        WorkflowRun.objects.filter(pk=run.pk),
        StepRun.objects.filter(run=run),
        SideEffect.objects.filter(run=run),
        ApprovalRequest.objects.filter(run=run),
        RunEvent.objects.filter(run=run),
    ]
    # All columns: `values()` without names would ask for the generic relation's too.
    return [list(found.order_by("id").values(*[field.attname for field in found.model._meta.fields])) for found in rows]


def is_sound() -> bool:
    return [one.text for one in examine() if one.severity is not Severity.ATTENTION] == []


@pytest.mark.parametrize("name", sorted(VERBS))
def test_before_the_commit_nothing_of_it_was_done_and_it_may_be_done_again(world: World, admin_user, name: str):
    prepare, verb, end = VERBS[name]
    depot = Depot()
    run = prepare(world, depot)
    before = rows_of(run)

    with crash_at(Boundary.OPERATE_BEFORE_COMMIT), pytest.raises(Crash):
        verb(run, admin_user)

    assert rows_of(run) == before
    verb(run, admin_user)
    world.run_through()
    assert_well(run, depot, end, repeats=name == "redrive")


@pytest.mark.parametrize("name", sorted(VERBS))
def test_after_the_commit_all_of_it_was_done_and_the_sweeps_go_on(world: World, admin_user, name: str):
    prepare, verb, end = VERBS[name]
    depot = Depot()
    run = prepare(world, depot)

    with crash_at(Boundary.OPERATE_AFTER_COMMIT), pytest.raises(Crash):
        verb(run, admin_user)
    world.lose_messages()

    assert is_sound()
    world.clock.advance(minutes=1)
    world.run_through()
    assert_well(run, depot, end, repeats=name == "redrive")


def assert_well(run: WorkflowRun, depot: Depot, end: RunState, *, repeats: bool) -> None:
    stored = WorkflowRun.objects.get(pk=run.pk)
    assert stored.state == end
    assert len(depot.carrier.acts) <= (2 if repeats else 1)
    assert len(depot.mailer.acts) <= 1
    assert_chain(stored)
    assert is_sound()
