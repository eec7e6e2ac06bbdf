"""Steps that run side by side change the state: different fields are both kept, the same field is worked out again."""

from datetime import timedelta
from random import Random
from typing import Annotated
from uuid import UUID

import pytest

from durableflows import Merge, Run, StepRef, Workflow, WorkflowState, api, claims, runner, step, succeed
from durableflows.core import registry
from durableflows.core.outcomes import Conflict
from durableflows.core.states import RunState
from durableflows.errors import StateConflict
from durableflows.leases import Claim
from durableflows.models import StepRun, WorkflowRun
from durableflows.testing import World, virtual

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


class Counts(WorkflowState):
    """Two counters."""

    left: int = 0
    right: int = 0


def both(*, same_field: bool) -> type[Workflow[Counts]]:
    """Two steps at once, each adding to a counter, and a third that waits to end the run."""

    class Both(Workflow[Counts]):
        """begin -> left, right."""

        name, version = "both", 1
        deadline = timedelta(days=1)

        @step(start=True, to=("left", "right"))
        def begin(self, run: Run[Counts]) -> tuple[StepRef, ...]:
            return self.left, self.right

        @step(end=True)
        def left(self, run: Run[Counts]):
            run.state.left += 1
            return succeed()

        @step(end=True)
        def right(self, run: Run[Counts]):
            if same_field:
                run.state.left += 1  # to the same value, if nobody looked
            else:
                run.state.right += 1
            return succeed()

    return Both


def claimed(run_id: UUID, name: str) -> tuple[Claim, StepRun]:
    found = StepRun.objects.get(run_id=run_id, name=name)
    claim = claims.claim(run_id, found.pk, task_id=name, pid=0)
    assert claim is not None
    return claim, found


@pytest.mark.parametrize("same_field", [False, True])
def test_both_changes_are_in_the_state_at_the_end(world: World, same_field: bool):
    run = api.start(both(same_field=same_field), {})
    runner.run_step(run.pk, StepRun.objects.get(run=run, name="begin").pk)
    definition = registry.get("both")
    (left, _), (right, right_step) = claimed(run.pk, "left"), claimed(run.pk, "right")
    done = [runner.perform(claim, definition, definition.step(claim.lease.step)) for claim in (left, right)]

    claims.settle(left.lease, done[0], rng=Random(0), base=left.data)
    if same_field:
        with pytest.raises(StateConflict):
            claims.settle(right.lease, done[1], rng=Random(0), base=right.data)
        claims.settle(right.lease, Conflict(("left",)), rng=Random(0))
        world.run_until_idle()
    else:
        claims.settle(right.lease, done[1], rng=Random(0), base=right.data)

    ended = WorkflowRun.objects.get(pk=run.pk)
    assert ended.state == RunState.SUCCEEDED
    assert ended.data == ({"left": 2, "right": 0} if same_field else {"left": 1, "right": 1})
    assert StepRun.objects.get(pk=right_step.pk).attempts == (2 if same_field else 1)


class Tally(WorkflowState):
    """What two branches add to."""

    count: Annotated[int, Merge.ADD] = 0
    notes: Annotated[list[str], Merge.APPEND] = []


def test_fields_that_say_how_they_are_merged_keep_both_changes_at_the_first_try(world: World):
    class Tallying(Workflow[Tally]):
        name, deadline = "tallying", timedelta(days=1)

        @step(start=True, to=("left", "right"))
        def begin(self, run: Run[Tally]) -> tuple[StepRef, ...]:
            return self.left, self.right

        @step(end=True)
        def left(self, run: Run[Tally]) -> None:
            run.state.count += 2
            run.state.notes = [*run.state.notes, "left"]

        @step(end=True)
        def right(self, run: Run[Tally]) -> None:
            run.state.count += 3
            run.state.notes = [*run.state.notes, "right"]

    run = api.start(Tallying, {})
    runner.run_step(run.pk, StepRun.objects.get(run=run, name="begin").pk)
    definition = registry.get("tallying")
    both_claims = [claimed(run.pk, name)[0] for name in ("left", "right")]
    done = [runner.perform(claim, definition, definition.step(claim.lease.step)) for claim in both_claims]

    for claim, outcome in zip(both_claims, done, strict=True):
        claims.settle(claim.lease, outcome, rng=Random(0), base=claim.data)

    ended = WorkflowRun.objects.get(pk=run.pk)
    assert (ended.state, ended.data) == (RunState.SUCCEEDED, {"count": 5, "notes": ["left", "right"]})


class Odd(WorkflowState):
    many: int | bool = 1
    by_name: dict[str, int | bool] = {"n": 0}


def test_a_number_that_becomes_a_truth_value_is_a_change_that_is_stored(world: World):
    class Counting(Workflow[Odd]):
        name, deadline = "counting", timedelta(days=1)

        @step(start=True, end=True)
        def only(self, run: Run[Odd]) -> None:
            run.state.many, run.state.by_name["n"] = True, False

    run = api.start(Counting, {})
    world.run_until_idle()

    data = WorkflowRun.objects.get(pk=run.pk).data
    assert (data["many"] is True, data["by_name"]["n"] is False) == (True, True)
