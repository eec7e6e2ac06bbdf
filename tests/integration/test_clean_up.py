"""What is cleaned up before a run ends as FAILED or CANCELLED: after all else is settled, and on record."""

from datetime import timedelta

import pytest

from durableflows import (
    Budget,
    NeedsHuman,
    Permanent,
    TooLate,
    Transient,
    UnknownOutcome,
    api,
    doctor,
    fail,
)
from durableflows.core.states import EffectState, EndingPhase, RunState, StepState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World, effect_states
from tests.support.flows import act_then_raise, raise_without_acting
from tests.support.look import fresh, how_often, state_of, steps_of
from tests.support.play import assert_chain
from tests.support.rooms import Hotel, broken, cancel, kinds, start

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = Permanent("the card was refused")


def test_a_run_that_fails_cleans_up_and_ends_as_failed_for_what_it_failed_of(world: World):
    hotel = Hotel()
    hotel.fails("pay", REFUSED)
    run = start(hotel)

    world.run_until_idle()

    ended = fresh(run)
    assert (ended.state, ended.error_text) == (RunState.FAILED, "the card was refused")
    assert hotel.ran == ["book", "pay", "tell_desk", "free"]
    assert effect_states(run.pk) == [
        ("rooms.book", EffectState.CONFIRMED),
        ("desk.write", EffectState.CONFIRMED),
        ("rooms.free", EffectState.CONFIRMED),
    ]
    assert (ended.cleanup_error, ended.alert) == ("", "")
    assert ended.data["freed"]
    assert kinds(run).index("run.ending") < kinds(run).index("run.cleanup_began") < kinds(run).index("run.ended")
    assert broken() == []
    assert_chain(ended)


def test_a_run_that_is_cancelled_cleans_up_and_ends_as_cancelled(world: World):
    hotel = Hotel()
    hotel.fails("pay", Transient("busy"))
    run = start(hotel)
    world.run_until_idle()

    cancel(run)

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.ENDING, EndingPhase.CLEANUP)
    assert [(name, state) for name, _, state in steps_of(run)] == [
        ("book", StepState.SUCCEEDED),
        ("pay", StepState.CANCELLED),
        ("free", StepState.READY),
    ]
    assert broken() == []
    world.run_until_idle()
    ended = fresh(run)
    assert (ended.state, ended.error_text) == (RunState.CANCELLED, "changed my mind")
    assert hotel.ran == ["book", "pay", "free"]
    assert broken() == []
    assert_chain(ended)


def test_what_has_begun_nowhere_is_cleaned_up_all_the_same(world: World):
    """The clean-up itself sees in the state that there is nothing to give back."""
    hotel = Hotel()
    run = start(hotel)

    cancel(run)
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free"]
    assert hotel.rooms.sends == []


def test_a_run_that_succeeds_cleans_up_nothing(world: World):
    hotel = Hotel()
    run = start(hotel)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert hotel.ran == ["book", "pay", "confirm"]


@pytest.mark.parametrize("limits", [Budget(attempts=1), Budget(tool_calls=1)])
def test_a_used_up_budget_cleans_up_nothing_since_who_extends_it_lets_the_run_go_on(world: World, limits: Budget):
    hotel = Hotel()
    run = start(hotel, limits=limits)
    world.run_until_idle()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert "free" not in hotel.ran
    api.extend(run.pk, reason="more", budget={"attempts": 9} if limits.attempts else {"tool_calls": 9})
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED


def test_a_deadline_cleans_up_nothing(world: World):
    hotel = Hotel()
    hotel.fails("pay", Transient("busy"))
    run = start(hotel)
    world.run_until_idle()

    world.clock.advance(days=4)
    world.run_until_idle()

    assert state_of(run) is RunState.DEADLINE_EXCEEDED
    assert "free" not in hotel.ran


def test_a_cancel_overtakes_a_deadline_that_waits_to_end_the_run(world: World):
    """P6: nobody may extend the run any more, so what it holds would be given back by nobody."""
    hotel = Hotel()
    hotel.bank.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    run = start(hotel)
    world.run_until_idle()
    WorkflowRun.objects.filter(pk=run.pk).update(deadline_at=world.clock.now())
    sweeps.end_overdue_runs(world.clock.now())
    assert fresh(run).ending_reason == "deadline"

    cancel(run)
    world.run_through()

    ended = fresh(run)
    assert (ended.state, ended.error_text) == (RunState.CANCELLED, "changed my mind")
    assert hotel.ran[-1] == "free"
    assert broken() == []
    assert_chain(ended)


def test_what_is_in_doubt_is_settled_before_the_clean_up_begins(world: World):
    """P6, P15: the room must not be freed while it is not known whether it was booked."""
    hotel = Hotel()
    hotel.rooms.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    run = start(hotel)
    world.deliver(*world.messages.popleft())
    assert steps_of(run) == [("book", "", StepState.NEEDS_RECONCILIATION)]

    cancel(run)
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.ENDING, EndingPhase.SETTLING)
    assert hotel.ran == []
    assert broken() == []
    world.run_through()
    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free"]
    assert effect_states(run.pk) == [("rooms.book", EffectState.CONFIRMED)]


def test_a_failure_waits_for_what_another_worker_may_still_send(world: World):
    """A lease was freed under a slow worker; the step failed in the next one's hands; the first request still flies."""
    hotel = Hotel()
    hotel.fails("pay", REFUSED)
    run = start(hotel)
    world.deliver(*world.messages.popleft())
    row = SideEffect.objects.get(run=run)
    row.settles_at = world.clock.now() + timedelta(seconds=20)
    row.store("settles_at")

    world.run_until_idle()

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.ENDING, EndingPhase.SETTLING)
    world.clock.advance(seconds=21)
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED
    assert hotel.ran == ["book", "pay", "tell_desk", "free"]


def test_a_worker_that_is_at_the_main_path_can_send_nothing_once_the_clean_up_has_begun(world: World):
    """I2: the cancel is confirmed while the body runs; its next effect is refused, and the step writes nothing."""
    hotel = Hotel()
    run = start(hotel)
    hotel.during["pay"] = [lambda: cancel(run)]

    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.bank.sends == []
    assert hotel.ran == ["book", "pay", "free"]
    assert broken() == []


def test_a_second_cancel_during_the_clean_up_changes_nothing(world: World):
    hotel = Hotel()
    run = start(hotel)
    cancel(run)
    before, events = fresh(run), kinds(run)

    api.cancel(run.pk, reason="again")

    after = fresh(run)
    assert (after.row_version, after.cancel_reason, kinds(run)) == (before.row_version, "changed my mind", events)
    world.run_until_idle()
    assert state_of(run) is RunState.CANCELLED
    assert how_often(run, "free") == 1


def test_a_cancel_during_the_clean_up_of_a_failure_lets_it_finish_and_the_run_is_failed(world: World):
    hotel = Hotel()
    hotel.fails("pay", REFUSED)
    run = start(hotel)
    hotel.during["tell_desk"] = [lambda: cancel(run)]

    world.run_until_idle()

    ended = fresh(run)
    assert (ended.state, ended.error_text) == (RunState.FAILED, "the card was refused")
    assert hotel.ran == ["book", "pay", "tell_desk", "free"]
    with pytest.raises(TooLate, match="that is final"):
        api.redrive(run.pk, reason="no", step="pay")


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ([Permanent("there is no such room")], "free: there is no such room"),
        ([NeedsHuman("ask the porter")], "free: ask the porter"),
        ([KeyError("room")], "free: KeyError: 'room'"),
        ([Transient("busy")] * 3, "free did not work in 3 attempts; the last error was: busy"),
    ],
    ids=["for good", "a person", "our code", "too often"],
)
def test_a_clean_up_that_fails_ends_the_run_with_an_alert(world: World, errors: list[Exception], why: str):
    """P10: no limbo; the run ends as it was going to, and somebody is told."""
    hotel = Hotel()
    hotel.fails("pay", REFUSED)
    hotel.fails("free", *errors)
    run = start(hotel)

    world.run_through()

    ended = fresh(run)
    assert (ended.state, ended.error_text) == (RunState.FAILED, "the card was refused")
    assert ended.cleanup_error.startswith(why)
    assert ended.alert.startswith(f"its clean-up was not done: {why}")
    assert ended.ended_at is not None
    assert "run.cleanup_failed" in kinds(run)
    assert not StepRun.objects.filter(run=run, ended_at__isnull=True).exists()
    assert [one.code for one in doctor.examine()] == ["cleanup-not-done"]
    assert_chain(ended)


def test_a_clean_up_that_says_fail_has_failed(world: World):
    hotel = Hotel(leads={"free": lambda self: fail("the porter is away")})
    run = start(hotel)
    cancel(run)
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert fresh(run).cleanup_error == "free: the porter is away"


def test_a_run_goes_on_under_the_clean_up_that_it_pinned(world: World):
    """P8: what a deploy changes about it is for new runs."""
    hotel = Hotel()
    run = start(hotel, within=timedelta(minutes=7))
    assert fresh(run).manifest["cleanup"] == {"cancel": "free", "failure": "tell_desk", "seconds": 420.0}

    cancel(run)

    assert fresh(run).cleanup_until == world.clock.now() + timedelta(minutes=7)


def test_a_refused_effect_that_fails_the_step_cleans_up(world: World):
    hotel = Hotel()
    hotel.bank.faults = [raise_without_acting(REFUSED)]
    run = start(hotel)
    world.run_until_idle()

    assert state_of(run) is RunState.FAILED
    assert hotel.ran == ["book", "pay", "tell_desk", "free"]
