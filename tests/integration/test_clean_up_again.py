"""What operators may do with a run that cleans up, or has: again, further, given up, explained."""

from datetime import timedelta

import pytest

from durableflows import (
    InvalidState,
    Permanent,
    Run,
    StepReturn,
    TooLate,
    Workflow,
    api,
    child,
    each,
    fail,
    sleep,
    step,
)
from durableflows.core.states import EndingPhase, RunState, StepState
from durableflows.models import StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.look import fresh, how_often, state_of, steps_of
from tests.support.play import assert_chain
from tests.support.rooms import Hotel, Stay, broken, cancel, start

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = Permanent("the card was refused")


def test_a_clean_up_that_failed_can_be_done_again_and_the_run_ends_as_it_did(world: World):
    hotel = Hotel()
    hotel.fails("pay", REFUSED)
    hotel.fails("free", Permanent("the porter is away"))
    run = start(hotel)
    world.run_until_idle()
    assert "redrive" in api.explain(run.pk).safe
    world.clock.advance(minutes=5)

    api.redrive(run.pk, reason="he is back", step="free")

    again = fresh(run)
    assert (again.state, again.ending_phase, again.alert) == (RunState.ENDING, EndingPhase.CLEANUP, "")
    assert broken() == []
    world.run_until_idle()
    ended = fresh(run)
    assert (ended.state, ended.error_text, ended.cleanup_error) == (RunState.FAILED, "the card was refused", "")
    assert ended.ended_at == world.clock.now()
    assert hotel.ran == ["book", "pay", "tell_desk", "free", "free"]
    assert len(hotel.desk.sends) == 1
    assert_chain(ended)


@pytest.fixture
def rooms(world: World):
    """A run whose clean-up frees three rooms; those in `stuck` it cannot free. And what it has freed."""
    stuck, freed = {"r1"}, []

    class Rooms(Workflow[Stay]):
        name, deadline = "rooms", timedelta(days=3)
        on_failure = "tidy"

        @step(start=True, end=True)
        def book(self, run: Run[Stay]) -> StepReturn:
            return fail("no more rooms")

        @step(to=("free", "gather", "tell"))
        def tidy(self, run: Run[Stay]) -> StepReturn:
            limit = 1 + run.state.nights % 2
            return each(self.free, ["r1", "r2", "r3"], key=str, limit=limit, then=self.gather), self.tell

        @step(to="gather")
        def free(self, run: Run[Stay]) -> None:
            if run.item in stuck:
                raise Permanent("the porter is away")
            freed.append(run.item)

        @step(join=True, end=True)
        def gather(self, run: Run[Stay]) -> None:
            freed.append("all")

        @step(end=True)
        def tell(self, run: Run[Stay]) -> None:
            freed.append("told")

    def begin(nights: int) -> WorkflowRun:
        run = api.start(Rooms, {"nights": nights})
        world.run_until_idle()
        return run

    return begin, stuck, freed


@pytest.mark.parametrize("nights", [2, 3], ids=["one at a time", "two at a time"])
@pytest.mark.parametrize("again", [{"step": "free", "item": "r1"}, {"step": "tidy"}], ids=["the branch", "all"])
def test_branches_of_a_clean_up_that_another_one_s_failure_closed_are_done_too(world: World, rooms, nights, again):
    """Else what they give back would be kept for ever, and the run would say that its clean-up is done."""
    begin, stuck, freed = rooms
    run = begin(nights)
    assert fresh(run).cleanup_error == "free: the porter is away"
    stuck.clear()

    api.redrive(run.pk, reason="he is back", **again)
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).cleanup_error) == (RunState.FAILED, "")
    assert sorted(set(freed)) == ["all", "r1", "r2", "r3", "told"]
    assert broken() == []


def test_every_branch_that_failed_the_clean_up_gets_another_try(world: World, rooms):
    begin, stuck, freed = rooms
    run = begin(2)
    stuck |= {"r2"}
    stuck.discard("r1")
    api.redrive(run.pk, reason="he is back", step="free", item="r1")
    world.run_until_idle()
    assert fresh(run).cleanup_error == "free: the porter is away"
    stuck.clear()

    with pytest.raises(TooLate, match="the run comes to it by itself"):
        api.redrive(run.pk, reason="he is back", step="gather")
    api.redrive(run.pk, reason="tell them once more", step="tell")
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).cleanup_error) == (RunState.FAILED, "")
    assert sorted(freed) == ["all", "r1", "r2", "r3", "told", "told"]


def test_a_run_that_was_cancelled_with_the_clean_up_that_waited_for_it_is_left_to_a_person(world: World):
    """It is not started again, and must not keep the other branches from being done."""
    stuck, freed = {"r1"}, []

    class Porter(Workflow[Stay]):
        name, deadline = "porter", timedelta(days=1)

        @step(start=True, to="carry")
        def wait(self, run: Run[Stay]) -> StepReturn:
            return sleep(timedelta(minutes=5), then=self.carry)

        @step(end=True)
        def carry(self, run: Run[Stay]) -> None: ...

    class Rooms(Workflow[Stay]):
        name, deadline = "rooms", timedelta(days=3)
        on_failure = "tidy"

        @step(start=True, end=True)
        def book(self, run: Run[Stay]) -> StepReturn:
            return fail("no more rooms")

        @step(to=("free", "carried"))
        def tidy(self, run: Run[Stay]) -> StepReturn:
            return self.free, child("porter", {}, then=self.carried)

        @step(end=True)
        def free(self, run: Run[Stay]) -> None:
            world.deliver("durableflows.crossing", (str(StepRun.objects.get(name="carried").pk),))
            if stuck:
                raise Permanent("the key is lost")
            freed.append("r1")

        @step(end=True)
        def carried(self, run: Run[Stay]) -> None:
            freed.append("carried")

    run = api.start(Rooms, {})
    world.run_until_idle()
    porter = WorkflowRun.objects.get(parent=run)
    assert (fresh(run).cleanup_error, porter.state) == ("free: the key is lost", RunState.CANCELLED)
    stuck.clear()

    api.redrive(run.pk, reason="it is found", step="free")
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).cleanup_error, freed) == (RunState.FAILED, "", ["r1"])
    assert fresh(run).alert.startswith(f"carried was not done: porter run {porter.pk} was cancelled with it")


def test_a_clean_up_of_a_cancelled_run_can_be_done_again_and_nothing_else_of_it(world: World):
    hotel = Hotel()
    hotel.fails("free", Permanent("the porter is away"))
    run = start(hotel)
    world.deliver(*world.messages.popleft())
    cancel(run)
    world.run_until_idle()

    with pytest.raises(TooLate, match="cancelled"):
        api.redrive(run.pk, reason="no", step="book")
    api.redrive(run.pk, reason="he is back", step="free")
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).cleanup_error) == (RunState.CANCELLED, "")
    assert hotel.ran == ["book", "free", "free"]
    with pytest.raises(TooLate, match="nothing to do again"):
        api.redrive(run.pk, reason="once more", step="free")


def test_a_clean_up_that_no_worker_came_to_can_be_done_again(world: World):
    hotel = Hotel()
    run = start(hotel)
    cancel(run)
    world.clock.advance(hours=2)
    world.lose_messages()
    sweeps.SWEEPS["late clean-ups"](world.clock.now())
    assert fresh(run).cleanup_error

    api.redrive(run.pk, reason="workers are back", step="free")
    world.run_until_idle()

    assert (fresh(run).state, fresh(run).cleanup_error) == (RunState.CANCELLED, "")
    assert hotel.ran == ["free"]


def test_a_run_that_failed_and_cleaned_up_goes_on_from_a_step_and_cleans_up_anew_when_it_fails_again(world: World):
    """Its clean-up's effects are of another visit: what the first one gave back is given back again if need be."""
    hotel = Hotel()
    hotel.fails("pay", REFUSED, REFUSED)
    run = start(hotel)
    world.run_until_idle()

    api.redrive(run.pk, reason="another card", step="pay")

    assert (fresh(run).state, fresh(run).ending_phase) == (RunState.RUNNING, EndingPhase.SETTLING)
    assert fresh(run).cleanup_until is None
    assert broken() == []
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED
    assert hotel.ran == ["book", "pay", "tell_desk", "free", "pay", "tell_desk", "free"]
    assert len(hotel.rooms.acts) == 3
    assert how_often(run, "free") == 2
    api.redrive(run.pk, reason="a third card", step="pay")
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert broken() == []


def test_branches_that_the_failure_closed_stand_again_and_closed_steps_of_the_clean_up_do_not(world: World):
    hotel = Hotel(leads={"free": lambda self: sleep(timedelta(days=1), then=self.later)})
    hotel.fails("pay", REFUSED)
    run = start(hotel)
    world.run_until_idle()
    world.clock.advance(hours=2)
    world.run_until_idle()
    assert steps_of(run)[-1] == ("later", "", StepState.CANCELLED)

    api.redrive(run.pk, reason="another card", step="pay")
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert "later" not in hotel.ran


def test_a_run_can_be_abandoned_in_its_clean_up(world: World, django_user_model):
    hotel = Hotel()
    run = start(hotel)
    cancel(run)
    heir = django_user_model.objects.create_superuser("heir", password="x")

    api.abandon(run.pk, reason="the hotel has burned down", heir=heir)
    world.run_until_idle()

    assert state_of(run) is RunState.ABANDONED
    assert hotel.ran == []
    assert broken() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "retry", "migrate"])
def test_other_verbs_are_refused_while_a_run_cleans_up(world: World, verb: str):
    run = start(Hotel())
    cancel(run)

    with pytest.raises((TooLate, InvalidState)):
        getattr(api, verb)(run.pk, reason="no")


def test_the_preview_of_a_cancel_names_the_clean_up(world: World):
    """P6: cleanup is listed in the preview."""
    run = start(Hotel())

    assert api.preview("cancel", run.pk).begins == ("free, to clean up",)
    cancel(run)
    assert api.preview("cancel", run.pk).begins == ()


def test_the_story_says_that_it_cleans_up_and_until_when(world: World):
    hotel = Hotel()
    run = start(hotel)
    cancel(run)

    story = api.explain(run.pk)

    assert story.sentence.startswith("Ending (cancel): changed my mind. It cleans up first: free waits for a worker")
    hotel.fails("free", Permanent("the porter is away"))
    world.run_until_idle()
    story = api.explain(run.pk)
    assert "Look at this: its clean-up was not done: free: the porter is away" in story.sentence
    texts = [line.text for line in story.lines]
    assert "Nothing else of it is under way any more: it cleans up: free" in texts
    assert "The clean-up was not done: free: the porter is away" in texts
