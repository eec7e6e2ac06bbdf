"""Where a run stands, computed from its steps and flags; and whether it has a next thing. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    EndingReason.COMPENSATE: "finish_compensation",
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
    RunState.COMPENSATING: "compensate",
}
"""A state that follows from steps and flags -> the move that leads there."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What beside its steps decides where a run stands."""

    parked_reason: str
    ending_reason: str
    was_claimed: bool
    is_undoing: bool = False


def run_state(steps: Collection[StepState], flags: Flags) -> RunState | None:
    """Say where a run that has not ended stands. None: no step is open, so it must end."""
    if flags.ending_reason:
        return RunState.COMPENSATING if flags.is_undoing else RunState.ENDING
    if flags.parked_reason:
        return RunState.PARKED
    if all(state in STEP_ENDED for state in steps):
        return None
    if not flags.was_claimed:
        return RunState.PENDING
    present = set(steps)
    return next(run for step, run in _BY_STEP if step in present)


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit of a step as a redrive sees it. `joined`: the joins that its end has led to.

    is_waiting   it is a join that waits for branches, or did so when the run's end closed it
    """

    id: UUID
    name: str
    is_join: bool
    is_waiting: bool
    created_at: datetime
    started_at: datetime | None
    came_from: UUID | None
    joined: Collection[UUID]
    gather: UUID | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """The visits that a redrive goes back before; `waiting`: those of them that wait again, for others have come."""

    visits: frozenset[UUID]
    waiting: frozenset[UUID]


def back_to(target: Visit, others: Sequence[Visit], reaches: Mapping[str, Collection[str]]) -> Back:
    """Say what came after a visit. `others`: the run's other visits that count, oldest first.

    A step came after the one that led to it. A join that has begun came after each that it had to wait for; one that
    still waits is gone back before only when nobody else has come to it.
    """
    found, origins = {target.id}, _origins(target, others)
    while new := {v.id for v in others if v.id not in found and _follows(v, target, found, origins, reaches)}:
        found |= new
    comers = {j.id: {v.id for v in (target, *others) if j.id in v.joined} for j in others if j.is_join}
    found |= {j.id for j in others if j.is_waiting and comers[j.id] and comers[j.id] <= found}
    again: dict[str, UUID] = {}
    for join in others:
        if join.is_join and join.id in found and comers[join.id] - found:
            again.setdefault(join.name, join.id)
    return Back(frozenset(found - {target.id}), frozenset(again.values()))


def _origins(target: Visit, others: Sequence[Visit]) -> set[UUID]:
    """The visits that led to this one, back to the first."""
    rows, found, at = {v.id: v for v in others}, set[UUID](), target.came_from
    while at is not None and at in rows and at not in found:
        found.add(at)
        at = rows[at].came_from
    return found


def _follows(
    visit: Visit,
    target: Visit,
    found: Collection[UUID],
    origins: Collection[UUID],
    reaches: Mapping[str, Collection[str]],
) -> bool:
    comes_later = visit.name in reaches.get(target.name, ()) and visit.created_at > target.created_at
    if not visit.is_join:  # without an origin: a row of before origins were kept
        return visit.came_from in found or (visit.came_from is None and comes_later)
    was_before = visit.started_at is not None and visit.started_at < target.created_at
    if visit.is_waiting or was_before or visit.id in origins:
        return False
    return visit.id == target.gather or visit.name in reaches.get(target.name, ())


@dataclass(frozen=True, slots=True)
class Origin:
    """Of a visit: which one led to it, the joins that it has come to, and whether a redrive went back before it."""

    came_from: UUID | None
    joined: Collection[UUID]
    is_join: bool
    is_rewound: bool
    is_open: bool


def may_take_up(visit: UUID, by: UUID, rows: Mapping[UUID, Origin]) -> bool:
    """May a visit that a redrive went back before be taken up again by another step than the one that had led to it?

    Yes where the run goes another way than before: nothing is done twice then. Not where it belongs to a branch beside
    that one, which may come to it yet, or has chosen otherwise this time.
    """
    seen, at, has_gathered = {visit}, rows[visit].came_from, False
    while at is not None and at in rows and rows[at].is_rewound and at not in seen:
        has_gathered = has_gathered or rows[at].is_join
        seen.add(at)
        at = rows[at].came_from
    if at is None or at not in rows or at in seen:
        return True
    return not rows[at].is_open and (has_gathered or at in _leading_to(by, rows))


def _leading_to(visit: UUID, rows: Mapping[UUID, Origin]) -> set[UUID]:
    """A visit, and all that have led to it; to a join each that has come."""
    found: set[UUID] = set()
    ahead = [visit]
    while ahead:
        at = ahead.pop()
        if at in rows and at not in found:
            found.add(at)
            came_from = rows[at].came_from
            ahead += [] if came_from is None else [came_from]
            ahead += [one for one, row in rows.items() if at in row.joined]
    return found


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
