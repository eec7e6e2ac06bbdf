"""Runs with branches that go on after an end, or from an earlier step: nothing is lost, forgotten, or left waiting.

Each case was found by the search of tests/model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from durableflows import (
    InvalidState,
    Permanent,
    Run,
    StepReturn,
    TooLate,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    api,
    each,
    step,
    succeed,
    wait_for,
)
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import RunState, StepState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import PayReceipt, Provider, pay_effect, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


class Parts(WorkflowState):
    """What the branches leave."""

    left: list[str] = []


@dataclass
class Stage:
    """What goes wrong, and what ran."""

    provider: Provider = field(default_factory=Provider)
    troubles: dict[str, Exception] = field(default_factory=dict)
    ways: dict[str, Callable[[Any], StepReturn]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pay: EffectDefinition[PayReceipt] = pay_effect(self.provider)

    def pay_if(self, name: str, run: Run[Parts]) -> None:
        """Some branches pay."""
        if name in self.flags:
            run.effect(self.pay, amount=1)

    def run(self, name: str) -> None:
        """A body begins."""
        self.ran.append(name)
        if name in self.troubles:
            raise self.troubles.pop(name)


def end_during_send(world: World, stage: Stage) -> None:
    """The run's deadline passes while a request is on its way."""

    def end(call: object) -> None:
        stage.provider.before_call = None
        WorkflowRun.objects.filter(parent=None).update(deadline_at=world.clock.now())
        sweeps.end_overdue_runs(world.clock.now())

    stage.provider.before_call = end


def extend(run: WorkflowRun) -> WorkflowRun:
    return api.extend(run.pk, reason="it needs longer", deadline=DAY)


def redrive(run: WorkflowRun, step: str, **more: object) -> WorkflowRun:
    return api.redrive(run.pk, reason="cured", step=step, **more)  # type: ignore[arg-type]


def items_workflow(stage: Stage, *, failures: str = "stop") -> type[Workflow[Parts]]:
    """Pay for three items, one at a time, then report."""

    class Items(Workflow[Parts]):
        name, deadline = "items", timedelta(days=9)

        @step(start=True, to=("check", "report"))
        def begin(self, run: Run[Parts]) -> StepReturn:
            return each(self.check, ["a", "b", "c"], key=str, limit=1, failures=failures, then=self.report)  # type: ignore[arg-type]

        @step(to="report", effects=(stage.pay,))
        def check(self, run: Run[Parts]) -> None:
            run.effect(stage.pay, amount=1)
            stage.run(f"check {run.item}")
            run.give_result(run.item)

        @step(join=True, end=True)
        def report(self, run: Run[Parts]) -> None:
            stage.run("report")
            run.state.left = [str(one.value) for one in run.results(self.check) if one.succeeded]

    return Items


def test_the_next_item_gets_its_turn_after_an_end_that_came_while_the_last_one_was_paid(world: World):
    stage = Stage()
    run = api.start(items_workflow(stage), {})
    end_during_send(world, stage)
    world.run_through()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED

    extend(run)
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["left"] == ["a", "b", "c"]
    assert len(stage.provider.sends) == 3


def to_both(flow: Any) -> StepReturn:
    return flow.both


def done(flow: Any) -> StepReturn:
    return succeed()


def two_ways(stage: Stage) -> type[Workflow[Parts]]:
    """`left` and `right` side by side, each goes to `shared` if `stage.ways` says nothing else."""

    class TwoWays(Workflow[Parts]):
        name, deadline = "two_ways", timedelta(days=9)

        @step(start=True, to=("left", "right", "late"))
        def begin(self, run: Run[Parts]) -> StepReturn:
            if "late" in stage.flags:
                return self.left, wait_for("go", then=self.late)
            return self.left, self.right

        @step(to=("shared", "both"), end=True, effects=(stage.pay,))
        def left(self, run: Run[Parts]) -> StepReturn:
            stage.pay_if("left pays", run)
            stage.run("left")
            return self.shared if "left" not in stage.ways else stage.ways["left"](self)

        @step(to=("shared", "both"), end=True, effects=(stage.pay,))
        def right(self, run: Run[Parts]) -> StepReturn:
            stage.pay_if("right pays", run)
            stage.run("right")
            return self.shared if "right" not in stage.ways else stage.ways["right"](self)

        @step(end=True)
        def late(self, run: Run[Parts]) -> None:
            stage.run("late")

        @step(end=True, effects=(stage.pay,))
        def shared(self, run: Run[Parts]) -> None:
            run.effect(stage.pay, amount=3)
            stage.run("shared")

        @step(join=True, end=True, effects=(stage.pay,))
        def both(self, run: Run[Parts]) -> None:
            stage.pay_if("both pays", run)
            stage.run("both")

    return TwoWays


def test_a_failure_that_came_while_the_run_ended_is_not_forgotten_by_an_extension(world: World):
    stage = Stage(troubles={"left": Permanent("no")}, flags={"late", "left pays"})
    run = api.start(two_ways(stage), {})
    end_during_send(world, stage)
    world.run_through()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED

    extend(run)
    if fresh(run).ended_at is None:
        api.signal(run.pk, "go")
    world.run_through()

    assert state_of(run) is RunState.FAILED
    assert fresh(run).error_text == "no"


@pytest.mark.parametrize("alone", [True, False])
def test_a_result_that_came_while_the_run_ended_is_kept_for_an_extension(world: World, alone: bool):
    stage = Stage(ways={"left": lambda self: succeed("paid"), "right": done}, flags={"left pays"})
    if not alone:
        stage.flags.add("late")
    run = api.start(two_ways(stage), {})
    end_during_send(world, stage)
    world.run_through()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED

    extend(run)
    if not alone:
        api.signal(run.pk, "go")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).result == "paid"
    assert len(stage.provider.sends) == 1


def test_a_branch_that_fails_while_another_one_has_failed_is_tried_again_with_it(world: World):
    def say(call: object) -> None:
        stage.provider.before_call = None
        world.run_until_idle()

    stage = Stage(troubles={"left": Permanent("no"), "right": Permanent("nor this")}, flags={"left pays", "right pays"})
    stage.provider.before_call = say
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED
    assert stage.troubles == {}
    failed = StepRun.objects.filter(run=run, state=StepState.FAILED_PERMANENT)
    assert sorted(failed.values_list("name", flat=True)) == ["left", "right"]

    redrive(run, "left")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert sorted(stage.ran) == ["left", "left", "right", "right", "shared", "shared"]


def test_what_another_branch_has_come_to_is_not_taken_away_by_a_redrive(world: World):
    """Two visits of `shared`, one for each branch."""
    stage = Stage(troubles={"left": Permanent("no")}, flags={"left pays"})

    def first_the_other(call: object) -> None:
        stage.provider.before_call = None
        world.run_until_idle()

    stage.provider.before_call = first_the_other
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED
    assert stage.ran == ["right", "shared", "left"]

    redrive(run, "left")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert stage.ran == ["right", "shared", "left", "left", "shared"]
    assert SideEffect.objects.filter(run=run, step_name="shared").count() == 2


def test_what_is_done_again_beside_another_branch_keeps_to_its_own_visits(world: World):
    """`right` comes to the shared step before `left` does, whose visit of it was paid: each pays for itself, once."""
    stage = Stage(troubles={"right": Permanent("no")}, flags={"right pays"})

    def first_the_other(call: object) -> None:
        stage.provider.before_call = None
        world.run_until_idle()

    stage.provider.before_call = first_the_other
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED
    assert stage.ran == ["left", "shared", "right"]
    before = len(stage.provider.acts)

    redrive(run, "left")
    for name in ("two_ways.right", "two_ways.shared"):
        message = next(one for one in world.messages if one[0] == name)
        world.messages.remove(message)
        world.deliver(*message)
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert stage.ran[3:] == ["right", "shared", "left", "shared"]
    assert len(stage.provider.acts) == before + 1
    owners = StepRun.objects.filter(run=run, name="shared").order_by("visit").values_list("came_from__name", flat=True)
    assert list(owners) == ["left", "right"]


def test_a_join_that_another_branch_has_come_to_begins_again_when_the_redriven_one_ends_elsewhere(world: World):
    stage = Stage(troubles={"both": Permanent("no")}, ways={"left": to_both, "right": to_both})
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED
    stage.ways["left"] = done
    stage.ran.clear()

    redrive(run, "left")
    world.run_through()

    assert stage.ran == ["left", "both"]
    assert state_of(run) is RunState.SUCCEEDED


def test_a_join_that_nobody_else_has_come_to_does_not_begin_again_when_the_redriven_one_ends_elsewhere(world: World):
    stage = Stage(troubles={"both": Permanent("no")}, ways={"left": to_both, "right": done})
    run = api.start(two_ways(stage), {})
    world.run_through()
    stage.ways["left"] = done
    stage.ran.clear()

    redrive(run, "left")
    world.run_through()

    assert stage.ran == ["left"]
    assert state_of(run) is RunState.SUCCEEDED


def test_an_item_that_is_sent_back_and_fails_again_is_gathered_with_the_others(world: World):
    stage = Stage(troubles={"check b": Permanent("no"), "report": Permanent("not all")})
    run = api.start(items_workflow(stage, failures="collect"), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED
    stage.troubles["check b"] = Permanent("still not")
    stage.ran.clear()

    redrive(run, "check", item="b")
    world.run_through()

    assert stage.ran == ["check b", "report"]
    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["left"] == ["a", "c"]


def test_a_join_that_is_due_and_has_not_begun_waits_for_a_branch_that_is_sent_back(world: World):
    stage = Stage(ways={"left": to_both, "right": to_both})
    run = api.start(two_ways(stage), {})
    for _ in ("begin", "left", "right"):
        world.deliver(*world.messages.popleft())
    api.pause(run.pk, reason="wait")

    redrive(run, "left")
    assert StepRun.objects.get(run=run, name="both").state == StepState.WAITING
    world.run_through()

    assert stage.ran == ["left", "right", "left", "both"]
    assert state_of(run) is RunState.SUCCEEDED


def test_a_join_that_both_branches_come_to_again_pays_once_whoever_comes_first(world: World):
    stage = Stage(troubles={"both": Permanent("no")}, ways={"left": to_both, "right": to_both}, flags={"both pays"})
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.FAILED

    redrive(run, "begin")
    world.deliver(*world.messages.popleft())
    world.messages.rotate(1)  # the other branch comes first this time
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert stage.ran == ["left", "right", "both", "right", "left", "both"]
    assert len(stage.provider.acts) == 1


def test_a_join_that_waits_is_no_place_to_begin_from(world: World):
    stage = Stage(troubles={"both": Permanent("no")}, ways={"left": to_both, "right": to_both})
    run = api.start(two_ways(stage), {})
    world.run_through()
    redrive(run, "left")
    api.pause(run.pk, reason="wait")

    with pytest.raises(TooLate, match="comes to it by itself"):
        redrive(run, "both")
    api.resume(run.pk, reason="go")
    world.run_through()

    assert stage.ran == ["left", "right", "both", "left", "both"]
    assert state_of(run) is RunState.SUCCEEDED


def test_an_item_that_is_sent_back_waits_for_its_turn(world: World):
    stage = Stage()
    run = api.start(items_workflow(stage), {})
    for _ in ("begin", "check a"):
        world.deliver(*world.messages.popleft())
    api.pause(run.pk, reason="wait")

    redrive(run, "check", item="a")
    states = StepRun.objects.filter(run=run, name="check").order_by("item_key").values_list("item_key", "state")
    assert list(states) == [("a", StepState.WAITING), ("b", StepState.READY), ("c", StepState.WAITING)]
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert stage.ran == ["check a", "check b", "check a", "check c", "report"]
    assert len(stage.provider.acts) == 3


def test_of_a_failure_and_a_success_that_came_while_the_run_ended_the_failure_counts(world: World):
    stage = Stage(
        troubles={"right": Permanent("no")},
        ways={"left": lambda flow: succeed("paid")},
        flags={"left pays", "right pays"},
    )

    def during_left(call: object) -> None:
        end_during_send(world, stage)  # while right sends
        world.run_until_idle()

    stage.provider.before_call = during_left
    run = api.start(two_ways(stage), {})
    world.run_through()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED
    assert stage.ran == ["right", "left"]

    extend(run)
    assert (state_of(run), fresh(run).error_text) == (RunState.FAILED, "no")
    redrive(run, "left")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).result == "paid"
    assert len(stage.provider.acts) == 3  # left, right, and the shared step of right


def test_a_signal_is_free_again_when_a_redrive_goes_back_before_the_step_that_used_it(world: World):
    stage = Stage(troubles={"left": Permanent("no")})

    class OneSignal(Workflow[Parts]):
        name, deadline = "one_signal", timedelta(days=9)

        @step(start=True, to=("left", "right"))
        def begin(self, run: Run[Parts]) -> StepReturn:
            return wait_for("go", then=self.right if "right" in stage.flags else self.left)

        @step(end=True)
        def left(self, run: Run[Parts]) -> None:
            stage.run("left")

        @step(end=True)
        def right(self, run: Run[Parts]) -> None:
            stage.run(f"right {run.signal.payload if run.signal else None}")

    run = api.start(OneSignal, {})
    api.signal(run.pk, "go", 7)
    world.run_through()
    assert state_of(run) is RunState.FAILED
    stage.flags.add("right")

    redrive(run, "begin")
    world.run_until_idle()

    assert stage.ran == ["left", "right 7"]
    assert state_of(run) is RunState.SUCCEEDED


def test_nothing_is_repeated_while_a_request_for_it_may_still_arrive(world: World):
    """Confirmed by a second send: the first one's request has never been answered."""
    depot = Depot(handing=[lost_address()])
    depot.carrier.faults = [raise_without_acting(UnknownOutcome("cut"))]
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    while state_of(run) is RunState.NEEDS_RECONCILIATION:
        world.clock.advance(seconds=5)
        world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    with pytest.raises(TooLate, match="may still arrive"):
        redrive(run, "pay", repeat=("post.pay",))
    world.clock.advance(seconds=60)
    redrive(run, "pay", repeat=("post.pay",))
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 2


def test_a_run_is_not_sent_to_a_step_that_it_will_come_to_again_anyhow(world: World):
    """Sent back before it, and paused: as a second walk beside the first one it would be done under two keys."""
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    redrive(run, "pack")
    api.pause(run.pk, reason="wait")

    with pytest.raises(InvalidState, match="'pay'"):
        redrive(run, "pay")
    api.resume(run.pk, reason="go")
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 1
