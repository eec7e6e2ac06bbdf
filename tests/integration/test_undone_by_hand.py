"""A person undoes by hand what the engine could not, and says so: nothing is sent for it any more."""

import pytest

from durableflows import InvalidState, NotAllowed, Permanent, TooLate, UnknownOutcome, api, doctor
from durableflows.core.states import EffectState, RunState
from durableflows.models import RunEvent, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import act_then_raise, raise_without_acting
from tests.support.look import fresh
from tests.support.play import assert_chain
from tests.support.refunds import person
from tests.support.rooms import broken
from tests.support.trips import Agency, books, start

pytestmark = pytest.mark.django_db(transaction=True)

PAST = raise_without_acting(Permanent("past the date"))
WHY = "paid back at the desk, receipt 4711"


@pytest.fixture
def left(world: World) -> tuple[WorkflowRun, SideEffect, Agency]:
    """A run that could not give its hotel back."""
    agency = Agency()
    agency.unhotels.faults = [PAST]
    run = start(agency)
    world.run_until_idle()
    assert fresh(run).state == RunState.COMPENSATION_FAILED
    return run, SideEffect.objects.get(run=run, effect="hotels.book"), agency


def say(row: SideEffect, **more: object) -> SideEffect:
    return api.resolve_effect(row.pk, "undone", reason=WHY, row_version=row.row_version, **more)  # type: ignore[arg-type]


def test_it_is_undone_in_the_persons_name_and_nothing_is_left(world: World, left):
    run, row, _ = left
    anna = person("anna", "operate_run")

    say(row, by=anna)

    row.refresh_from_db()
    assert (row.state, row.verdict, row.verdict_by, row.verdict_reason) == ("UNDONE", "undone", "anna", WHY)
    ended = fresh(run)
    assert (ended.state, ended.alert) == (RunState.COMPENSATION_FAILED, "")
    assert {one.code for one in doctor.examine(run.pk)} == set()
    assert_chain(ended)
    last = RunEvent.objects.filter(run=run).latest("sequence")
    assert (last.kind, last.actor_name, last.data["reason"]) == ("effect.resolved", "anna", WHY)
    told = " ".join(line.text for line in api.explain(run.pk).lines)
    assert f"anna says that hotels.book was undone by hand: {WHY}" in told


def test_nothing_is_sent_for_it_when_the_rest_is_undone_anew(world: World):
    agency = Agency()
    agency.unhotels.faults, agency.unflights.faults = [PAST], [PAST]
    run = start(agency)
    world.run_until_idle()
    say(SideEffect.objects.get(run=run, effect="hotels.book"))
    assert "not undone: flights.book" in fresh(run).alert

    api.compensate(run.pk, reason="they take it now")
    world.run_until_idle()

    assert fresh(run).state == RunState.COMPENSATED
    assert (len(agency.unhotels.acts), len(agency.unflights.acts)) == (0, 1)
    assert broken() == []


def test_what_was_done_well_or_is_undone_is_refused(world: World, left):
    run, _, _ = left
    for effect in ("flights.book", "hotels.cancel"):
        row = SideEffect.objects.get(run=run, effect=effect)
        with pytest.raises(TooLate, match="only of what could not be undone"):
            say(row)
    assert books(run)["flights.book"] == "UNDONE"


def test_while_its_undo_may_still_happen_it_is_refused(world: World, left):
    _, row, _ = left
    SideEffect.objects.filter(undoes=row).update(state=EffectState.UNKNOWN, in_doubt_since=world.clock.now())

    with pytest.raises(TooLate, match="given back twice"):
        say(row)

    row.refresh_from_db()
    assert row.state == EffectState.UNDO_FAILED


def test_before_the_run_has_ended_it_is_refused(world: World):
    agency = Agency()
    agency.unhotels.faults = [PAST]
    agency.unflights.faults = [act_then_raise(UnknownOutcome("cut"))]
    run = start(agency)
    world.run_until_idle()
    assert fresh(run).ended_at is None

    with pytest.raises(TooLate, match="known when it has ended"):
        say(SideEffect.objects.get(run=run, effect="hotels.book"))


def test_an_undo_that_has_happened_after_all_is_loud(world: World, left):
    run, row, _ = left
    say(row, by=person("anna", "operate_run"))
    undo = SideEffect.objects.get(undoes=row)

    api.resolve_effect(undo.pk, "did_not_happen", reason="x", row_version=undo.row_version)
    undo.refresh_from_db()
    SideEffect.objects.filter(pk=undo.pk).update(state=EffectState.UNKNOWN, in_doubt_since=world.clock.now())
    api.resolve_effect(undo.pk, "happened", reason="x", row_version=undo.row_version, receipt={"id": "un_1"})

    row.refresh_from_db()
    assert row.contradiction == "anna undid it by hand, and its undo has happened too"
    assert row.contradiction in fresh(run).alert


def test_a_second_time_a_stale_page_no_reason_and_no_right_are_refused(world: World, left):
    _, row, _ = left
    with pytest.raises(NotAllowed):
        say(row, by=person("bob"))
    with pytest.raises(InvalidState, match="reason"):
        api.resolve_effect(row.pk, "undone", reason=" ", row_version=row.row_version)
    say(row)

    with pytest.raises(TooLate, match="has changed since"):
        say(row)
    row.refresh_from_db()
    with pytest.raises(TooLate, match="only of what could not be undone"):
        say(row)
