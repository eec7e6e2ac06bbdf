"""Who wants a run undone, who cancels it, who works at it and who sweeps, at the same instant: one undo of each act."""

from functools import partial

import pytest

from durableflows import api
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.errors import LeaseLost, RunHalted
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.runner import run_step
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.look import fresh, state_of
from tests.support.play import assert_chain
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.rooms import broken, cancel
from tests.support.trips import Agency, start

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def booked(world: World, agency: Agency) -> WorkflowRun:
    """A run that has booked both, and whose `write` nobody has claimed."""
    run = start(agency)
    world.deliver(*world.messages.popleft())
    world.deliver(*world.messages.popleft())
    world.lose_messages()
    world.clock.advance(seconds=31)
    return fresh(run)


def assert_undone_once(run: WorkflowRun, agency: Agency) -> None:
    assert state_of(run) is RunState.COMPENSATED
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert (len(agency.unhotels.acts), len(agency.unflights.acts)) == (1, 1)
    assert RunEvent.objects.filter(run=run, kind="run.undo_began").count() == 1
    assert StepRun.objects.filter(run=run, name__endswith=".undo").count() == 2
    assert broken() == []
    assert_chain(fresh(run))


def test_two_persons_a_cancel_and_a_sweep_at_once_undo_it_once(world: World):
    agency = Agency()
    run = booked(world, agency)
    ask = partial(api.compensate, run.pk, reason="wanted back")

    at_once(ask, ask, partial(cancel, run), partial(sweeps.confirm_ends, world.clock.now()))
    world.run_through()

    assert_undone_once(run, agency)


def test_a_step_that_fails_while_a_person_compensates_finds_its_lease_gone(world: World):
    """The commit that begins the undo has closed every step of the main path."""
    agency = Agency()
    run = booked(world, agency)
    write = StepRun.objects.get(run=run, name="write")

    with gate_at(Boundary.UNDO_BEFORE_COMMIT) as gate:
        person = Rival(partial(api.compensate, run.pk, reason="wanted back")).begin()
        gate.wait()
        worker = Rival(partial(run_step, run.pk, write.pk, task_id="late")).begin()
        worker.wait_until_blocked()

    assert isinstance(person.outcome(), WorkflowRun)
    assert not isinstance(worker.outcome(), LeaseLost | RunHalted)
    assert agency.post.sends == []
    world.run_through()
    assert_undone_once(run, agency)


def test_two_workers_at_one_undo_are_one(world: World):
    agency = Agency()
    run = booked(world, agency)
    api.compensate(run.pk, reason="wanted back")
    world.lose_messages()
    undo = StepRun.objects.get(run=run, name="sleep_over.undo")

    at_once(*[partial(run_step, run.pk, undo.pk, task_id=f"task {n}") for n in (1, 2)])
    world.run_through()

    assert_undone_once(run, agency)
