"""Where a run stands, computed from its steps and flags; and whether it has a next thing. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from durableflows.core.states import STEP_ENDED, EndingReason, RunState, StepState

# The first state found decides: what needs attention is shown before what goes on by itself.
_BY_STEP: tuple[tuple[StepState, RunState], ...] = (
    (StepState.NEEDS_RECONCILIATION, RunState.NEEDS_RECONCILIATION),
    (StepState.RUNNING, RunState.RUNNING),
    (StepState.READY, RunState.RUNNING),
    (StepState.RETRY_SCHEDULED, RunState.RUNNING),
    (StepState.WAITING_HUMAN, RunState.WAITING_HUMAN),
    (StepState.WAITING, RunState.WAITING),
)

END_OF: dict[str, str] = {
    EndingReason.CANCEL: "cancel",
    EndingReason.DEADLINE: "exceed_deadline",
    EndingReason.BUDGET: "exhaust_budget",
    EndingReason.FAILURE: "fail",
}
"""Why a run is ending -> the move that ends it."""

VERB_OF: dict[RunState, str] = {
    RunState.PENDING: "rest",
    RunState.RUNNING: "begin",
    RunState.WAITING_HUMAN: "wait_human",
    RunState.WAITING: "wait",
    RunState.NEEDS_RECONCILIATION: "reconcile",
    RunState.PARKED: "park",
    RunState.ENDING: "close_down",
}
"""A state that follows from steps and flags -> the move that leads there."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What beside its steps decides where a run stands."""

    parked_reason: str
    ending_reason: str
    was_claimed: bool


def run_state(steps: Collection[StepState], flags: Flags) -> RunState | None:
    """Say where a run that has not ended stands. None: no step is open, so it must end."""
    if flags.ending_reason:
        return RunState.ENDING
    if flags.parked_reason:
        return RunState.PARKED
    if all(state in STEP_ENDED for state in steps):
        return None
    if not flags.was_claimed:
        return RunState.PENDING
    present = set(steps)
    return next(run for step, run in _BY_STEP if step in present)


@dataclass(frozen=True, slots=True)
class OpenStep:
    """An open step as joins see it. `gather`: the join that its branch of an item belongs to."""

    id: UUID
    name: str
    is_join: bool
    gather: UUID | None = None


def joins_ready(steps: Sequence[OpenStep], reaches: Mapping[str, Collection[str]]) -> list[UUID]:
    """Say which waiting joins may begin: those that no other open step can still come to. `steps`: oldest first.

    Joins that wait for each other in a loop would wait for ever: when nothing else is open, the oldest begins.
    """
    joins = [step for step in steps if step.is_join]
    ready = [join.id for join in joins if not any(_may_come(step, join, reaches) for step in steps)]
    if not ready and joins and len(joins) == len(steps):
        return [joins[0].id]
    return ready


def _may_come(step: OpenStep, join: OpenStep, reaches: Mapping[str, Collection[str]]) -> bool:
    if step.id == join.id:
        return False
    return step.gather == join.id or join.name in reaches.get(step.name, ())
