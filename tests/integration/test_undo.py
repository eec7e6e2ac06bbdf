"""What a run did is undone: newest first, one after another, in rows of their own, and the end says what is left."""

from datetime import timedelta

import pytest

from durableflows import Budget, Permanent, TooLate, Transient, UnknownOutcome, api, compensate, fail, succeed
from durableflows.core.states import RunState, StepState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import act_then_raise, raise_without_acting
from tests.support.look import fresh, state_of, steps_of
from tests.support.play import assert_chain
from tests.support.rooms import broken, cancel, kinds
from tests.support.trips import Agency, books, start

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = [("hotels.cancel", "pay_1", 2), ("flights.cancel", "pay_1", 2)]
LOST = UnknownOutcome("read timed out")


def assert_undone(run: WorkflowRun, agency: Agency) -> WorkflowRun:
    """Both bookings were taken back, once each, newest first."""
    ended = fresh(run)
    assert (ended.state, ended.alert) == (RunState.COMPENSATED, "")
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert (len(agency.unhotels.acts), len(agency.unflights.acts)) == (1, 1)
    assert [books(run)[name] for name in ("flights.book", "hotels.book")] == ["UNDONE", "UNDONE"]
    assert broken() == []
    assert_chain(ended)
    return ended


def test_a_step_that_returns_compensate_has_all_undone_newest_first(world: World):
    agency = Agency()
    run = start(agency)

    world.run_until_idle()

    ended = assert_undone(run, agency)
    assert agency.undone == BOTH
    assert ended.error_text == "no seats left"
    assert books(run)["post.send"] == "CONFIRMED"
    assert [(name, state) for name, _, state in steps_of(run)] == [
        ("fly", StepState.COMPENSATED),
        ("sleep_over", StepState.COMPENSATED),
        ("write", StepState.SUCCEEDED),
        ("confirm", StepState.SUCCEEDED),
        ("sleep_over.undo", StepState.SUCCEEDED),
        ("fly.undo", StepState.SUCCEEDED),
    ]
    order = [kind for kind in kinds(run) if kind.startswith(("run.", "effect.und"))]
    assert order == [
        "run.started",
        "run.ending",
        "run.undo_began",
        *["effect.undo_began", "effect.undone"] * 2,
        "run.ended",
    ]


def test_each_undo_is_a_row_of_its_own_that_names_what_it_undoes(world: World):
    run = start(Agency())
    world.run_until_idle()

    undos = SideEffect.objects.filter(run=run, undoes__isnull=False).order_by("id")

    assert [(row.effect, row.undoes and row.undoes.effect, row.state) for row in undos] == [
        ("hotels.cancel", "hotels.book", "CONFIRMED"),
        ("flights.cancel", "flights.book", "CONFIRMED"),
    ]
    assert len({row.key for row in SideEffect.objects.filter(run=run)}) == 5


def test_a_declared_failure_undoes_where_the_workflow_says_so(world: World):
    agency = Agency()
    agency.fails("confirm", Permanent("no seats left"))
    run = start(agency)

    world.run_until_idle()

    assert assert_undone(run, agency).error_text == "no seats left"


def test_fail_undoes_where_the_workflow_says_so(world: World):
    agency = Agency(end=fail("no seats left"))
    run = start(agency)

    world.run_until_idle()

    assert_undone(run, agency)


def test_a_cancel_undoes_where_the_workflow_says_so(world: World):
    agency = Agency()
    agency.fails("confirm", Transient("busy"))
    run = start(agency)
    world.run_until_idle()

    cancel(run)

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.COMPENSATING, "undo")
    assert [name for name, *_ in agency.undone] == []
    assert broken() == []
    world.run_until_idle()
    assert_undone(run, agency)


def test_a_failure_with_nothing_to_undo_ends_as_failed(world: World):
    agency = Agency()
    agency.flights.faults = [raise_without_acting(Permanent("sold out"))]
    run = start(agency)

    world.run_until_idle()

    assert state_of(run) is RunState.FAILED
    assert agency.undone == []


def test_an_error_in_our_code_undoes_nothing_until_a_person_wants_it(world: World):
    agency = Agency()
    agency.fails("confirm", ZeroDivisionError("ours"))
    run = start(agency)
    world.run_until_idle()
    assert state_of(run) is RunState.PARKED
    assert agency.undone == []
    assert api.preview("compensate", run.pk).closes == ("confirm, which would come next",)

    api.compensate(run.pk, reason="the customer wants it back")
    world.run_until_idle()

    assert_undone(run, agency)


def test_a_run_that_has_succeeded_is_undone_by_a_person(world: World):
    agency = Agency(end=succeed())
    run = start(agency)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED

    api.compensate(run.pk, reason="the customer is ill")
    world.run_until_idle()

    assert_undone(run, agency)
    assert agency.ran == ["fly", "sleep_over", "write", "confirm"]


def test_what_is_in_doubt_is_settled_before_the_first_undo(world: World):
    """P6, P15: nobody takes back a booking of which it is not known whether it was made."""
    agency = Agency()
    agency.hotels.faults = [act_then_raise(LOST)]
    run = start(agency)
    world.deliver(*world.messages.popleft())
    world.deliver(*world.messages.popleft())
    assert books(run)["hotels.book"] == "UNKNOWN"

    cancel(run)
    assert agency.undone == []
    assert fresh(run).state == RunState.ENDING
    world.run_through()

    assert_undone(run, agency)
    assert len(agency.hotels.lookups) == 1
    assert agency.hotels.sends == [agency.hotels.acts[0]]


def test_an_undo_whose_answer_is_lost_is_sent_again_under_its_key(world: World):
    agency = Agency()
    agency.unhotels.faults = [act_then_raise(LOST)]
    run = start(agency)

    world.run_through()

    ended = fresh(run)
    assert ended.state == RunState.COMPENSATED
    assert len(agency.unhotels.acts) == 1
    assert len(set(agency.unhotels.sends)) == 1
    assert len(agency.unhotels.sends) == 2
    assert broken() == []


def test_an_undo_at_a_provider_without_keys_is_looked_up(world: World):
    agency = Agency()
    agency.unhotels.keyed = False
    agency.unhotels.faults = [act_then_raise(LOST)]
    run = start(agency, key_window=None)

    world.run_through()

    assert_undone(run, agency)
    assert len(agency.unhotels.lookups) == 1


def test_an_undo_that_fails_leaves_the_others_and_the_end_says_what_is_left(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    run = start(agency)

    world.run_until_idle()

    ended = fresh(run)
    assert ended.state == RunState.COMPENSATION_FAILED
    assert books(run)["hotels.book"] == "UNDO_FAILED"
    assert books(run)["flights.book"] == "UNDONE"
    assert "hotels.book of sleep_over could not be undone: past the date" in ended.alert
    assert {name: state for name, _, state in steps_of(run)}["sleep_over"] == StepState.FAILED
    assert broken() == []
    assert_chain(ended)


def test_an_undo_whose_tries_are_used_up_fails(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Transient("busy"))] * 3
    run = start(agency)

    world.run_through()

    assert state_of(run) is RunState.COMPENSATION_FAILED
    assert [books(run)[name] for name in ("flights.book", "hotels.book")] == ["UNDONE", "UNDO_FAILED"]
    assert len(agency.unhotels.sends) == 3
    assert broken() == []


def test_a_person_lets_what_is_left_be_tried_again(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    run = start(agency)
    world.run_until_idle()
    assert state_of(run) is RunState.COMPENSATION_FAILED

    api.compensate(run.pk, reason="they have opened it again")
    world.run_until_idle()

    ended = fresh(run)
    assert (ended.state, ended.alert) == (RunState.COMPENSATED, "")
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel", "hotels.cancel"]
    assert (len(agency.unhotels.acts), len(agency.unflights.acts)) == (1, 1)
    assert len(set(agency.unhotels.sends)) == 2
    assert broken() == []
    assert_chain(ended)


def test_an_undo_has_its_own_time_and_no_budget(world: World):
    agency = Agency()
    run = start(agency, limits=Budget(attempts=4, tool_calls=3))

    world.run_until_idle()

    assert_undone(run, agency)


def test_an_undo_goes_on_after_the_deadline(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Transient("busy"))]
    run = start(agency)
    world.run_until_idle()
    assert fresh(run).ending_phase == "undo"
    WorkflowRun.objects.filter(pk=run.pk).update(deadline_at=world.clock.now())

    world.run_through()

    assert_undone_in_two_sends(run, agency)


def assert_undone_in_two_sends(run: WorkflowRun, agency: Agency) -> None:
    assert state_of(run) is RunState.COMPENSATED
    assert (len(agency.unhotels.acts), len(agency.unflights.acts)) == (1, 1)
    assert broken() == []


def test_an_undo_that_takes_too_long_is_given_up_and_the_run_ends(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Transient("busy"))] * 3
    run = start(agency, within=timedelta(seconds=30))
    world.run_until_idle()
    assert fresh(run).ending_phase == "undo"

    world.clock.advance(seconds=31)
    world.run_through()

    ended = fresh(run)
    assert ended.state == RunState.COMPENSATION_FAILED
    assert "undoing was given up" in ended.alert
    assert "not undone: flights.book of fly, hotels.book of sleep_over" in ended.alert
    assert [name for name, *_ in agency.undone] == ["hotels.cancel"]
    assert broken() == []
    assert_chain(ended)


def test_a_used_up_budget_undoes_nothing(world: World):
    agency = Agency()
    run = start(agency, limits=Budget(tool_calls=2))

    world.run_until_idle()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert agency.undone == []


def test_one_compensation_however_many_want_it(world: World):
    agency = Agency()
    run = start(agency)
    while "confirm" not in agency.ran:
        world.deliver(*world.messages.popleft())

    cancel(run)
    api.compensate(run.pk, reason="one")
    api.compensate(run.pk, reason="two")
    world.run_until_idle()
    api.compensate(run.pk, reason="three")

    assert_undone(run, agency)
    assert StepRun.objects.filter(run=run, name__endswith=".undo").count() == 2


def test_a_clean_up_comes_after_the_undo(world: World):
    agency = Agency(end=fail("no seats left"))
    run = start(agency, cleanup=True)

    world.run_until_idle()

    assert_undone(run, agency)
    assert agency.ran[-1] == "tidy"
    assert kinds(run).index("run.cleanup_began") > max(
        n for n, kind in enumerate(kinds(run)) if kind == "effect.undone"
    )


def test_a_compensated_run_is_not_redriven(world: World):
    run = start(Agency())
    world.run_until_idle()

    with pytest.raises(TooLate):
        api.redrive(run.pk, reason="again", step="fly")
    with pytest.raises(TooLate):
        api.extend(run.pk, reason="again", deadline=timedelta(days=1))
    with pytest.raises(TooLate):
        cancel(run)


def test_a_run_that_did_nothing_that_can_be_undone_is_not_compensated_after_its_end(world: World):
    agency = Agency()
    agency.flights.faults = [raise_without_acting(Permanent("sold out"))]
    run = start(agency)
    world.run_until_idle()

    with pytest.raises(TooLate, match="nothing that it did can be undone"):
        api.compensate(run.pk, reason="again")


def test_compensate_before_anything_was_done_ends_as_compensated(world: World):
    agency = Agency()
    run = start(agency)

    api.compensate(run.pk, reason="never mind")

    assert state_of(run) is RunState.COMPENSATED
    world.run_until_idle()
    assert (agency.ran, agency.undone) == ([], [])


def test_compensate_overtakes_a_cancel_without_undo(world: World):
    """Its step said so while the cancel waited for it."""
    agency = Agency(end=compensate("no seats left"))
    run = start(agency)
    agency.during["confirm"] = [lambda: cancel(run)]

    world.run_until_idle()

    assert_undone(run, agency)
