"""Effects that a new version has renamed, or does in another step: none is done twice, and all are undone (P3, P15)."""

from datetime import timedelta
from typing import Any

import pytest

from durableflows import InvalidState, Retry, Run, Transient, UnknownOutcome, Workflow, api, migration, step
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.testing import World
from tests.support.flows import Fault, Provider, act_then_raise
from tests.support.look import fresh, state_of
from tests.support.rooms import at, broken
from tests.support.trips import Agency, Trip, undo_at
from tests.support.trips import at as booked_at

pytestmark = pytest.mark.django_db(transaction=True)
LATER = Retry(attempts=4, base_seconds=600, cap_seconds=600)


def deploy(number: int, provider: Provider, effect_name: str, errors: list[Exception], **options: Any) -> type[Any]:
    """A version that pays under this name, and may fail after that; the second one takes over runs of the first."""
    pay_it = at(provider, effect_name, **options)

    class Pay(Workflow[Trip]):
        name, version, deadline = "pays", number, timedelta(days=9)

        @step(start=True, end=True, effects=(pay_it,), retry=LATER)
        def pay(self, run: Run[Trip]) -> None:
            run.effect(pay_it, amount=run.state.nights)
            if errors:
                raise errors.pop()

        if number > 1:

            @migration(from_version=1)
            def from_version_1(self, data: dict[str, Any]) -> dict[str, Any]:
                return data

    return Pay


CONFIRMED: list[Fault] = []
LOST: list[Fault] = [act_then_raise(UnknownOutcome("read timed out"))]


@pytest.mark.parametrize(("faults", "state"), [(CONFIRMED, "CONFIRMED"), (LOST, "UNKNOWN")])
def test_what_is_called_otherwise_now_is_not_done_twice(world: World, faults: list[Fault], state: str):
    provider = Provider(keyed=False, faults=list(faults))
    options: dict[str, Any] = {"key_window": None, "lookup": None, "left_to_person": True}
    run = api.start(deploy(1, provider, "bank.take", [Transient("busy")], **options), {})
    world.run_until_idle()
    deploy(2, provider, "bank.debit", [], **options)

    with pytest.raises(InvalidState, match=rf"bank.take of pay is {state}, and pay of version 2 does not declare"):
        api.migrate(run.pk, reason="new release")
    world.run_through()

    assert fresh(run).version == 1
    assert len(provider.acts) == 1
    assert broken() == []


def test_what_did_nothing_may_be_called_otherwise(world: World):
    provider = Provider()
    run = api.start(deploy(1, provider, "bank.take", []), {})
    deploy(2, provider, "bank.debit", [])

    api.migrate(run.pk, reason="new release")
    world.run_through()

    assert (state_of(run), fresh(run).version, len(provider.acts)) == (RunState.SUCCEEDED, 2, 1)


def booked_in_two_steps(world: World, agency: Agency, flight: Any, hotel: Any) -> WorkflowRun:
    class Apart(Workflow[Trip]):
        name, version, deadline = "booking", 1, timedelta(days=9)

        @step(start=True, to="sleep_over", effects=(flight,))
        def fly(self, run: Run[Trip]) -> None:
            run.effect(flight, amount=1)

        @step(to="confirm", effects=(hotel,))
        def sleep_over(self, run: Run[Trip]) -> None:
            run.effect(hotel, amount=1)

        @step(end=True)
        def confirm(self, run: Run[Trip]) -> None:
            agency.run("confirm")

    agency.fails("confirm", Transient("busy"))
    run = api.start(Apart, {})
    world.run_until_idle()
    return run


def test_what_another_step_does_now_is_undone_there(world: World):
    agency = Agency()
    flight: Any = booked_at(agency.flights, "flights.book", undo_at(agency, agency.unflights, "flights.cancel"))
    hotel: Any = booked_at(agency.hotels, "hotels.book", undo_at(agency, agency.unhotels, "hotels.cancel"))
    run = booked_in_two_steps(world, agency, flight, hotel)

    class Together(Workflow[Trip]):
        name, version, deadline = "booking", 2, timedelta(days=9)

        @step(start=True, to="confirm", effects=(flight, hotel))
        def book(self, run: Run[Trip]) -> None: ...

        @step(end=True)
        def confirm(self, run: Run[Trip]) -> None: ...

        @migration(from_version=1)
        def from_version_1(self, data: dict[str, Any]) -> dict[str, Any]:
            return data

    api.migrate(run.pk, reason="new release")
    api.compensate(run.pk, reason="the customer is ill")
    world.run_through()

    assert state_of(run) is RunState.COMPENSATED, fresh(run).alert
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert broken() == []
