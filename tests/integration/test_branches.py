"""Steps side by side and the joins that gather them: each join begins once, when nobody can come to it any more."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableflows import (
    Permanent,
    Run,
    StepRef,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    api,
    each,
    step,
    succeed,
)
from durableflows.core import registry
from durableflows.core.states import RunState, StepState
from durableflows.models import StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.look import fresh, how_often, state_of, steps_of

pytestmark = pytest.mark.django_db(transaction=True)


class Notes(WorkflowState):
    names: list[str] = []
    left: int = 0
    right: int = 0
    rounds: int = 0
    gathered: list[str] = []


Body = Callable[[Run[Notes]], StepReturn]


def diamond(*, left: Body | None = None, joined: Callable[[Run[Notes]], None] | None = None) -> type[Workflow[Notes]]:
    """split -> left, right -> meet; left may also end, or go round."""

    class Diamond(Workflow[Notes]):
        name, deadline = "diamond", timedelta(days=1)

        @step(start=True, to=("left", "right"))
        def split(self, run: Run[Notes]) -> StepReturn:
            return self.left, self.right

        @step(to=("left", "meet"), end=True)
        def left(self, run: Run[Notes]) -> StepReturn:
            run.state.left += 1
            run.give_result("from the left")
            return left(run) if left else self.meet

        @step(to="meet")
        def right(self, run: Run[Notes]) -> None:
            run.state.right += 1
            run.give_result({"side": "right"})

        @step(join=True, end=True)
        def meet(self, run: Run[Notes]) -> None:
            if joined:
                joined(run)

    return Diamond


def fan_out(work: Body, *, limit: int | None = None, failures: object = "stop") -> type[Workflow[Notes]]:
    """begin -> work for each name -> gather."""

    class FanOut(Workflow[Notes]):
        name, deadline = "fan_out", timedelta(days=1)

        @step(start=True, to=("work", "gather"))
        def begin(self, run: Run[Notes]) -> StepReturn:
            return each(self.work, run.state.names, key=str, then=self.gather, limit=limit, failures=failures)  # type: ignore[arg-type]

        @step(to="gather", permanent=ValueError)
        def work(self, run: Run[Notes]) -> StepReturn:
            return work(run)

        @step(join=True, end=True)
        def gather(self, run: Run[Notes]) -> None:
            run.state.gathered = [f"{one.item_key}={one.value or one.error}" for one in run.results(self.work)]

    return FanOut


def greet(run: Run[Notes]) -> None:
    run.give_result(f"hello {run.item}")


def test_a_join_begins_once_when_both_branches_are_there(world: World):
    results: list[object] = []

    def joined(run: Run[Notes]) -> None:
        results.extend(one.value for name in ("left", "right") for one in run.results(StepRef(name)))

    run = api.start(diamond(joined=joined), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert how_often(run, "meet") == 1
    assert results == ["from the left", {"side": "right"}]
    assert fresh(run).data["left"] == fresh(run).data["right"] == 1


def test_a_join_waits_for_the_slower_branch(world: World):
    tries: list[int] = []

    def slow(run: Run[Notes]) -> StepReturn:
        tries.append(1)
        if len(tries) < 3:
            raise Transient("not yet")
        return StepRef("meet")

    run = api.start(diamond(left=slow), {})
    world.run_until_idle()

    assert ("meet", "", StepState.WAITING) in steps_of(run)
    assert state_of(run) is RunState.RUNNING

    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert how_often(run, "meet") == 1


def test_a_join_does_not_wait_for_a_branch_that_ended_elsewhere(world: World):
    run = api.start(diamond(left=lambda run: succeed("enough")), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).result == "enough"
    assert how_often(run, "meet") == 1


def test_a_join_waits_for_a_branch_that_goes_round(world: World):
    """A branch in a loop may still come, however often it goes round."""
    run = api.start(diamond(left=lambda run: StepRef("left" if run.state.left < 4 else "meet")), {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert (how_often(run, "left"), how_often(run, "meet")) == (4, 1)


def test_joins_that_wait_for_each_other_do_not_wait_for_ever(world: World):
    """P10: two joins in a loop, each of which could still come to the other."""

    class Knot(Workflow[Notes]):
        name, deadline = "knot", timedelta(days=1)

        @step(start=True, to=("first", "second"))
        def split(self, run: Run[Notes]) -> StepReturn:
            return self.first, self.second

        @step(join=True, to="second", end=True)
        def first(self, run: Run[Notes]) -> StepReturn:
            run.state.rounds += 1
            return self.second if run.state.rounds == 1 else succeed()

        @step(join=True, to="first", end=True)
        def second(self, run: Run[Notes]) -> StepReturn:
            return self.first if run.state.rounds < 2 else succeed()

    run = api.start(Knot, {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_each_item_is_worked_on_and_gathered_in_order(world: World):
    run = api.start(fan_out(greet), {"names": ["ada", "ben", "cleo"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["gathered"] == ["ada=hello ada", "ben=hello ben", "cleo=hello cleo"]
    assert [item for name, item, _ in steps_of(run) if name == "work"] == ["ada", "ben", "cleo"]


def test_no_items_go_straight_to_the_join(world: World):
    run = api.start(fan_out(greet), {"names": []})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert how_often(run, "gather") == 1


def test_no_more_branches_than_the_limit_are_under_way(world: World):
    most: list[int] = []

    def count(run: Run[Notes]) -> None:
        rows = StepRun.objects.filter(run__pk=run.id, name="work")
        most.append(rows.filter(state__in=["READY", "RUNNING", "RETRY_SCHEDULED"]).count())

    run = api.start(fan_out(count, limit=2), {"names": list("abcdefg")})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert (len(most), max(most)) == (7, 2)


def test_an_item_that_is_tried_again_keeps_its_place(world: World):
    tries: list[str] = []

    def flaky(run: Run[Notes]) -> None:
        tries.append(run.item_key)
        if run.item_key == "a" and tries.count("a") < 3:
            raise Transient("not yet")

    run = api.start(fan_out(flaky, limit=1), {"names": ["a", "b"]})
    world.run_until_idle()
    assert tries == ["a"]
    world.run_through()

    assert tries == ["a", "a", "a", "b"]
    assert state_of(run) is RunState.SUCCEEDED


def refuse_b(run: Run[Notes]) -> None:
    if run.item == "b":
        raise ValueError("b is not ours")
    greet(run)


def test_the_first_failed_item_stops_the_run(world: World):
    run = api.start(fan_out(refuse_b, limit=1), {"names": ["a", "b", "c"]})
    world.run_until_idle()

    assert state_of(run) is RunState.FAILED
    assert "b is not ours" in fresh(run).error_text
    assert ("work", "c", StepState.CANCELLED) in steps_of(run)
    assert ("gather", "", StepState.CANCELLED) in steps_of(run)


def test_failed_items_are_collected(world: World):
    run = api.start(fan_out(refuse_b, failures="collect"), {"names": ["a", "b", "c"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["gathered"] == ["a=hello a", "b=b is not ours", "c=hello c"]


def test_items_that_all_fail_are_collected_too(world: World):
    run = api.start(fan_out(refuse_b, failures="collect"), {"names": ["b"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_an_item_that_never_works_is_collected_after_its_last_try(world: World):
    def never(run: Run[Notes]) -> None:
        raise Transient("the printer is off")

    run = api.start(fan_out(never, failures="collect"), {"names": ["a"]})
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["gathered"] == ["a=the printer is off"]


@pytest.mark.parametrize(("tolerated", "end"), [(2, RunState.SUCCEEDED), (1, RunState.FAILED)])
def test_as_many_failed_items_are_tolerated_as_declared(world: World, tolerated: int, end: RunState):
    def refuse(run: Run[Notes]) -> None:
        if run.item_key != "a":
            raise Permanent("no")

    run = api.start(fan_out(refuse, failures=tolerated), {"names": ["a", "b", "c"]})
    world.run_until_idle()

    assert state_of(run) is end


def test_items_cannot_have_items_of_their_own(world: World):
    """A child can: the error says so, and the run waits for a person with nothing half done."""
    run = api.start(fan_out(lambda run: each(StepRef("work"), [1], then=StepRef("gather"))), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "not in its `to`" in fresh(run).parked_detail or "inside the branch of an item" in fresh(run).parked_detail


def test_a_join_inside_the_branches_of_items_gathers_all_items_at_once_and_is_about_none(world: World):
    seen: list[str] = []

    class Parcels(Workflow[Notes]):
        name, deadline = "parcels", timedelta(days=1)

        @step(start=True, to=("weigh", "report"))
        def begin(self, run: Run[Notes]) -> StepReturn:
            return each(self.weigh, ["a", "b"], key=str, then=self.report)

        @step(to=("label", "book"))
        def weigh(self, run: Run[Notes]) -> StepReturn:
            return self.label, self.book

        @step(to="send")
        def label(self, run: Run[Notes]) -> StepReturn:
            return self.send

        @step(to="send")
        def book(self, run: Run[Notes]) -> StepReturn:
            return self.send

        @step(join=True, to="report")
        def send(self, run: Run[Notes]) -> StepReturn:
            seen.append(run.item_key)
            return self.report

        @step(join=True, end=True)
        def report(self, run: Run[Notes]) -> None:
            run.state.gathered = [one.item_key for one in run.results(self.weigh)]

    run = api.start(Parcels, {})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert seen == [""]
    assert (how_often(run, "label"), how_often(run, "send"), how_often(run, "report")) == (2, 1, 1)
    assert fresh(run).data["gathered"] == ["a", "b"]


def test_a_cancelled_run_begins_no_more_items(world: World):
    begun: list[str] = []

    def work(run: Run[Notes]) -> None:
        begun.append(run.item_key)
        api.cancel(run.id, reason="enough")

    run = api.start(fan_out(work, limit=1), {"names": ["a", "b", "c"]})
    world.run_until_idle()

    assert begun == ["a"]
    assert state_of(run) is RunState.CANCELLED
    assert not WorkflowRun.objects.get(pk=run.pk).steps.filter(state="READY").exists()


def queries_of_one_item(world: World, items: int) -> int:
    api.start(fan_out(greet, limit=1), {"names": [str(number) for number in range(items)]})
    world.deliver(*world.messages.popleft())
    with CaptureQueriesContext(connection) as queries:
        world.deliver(*world.messages.popleft())
    world.lose_messages()
    return len(queries)


def test_an_item_costs_the_same_however_many_there_are(world: World):
    few = queries_of_one_item(world, 3)
    registry._DEFINITIONS.clear()

    assert queries_of_one_item(world, 300) == few


def queries_of_a_cancel(world: World, items: int) -> int:
    run = api.start(fan_out(greet, limit=1), {"names": [str(number) for number in range(items)]})
    world.deliver(*world.messages.popleft())
    world.lose_messages()
    with CaptureQueriesContext(connection) as queries:
        api.cancel(run.pk, reason="not wanted")
    return len(queries)


def test_a_cancel_closes_each_waiting_item_with_its_row_and_its_fact(world: World):
    few = queries_of_a_cancel(world, 3)
    registry._DEFINITIONS.clear()

    assert queries_of_a_cancel(world, 103) - few == 2 * 100
