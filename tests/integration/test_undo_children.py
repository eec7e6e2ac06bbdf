"""What a run has started is undone with it, before what it did itself."""

from datetime import timedelta
from typing import Any

import pytest

from durableflows import (
    Permanent,
    Retry,
    Run,
    StepReturn,
    TooLate,
    Transient,
    Workflow,
    api,
    child,
    compensate,
    fail,
    step,
    succeed,
    undo_children,
)
from durableflows.core.states import RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import raise_without_acting, read_event, told
from tests.support.look import fresh, state_of
from tests.support.many import copy_run
from tests.support.rooms import broken, cancel
from tests.support.trips import Agency, Trip, at, books, trip_workflow, undo_at

pytestmark = pytest.mark.django_db(transaction=True)


def start(office: Agency, agency: Agency, **options: Any) -> WorkflowRun:
    """deposit -> a trip as a child -> confirm."""
    trip = trip_workflow(agency, **options)
    take_back = undo_at(office, office.unhotels, "deposit.return")
    pay_in = at(office.hotels, "deposit.pay", take_back)

    class Tour(Workflow[Trip]):
        """Sell a tour."""

        name, deadline = "tour", timedelta(days=9)
        undo_on_failure = undo_on_cancel = True

        @step(start=True, to="confirm", effects=(pay_in,))
        def deposit(self, run: Run[Trip]) -> StepReturn:
            run.effect(pay_in, amount=7)
            return child(trip, {}, then=self.confirm)

        @step(end=True, retry=Retry(attempts=3, base_seconds=60))
        def confirm(self, run: Run[Trip]) -> StepReturn:
            office.run("confirm")
            return office.end

    return api.start(Tour, {})


def test_a_child_that_ended_well_is_undone_before_what_the_run_did_itself(world: World):
    office, agency = Agency(end=compensate("no guide")), Agency(end=succeed())
    run = start(office, agency)

    world.run_through()

    trip = WorkflowRun.objects.get(parent=run)
    assert (state_of(run), trip.state) == (RunState.COMPENSATED, RunState.COMPENSATED)
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert [name for name, *_ in office.undone] == ["deposit.return"]
    assert str(trip.ended_at) <= str(fresh(run).ended_at)
    assert books(run) == {"deposit.pay": "UNDONE", "deposit.return": "CONFIRMED"}
    assert broken() == []


def test_a_child_under_way_is_stopped_and_undone(world: World):
    office, agency = Agency(), Agency()
    run = start(office, agency)
    agency.during["write"] = [lambda: cancel(run)]

    world.run_through()

    trip = WorkflowRun.objects.get(parent=run)
    assert (state_of(run), trip.state) == (RunState.COMPENSATED, RunState.COMPENSATED)
    assert "confirm" not in agency.ran
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert broken() == []


def test_a_child_that_failed_and_undid_itself_is_not_undone_twice(world: World):
    office, agency = Agency(), Agency(end=fail("no seats left"))
    run = start(office, agency)

    world.run_through()

    trip = WorkflowRun.objects.get(parent=run)
    assert (state_of(run), trip.state) == (RunState.COMPENSATED, RunState.COMPENSATED)
    assert (len(agency.unhotels.acts), len(agency.unflights.acts), len(office.unhotels.acts)) == (1, 1, 1)
    assert broken() == []


def test_a_child_that_cannot_be_undone_is_named_at_the_end(world: World):
    office, agency = Agency(end=compensate("no guide")), Agency(end=succeed())
    agency.unflights.faults = [raise_without_acting(Permanent("past the date"))]
    run = start(office, agency)

    world.run_through()

    trip = WorkflowRun.objects.get(parent=run)
    ended = fresh(run)
    assert (ended.state, trip.state) == (RunState.COMPENSATION_FAILED, RunState.COMPENSATION_FAILED)
    assert f"not undone: the trip run {trip.pk}" in ended.alert
    assert len(office.unhotels.acts) == 1
    assert broken() == []
    api.compensate(trip.pk, reason="opened again")
    world.run_through()
    api.compensate(run.pk, reason="so this too")
    world.run_through()
    assert (state_of(run), state_of(trip)) == (RunState.COMPENSATED, RunState.COMPENSATED)
    assert len(office.unhotels.acts) == 1


def test_a_child_whose_parent_goes_on_is_not_undone_alone(world: World):
    office, agency = Agency(), Agency(end=succeed())
    office.fails("confirm", ZeroDivisionError("ours"))
    run = start(office, agency)
    world.run_through()
    assert state_of(run) is RunState.PARKED

    with pytest.raises(TooLate, match="compensate that one"):
        api.compensate(WorkflowRun.objects.get(parent=run).pk, reason="alone")


@pytest.mark.postgres
def test_a_sweep_looks_for_children_to_be_undone_among_runs_that_are_ending_alone(world: World):
    """It asks each second, however many runs go on."""
    office = Agency()
    office.fails("confirm", ZeroDivisionError("ours"))
    run = start(office, Agency(end=succeed()))
    world.run_through()
    copy_run(run.pk, 3000)

    assert "durableflows_run_ending" in undo_children.due().explain()


def test_a_child_whose_undo_did_not_last_is_named_at_the_end_of_the_run_that_started_it(world: World):
    office, agency = Agency(end=compensate("no guide")), Agency(end=succeed())
    office.unhotels.faults = [raise_without_acting(Transient("busy"))]
    run = start(office, agency, event=read_event)
    world.run_until_idle()
    trip = WorkflowRun.objects.get(parent=run)
    assert (state_of(run), state_of(trip)) == (RunState.COMPENSATING, RunState.COMPENSATED)

    key = SideEffect.objects.get(run=trip, effect="hotels.cancel").key
    api.provider_event("agency", "evt_1", told("failed", key=key, amount=2, ref="pay_1"))
    world.run_through()

    assert state_of(run) is RunState.COMPENSATION_FAILED
    assert f"not undone: the trip run {trip.pk}" in fresh(run).alert
    api.compensate(trip.pk, reason="they have opened it again")
    world.run_through()
    api.compensate(run.pk, reason="the trip is undone now")
    world.run_through()
    assert (state_of(run), state_of(trip)) == (RunState.COMPENSATED, RunState.COMPENSATED)
    assert broken() == []
