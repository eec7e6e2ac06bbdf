"""What a clean-up may do: all that steps do, with a bound of its own, whoever dies on the way."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableflows import (
    Budget,
    Permanent,
    Run,
    StepReturn,
    Transient,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    api,
    child,
    claims,
    each,
    integrity,
    sleep,
    step,
    wait_for,
)
from durableflows.core import registry
from durableflows.core.states import EffectState, EndingPhase, RunState, StepState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, effect_states, faulttest
from tests.support.flows import act_then_raise, answer_pending
from tests.support.look import fresh, state_of, steps_of
from tests.support.rooms import Hotel, broken, cancel, start, stay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = Permanent("the card was refused")


def test_a_clean_up_is_tried_again_as_its_step_declares(world: World):
    hotel = Hotel()
    hotel.fails("free", Transient("busy"), Transient("busy"))
    run = start(hotel)
    cancel(run)

    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free"] * 3
    assert fresh(run).cleanup_error == ""


def test_a_clean_up_in_doubt_is_looked_up_as_everything_is(world: World):
    hotel = Hotel()
    run = start(hotel)
    world.deliver(*world.messages.popleft())
    hotel.rooms.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    cancel(run)
    world.run_until_idle()

    assert fresh(run).ending_phase == EndingPhase.CLEANUP
    assert broken() == []
    world.run_through()
    assert state_of(run) is RunState.CANCELLED
    assert effect_states(run.pk)[-1] == ("rooms.free", EffectState.CONFIRMED)
    assert fresh(run).cleanup_error == ""


def test_a_clean_up_may_be_accepted_first_and_done_later(world: World):
    hotel = Hotel()
    accepted = {"accepted": lambda receipt: receipt.status == "pending", "accepted_within": timedelta(days=1)}
    run = start(hotel, within=timedelta(hours=5), **accepted)
    world.deliver(*world.messages.popleft())
    hotel.rooms.faults = [answer_pending]
    cancel(run)
    world.run_until_idle()
    assert steps_of(run)[-1] == ("free", "", StepState.WAITING)

    hotel.rooms.known = {
        key: receipt.model_copy(update={"status": "done"}) for key, receipt in hotel.rooms.known.items()
    }
    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert fresh(run).cleanup_error == ""


def test_a_clean_up_has_a_bound_of_its_own(world: World):
    """The run's deadline may be over, or far away: neither counts."""
    hotel = Hotel(leads={"free": lambda self: sleep(timedelta(days=1), then=self.later)})
    run = start(hotel, within=timedelta(minutes=10))
    cancel(run)
    world.run_until_idle()
    assert broken() == []

    world.clock.advance(minutes=11)
    world.run_until_idle()

    ended = fresh(run)
    assert ended.state == RunState.CANCELLED
    assert ended.cleanup_error.startswith("it was not done by 2026-01-05 09:10")
    assert steps_of(run)[-1] == ("later", "", StepState.CANCELLED)


def test_a_clean_up_goes_on_after_the_deadline_and_with_no_budget_left(world: World):
    hotel = Hotel(leads={"free": lambda self: sleep(timedelta(days=4), then=self.later)})
    run = start(hotel, within=timedelta(days=9), limits=Budget(attempts=2, tool_calls=1, iterations=0))
    hotel.fails("pay", REFUSED)

    world.run_through()

    ended = fresh(run)
    assert (ended.state, ended.cleanup_error) == (RunState.FAILED, "")
    assert ended.ended_at is not None
    assert ended.ended_at > ended.deadline_at
    assert hotel.ran == ["book", "pay", "tell_desk", "free", "later"]
    assert broken() == []


def test_a_clean_up_that_is_late_with_an_effect_in_doubt_ends_when_that_is_settled(world: World):
    """P15: not even a run that has given its clean-up up ends open."""
    hotel = Hotel()
    run = start(hotel, within=timedelta(seconds=20), key_window=None)
    world.deliver(*world.messages.popleft())
    hotel.rooms.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    cancel(run)
    world.run_until_idle()
    assert steps_of(run)[-1] == ("free", "", StepState.NEEDS_RECONCILIATION)

    world.clock.advance(seconds=21)
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.ENDING, EndingPhase.CLOSING)
    assert broken() == []
    world.run_through()
    ended = fresh(run)
    assert ended.state == RunState.CANCELLED
    assert ended.cleanup_error
    assert ended.alert
    assert effect_states(run.pk)[-1] == ("rooms.free", EffectState.CONFIRMED)
    assert len(hotel.rooms.sends) == 2


def test_a_clean_up_may_wait_for_signals(world: World):
    hotel = Hotel(leads={"free": lambda self: wait_for("porter", then=self.later)})
    run = start(hotel)
    cancel(run)
    world.run_until_idle()

    api.signal(run.pk, "porter")
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free", "later"]


def test_a_clean_up_may_go_round_and_split(world: World):
    rounds = []

    def again(self):
        rounds.append(1)
        return self.free if len(rounds) < 3 else (self.later,)

    hotel = Hotel(leads={"free": again})
    run = start(hotel, limits=Budget(iterations=0))
    cancel(run)
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free", "free", "free", "later"]
    assert set(StepRun.objects.filter(run=run, name__in=["free", "later"]).values_list("of_cleanup", flat=True)) == {
        True
    }
    assert broken() == []


class Freed(WorkflowState):
    """Of the workflow below."""

    rooms: list[str] = []


def several_rooms() -> type[Workflow[Freed]]:
    """A cancel frees three rooms, two at a time, and lets another workflow write about it."""

    class Writing(Workflow[Freed]):
        name, deadline = "writing", timedelta(days=1)

        @step(start=True, end=True)
        def write(self, run: Run[Freed]) -> None:
            run.note("written")

    class Several(Workflow[Freed]):
        name, deadline, on_cancel = "several", timedelta(days=1), "split"

        @step(start=True, end=True)
        def hold(self, run: Run[Freed]) -> None: ...

        @step(to=("free", "gather"))
        def split(self, run: Run[Freed]) -> StepReturn:
            return each(self.free, ["a", "b", "c"], key=str, limit=2, then=self.gather)

        @step(to="gather")
        def free(self, run: Run[Freed]) -> None:
            run.give_result(run.item)

        @step(join=True, to="tell")
        def gather(self, run: Run[Freed]) -> StepReturn:
            run.state.rooms = [str(result.value) for result in run.results(self.free)]
            return child(Writing, {}, then=self.tell)

        @step(end=True)
        def tell(self, run: Run[Freed]) -> None:
            assert run.child is not None

    return Several


def test_a_clean_up_may_split_for_items_and_start_other_runs(world: World):
    run = api.start(several_rooms(), {})
    cancel(run)

    world.run_until_idle()

    ended = fresh(run)
    assert (ended.state, ended.cleanup_error, ended.data["rooms"]) == (RunState.CANCELLED, "", ["a", "b", "c"])
    assert WorkflowRun.objects.get(parent=run).state == RunState.SUCCEEDED
    assert set(StepRun.objects.filter(run=run).exclude(name="hold").values_list("of_cleanup", flat=True)) == {True}
    assert broken() == []


def test_a_lost_worker_of_a_clean_up_is_replaced(world: World):
    hotel = Hotel()
    run = start(hotel)
    cancel(run)
    ready = StepRun.objects.get(run=run, name="free")
    assert claims.claim(run.pk, ready.pk, task_id="dead", pid=1) is not None
    world.messages.clear()
    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free"]


def test_a_process_without_the_workflow_begins_a_clean_up_and_whoever_knows_it_does_it(world: World):
    """P1: the web process or ticker of another deploy cancels and settles too; what to do is pinned on the run."""
    hotel = Hotel()
    run = start(hotel)
    with registry.isolated():
        cancel(run)
        world.run_until_idle()
        assert (fresh(run).ending_phase, hotel.ran) == (EndingPhase.CLEANUP, [])
        assert broken() == []
    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["free"]


def test_a_clean_up_that_no_worker_knows_ends_in_its_time(world: World):
    run = start(Hotel())
    cancel(run)
    with registry.isolated():
        world.run_until_idle()
        world.clock.advance(hours=1)
        world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert fresh(run).cleanup_error == "it was not done by 2026-01-05 10:00"


def gives_back_what_it_holds(run: WorkflowRun) -> None:
    """What was booked is freed once, unless the run has its room, or says that it could not free it."""
    if run.ended_at is None or run.state == RunState.SUCCEEDED:
        return
    rows = SideEffect.objects.filter(run=run, state=EffectState.CONFIRMED)
    booked, freed = (rows.filter(effect=effect).count() for effect in ("rooms.book", "rooms.free"))
    assert freed <= booked
    assert freed or run.cleanup_error or not run.data["room"], f"{run.word}, with a room that nobody has"


@pytest.mark.parametrize("provider", [{}, {"key_window": None}], ids=["keys", "lookup only"])
def test_a_clean_up_keeps_the_promises_whatever_dies_on_the_way(provider: dict[str, Any]):
    """P3, P6, P10, P15 through crashes at every boundary, lost messages, faulty providers, and cancels anywhere."""
    with registry.isolated():
        report = faulttest(stay_workflow(Hotel(), **provider), {}, schedules=150, check=gives_back_what_it_holds)

    assert report.holds, report
    assert {"cleanup-before-commit", "cleanup-before-send"} <= {place for place, _ in report.matrix}


def begun_under_another_release(run: WorkflowRun) -> None:
    run.manifest = {**run.manifest, "structure": "another"}
    integrity.seal_as_it_is(run)
    run.store("manifest", "data_digest", "data_key_id")


def changed_from_outside(run: WorkflowRun) -> None:
    changed = {"nights": 99, "room": "x", "paid": "", "freed": ""}
    WorkflowRun.objects.filter(pk=run.pk).update(data=changed)


@pytest.mark.parametrize(
    ("change", "why"),
    [(begun_under_another_release, "stay v1 here has other"), (changed_from_outside, "the stored state")],
    ids=["another release", "changed from outside"],
)
def test_a_clean_up_that_must_not_be_done_ends_with_an_alert(
    world: World, change: Callable[[WorkflowRun], None], why: str
):
    """P8, P13, P10: what would park a run ends its clean-up; nothing is sent on the word of a changed state."""
    hotel = Hotel()
    run = start(hotel)
    cancel(run)
    change(fresh(run))

    world.run_until_idle()

    ended = fresh(run)
    assert ended.state == RunState.CANCELLED
    assert ended.cleanup_error.startswith(why)
    assert ended.alert
    assert hotel.ran == []


def test_a_person_s_verdict_ends_a_late_clean_up_and_what_was_not_done_stays_said(world: World):
    """The verdict is about the effect; that the clean-up was given up is still to be looked at."""
    hotel = Hotel()
    run = start(hotel, key_window=None, lookup=None)
    world.deliver(*world.messages.popleft())
    hotel.rooms.faults = [act_then_raise(UnknownOutcome("read timed out"))]
    cancel(run)
    world.run_until_idle()
    world.clock.advance(hours=1)
    world.run_until_idle()
    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.ENDING, EndingPhase.CLOSING)

    row = SideEffect.objects.get(run=run, effect="rooms.free")
    api.resolve_effect(row.pk, "happened", reason="I asked", row_version=row.row_version, receipt={"id": "pay_2"})
    world.run_until_idle()

    ended = fresh(run)
    assert ended.state == RunState.CANCELLED
    assert ended.alert == f"its clean-up was not done: {ended.cleanup_error}"
    assert broken() == []
