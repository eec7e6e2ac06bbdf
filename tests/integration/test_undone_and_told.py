"""What providers tell, and what comes late, of an undo: the rows never say that it is back when it is not."""

from datetime import timedelta
from typing import Any

import pytest

from durableflows import Permanent, Transient, api
from durableflows.core.states import RunState, StepState
from durableflows.doctor import examine
from durableflows.models import ProviderEvent, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support import trips
from tests.support.flows import raise_without_acting, read_event, told
from tests.support.look import fresh, state_of, steps_of
from tests.support.play import assert_chain
from tests.support.rooms import broken
from tests.support.trips import Agency, books, start

pytestmark = pytest.mark.django_db(transaction=True)

BUSY = raise_without_acting(Transient("busy"))
PAST = raise_without_acting(Permanent("past the date"))


def tell(name: str, run: WorkflowRun, effect: str, status: str, **more: Any) -> ProviderEvent:
    """The agency tells something about the last undo by an effect."""
    key = SideEffect.objects.filter(run=run, effect=effect).latest("issue").key
    return api.provider_event("agency", name, told(status, key=key, amount=2, ref="pay_1", **more))


def codes(run: WorkflowRun) -> set[str]:
    return {one.code for one in examine(run.pk)}


def test_an_undo_that_its_provider_takes_back_after_the_end_is_not_undone_and_can_be_done_again(world: World):
    agency = Agency()
    run = start(agency, event=read_event)
    world.run_until_idle()
    assert state_of(run) is RunState.COMPENSATED

    assert tell("evt_1", run, "hotels.cancel", "failed").verdict == "reversed"

    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "UNDO_FAILED")
    assert {"not-undone", "contradiction"} <= codes(run)
    assert broken() == []
    assert "compensate" in api.explain(run.pk).safe
    api.compensate(run.pk, reason="they have opened it again")
    world.run_through()

    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "UNDONE")
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel", "hotels.cancel"]
    assert len(set(agency.unhotels.sends)) == 2
    assert broken() == []
    assert_chain(fresh(run))


def test_an_undo_that_its_provider_takes_back_meanwhile_is_left_and_the_end_says_so(world: World):
    agency = Agency()
    agency.unflights.faults = [BUSY]
    run = start(agency, event=read_event)
    world.run_until_idle()
    assert books(run)["hotels.book"] == "UNDONE"

    tell("evt_1", run, "hotels.cancel", "failed")
    world.run_through()

    assert state_of(run) is RunState.COMPENSATION_FAILED
    assert "not undone: hotels.book of sleep_over" in fresh(run).alert
    assert broken() == []


def test_an_undo_that_had_happened_after_all_is_not_done_again_when_its_turn_comes(world: World):
    """It was refused; a person lets it be tried again; before its turn the provider tells that it has happened."""
    agency = Agency()
    agency.unhotels.faults, agency.unflights.faults = [PAST, BUSY], [PAST]
    run = start(agency, event=read_event)
    world.run_until_idle()
    api.compensate(run.pk, reason="they have opened it again")
    world.run_until_idle()
    assert [books(run)[name] for name in ("flights.book", "hotels.book")] == ["CONFIRMED", "UNDOING"]

    event = tell("evt_1", run, "flights.cancel", "done", at=world.clock.now() + timedelta(seconds=1))
    assert (event.verdict, books(run)["flights.book"]) == ("settled", "UNDONE")
    assert broken() == []
    world.run_through()

    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "UNDONE")
    assert [name for name, *_ in agency.undone].count("flights.cancel") == 1
    assert "it did happen" in fresh(run).alert
    assert {name: state for name, _, state in steps_of(run)}["sleep_over"] == StepState.COMPENSATED
    assert broken() == []


def test_what_is_told_by_name_finds_what_has_the_name_and_not_its_undo(world: World, monkeypatch: pytest.MonkeyPatch):
    """An undo may well give back the receipt of what it undid."""
    agency = Agency()
    plain = trips.at

    def told_of(*given: Any, **options: Any) -> Any:
        return plain(*given, event=read_event, **options)

    monkeypatch.setattr(trips, "at", told_of)
    run = start(agency)
    world.run_until_idle()
    booked = SideEffect.objects.get(run=run, effect="hotels.book")
    SideEffect.objects.filter(run=run).exclude(effect__startswith="hotels").update(receipt={"id": "pay_9"})

    event = api.provider_event("agency", "evt_1", told("done", key="", amount=2, ref="pay_1"))

    assert (event.verdict, event.effect_id) == ("older", booked.pk)
