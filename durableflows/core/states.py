"""States and legal moves of runs, steps, effects and approvals, as data.

The models' fsm transitions, the state pages in the docs and the tests all read these tables. A move is
verb -> (sources, target). Nothing else says what may follow what.
Source: specification S2.1, S3.22; design, sections 2 and 3.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class RunState(StrEnum):
    """Where a run stands. It follows from the run's steps and flags (`core.plan.run_state`)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING_HUMAN = "WAITING_HUMAN"
    WAITING = "WAITING"
    NEEDS_RECONCILIATION = "NEEDS_RECONCILIATION"
    PARKED = "PARKED"
    ENDING = "ENDING"
    COMPENSATING = "COMPENSATING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    EXHAUSTED_BUDGET = "EXHAUSTED_BUDGET"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    ABANDONED = "ABANDONED"


class StepState(StrEnum):
    """Where a step of a run stands (S3.22, with WAITING and CANCELLED)."""

    READY = "READY"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    WAITING_HUMAN = "WAITING_HUMAN"
    WAITING = "WAITING"
    NEEDS_RECONCILIATION = "NEEDS_RECONCILIATION"
    FAILED_PERMANENT = "FAILED_PERMANENT"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class EffectState(StrEnum):
    """What is known of one logical operation at a provider. A fold over all its sends."""

    PLANNED = "PLANNED"
    DISPATCHED = "DISPATCHED"
    ACCEPTED = "ACCEPTED"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"
    ABSENT = "ABSENT"
    UNDOING = "UNDOING"
    UNDONE = "UNDONE"
    UNDO_FAILED = "UNDO_FAILED"
    REVERSED = "REVERSED"


class ApprovalState(StrEnum):
    """Where a request for a person's decision stands."""

    OPEN = "OPEN"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    CLOSED = "CLOSED"


class WaitsOn(StrEnum):
    """What a step in WAITING is waiting for. EFFECT: a provider that has accepted something and is not done."""

    EFFECT = ""
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    BRANCHES = "branches"
    TURN = "turn"


class ParkedReason(StrEnum):
    """Why a parked run does not go on by itself."""

    PAUSED = "paused"
    INCOMPATIBLE = "incompatible release"
    INTEGRITY = "integrity"
    OUR_CODE = "error in our code"
    NEEDS_PERSON = "needs a person"


class EndingReason(StrEnum):
    """Why a run is ending while effects of it are still being settled."""

    CANCEL = "cancel"
    DEADLINE = "deadline"
    BUDGET = "budget"
    FAILURE = "failure"
    COMPENSATE = "compensate"


class EndingPhase(StrEnum):
    """How far a run that is ending has come. SETTLING is also the value of a run that is not ending.

    UNDONE: its undo was given up, and what of it is in doubt is settled
    """

    SETTLING = ""
    UNDOING = "undo"
    UNDONE = "undone"
    CLEANUP = "clean-up"
    CLOSING = "closing"


UNDO_PHASES = frozenset({EndingPhase.UNDOING, EndingPhase.UNDONE})

RUN_ENDED = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.COMPENSATED,
        RunState.COMPENSATION_FAILED,
        RunState.EXHAUSTED_BUDGET,
        RunState.DEADLINE_EXCEEDED,
        RunState.ABANDONED,
    }
)
RUN_LIVE = frozenset(RunState) - RUN_ENDED
# A sweep leaves parked runs alone: a person or a deploy makes them go on.
RUN_MOVING = RUN_LIVE - {RunState.PARKED}

# Whoever gives the run more of them lets it go on: these ends wait for a person, and clean up nothing.
ENDS_BY_LIMIT = frozenset({EndingReason.BUDGET, EndingReason.DEADLINE})

# What an operator may let go on: the other ends are final.
RUN_REOPENABLE = frozenset({RunState.FAILED, RunState.EXHAUSTED_BUDGET, RunState.DEADLINE_EXCEEDED})
# What a person may let undo what it did, or what is left of that.
RUN_COMPENSABLE = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.COMPENSATED,
        RunState.COMPENSATION_FAILED,
        RunState.EXHAUSTED_BUDGET,
        RunState.DEADLINE_EXCEEDED,
    }
)
# Ends that a clean-up leads to: one that failed may be done again, and leads to the same end.
RUN_CLEANED_UP = frozenset({RunState.FAILED, RunState.CANCELLED})

STEP_ENDED = frozenset(
    {
        StepState.SUCCEEDED,
        StepState.FAILED_PERMANENT,
        StepState.COMPENSATED,
        StepState.FAILED,
        StepState.CANCELLED,
    }
)
STEP_OPEN = frozenset(StepState) - STEP_ENDED

# P15: nothing ends while one of its effects is in one of these.
EFFECT_OPEN = frozenset({EffectState.DISPATCHED, EffectState.UNKNOWN, EffectState.ACCEPTED, EffectState.UNDOING})
# The same, less what is being undone: whether that may end is said by its undo, a row of its own.
EFFECT_PENDING = EFFECT_OPEN - {EffectState.UNDOING}
EFFECT_IN_DOUBT = frozenset({EffectState.DISPATCHED, EffectState.UNKNOWN})
# What happened, and a person may choose to do once more.
EFFECT_REPEATABLE = frozenset({EffectState.CONFIRMED, EffectState.UNDONE, EffectState.REVERSED})

State = TypeVar("State", RunState, StepState, EffectState, ApprovalState)
Moves = Mapping[str, tuple[frozenset[State], State]]

RUN_MOVES: Moves[RunState] = {
    "begin": (RUN_LIVE - {RunState.RUNNING}, RunState.RUNNING),
    "rest": (RUN_LIVE - {RunState.PENDING}, RunState.PENDING),
    "wait_human": (RUN_LIVE - {RunState.WAITING_HUMAN}, RunState.WAITING_HUMAN),
    "wait": (RUN_LIVE - {RunState.WAITING}, RunState.WAITING),
    "reconcile": (RUN_LIVE - {RunState.NEEDS_RECONCILIATION}, RunState.NEEDS_RECONCILIATION),
    "park": (RUN_LIVE - {RunState.PARKED}, RunState.PARKED),
    "close_down": (RUN_LIVE - {RunState.ENDING}, RunState.ENDING),
    "compensate": ((RUN_LIVE - {RunState.COMPENSATING}) | RUN_COMPENSABLE, RunState.COMPENSATING),
    "succeed": (RUN_LIVE, RunState.SUCCEEDED),
    "fail": (RUN_LIVE, RunState.FAILED),
    "cancel": (RUN_LIVE, RunState.CANCELLED),
    "finish_compensation": (RUN_LIVE, RunState.COMPENSATED),
    "fail_compensation": (RUN_LIVE, RunState.COMPENSATION_FAILED),
    "exhaust_budget": (RUN_LIVE, RunState.EXHAUSTED_BUDGET),
    "exceed_deadline": (RUN_LIVE, RunState.DEADLINE_EXCEEDED),
    "abandon": (RUN_LIVE, RunState.ABANDONED),
    "reopen": (RUN_REOPENABLE, RunState.RUNNING),
    "clean_up_again": (RUN_CLEANED_UP, RunState.ENDING),
}

STEP_MOVES: Moves[StepState] = {
    "claim": (frozenset({StepState.READY}), StepState.RUNNING),
    "succeed": (frozenset({StepState.RUNNING, StepState.WAITING_HUMAN, StepState.WAITING}), StepState.SUCCEEDED),
    "schedule_retry": (
        frozenset({StepState.RUNNING, StepState.NEEDS_RECONCILIATION, StepState.WAITING}),
        StepState.RETRY_SCHEDULED,
    ),
    "make_ready": (
        frozenset(
            {
                StepState.RUNNING,
                StepState.RETRY_SCHEDULED,
                StepState.NEEDS_RECONCILIATION,
                StepState.WAITING,
                StepState.WAITING_HUMAN,
                StepState.FAILED_PERMANENT,
            }
        ),
        StepState.READY,
    ),
    "wait_human": (frozenset({StepState.RUNNING}), StepState.WAITING_HUMAN),
    "wait": (frozenset({StepState.RUNNING, StepState.NEEDS_RECONCILIATION}), StepState.WAITING),
    "reconcile": (
        frozenset({StepState.RUNNING, StepState.READY, StepState.RETRY_SCHEDULED, StepState.WAITING}),
        StepState.NEEDS_RECONCILIATION,
    ),
    "fail": (STEP_OPEN - {StepState.COMPENSATING}, StepState.FAILED_PERMANENT),
    "compensate": (frozenset({StepState.SUCCEEDED, StepState.FAILED}), StepState.COMPENSATING),
    "finish_compensation": (frozenset({StepState.COMPENSATING}), StepState.COMPENSATED),
    "fail_compensation": (frozenset({StepState.COMPENSATING}), StepState.FAILED),
    "cancel": (STEP_OPEN, StepState.CANCELLED),
    "reopen": (
        frozenset({StepState.SUCCEEDED, StepState.FAILED_PERMANENT, StepState.CANCELLED}),
        StepState.READY,
    ),
    "wait_again": (
        frozenset({StepState.SUCCEEDED, StepState.FAILED_PERMANENT, StepState.CANCELLED}),
        StepState.WAITING,
    ),
}

EFFECT_MOVES: Moves[EffectState] = {
    "dispatch": (frozenset({EffectState.PLANNED, EffectState.UNKNOWN}), EffectState.DISPATCHED),
    "give_back": (frozenset({EffectState.DISPATCHED}), EffectState.PLANNED),
    "accept": (frozenset({EffectState.DISPATCHED, EffectState.UNKNOWN}), EffectState.ACCEPTED),
    "confirm": (
        frozenset(
            {
                EffectState.PLANNED,
                EffectState.DISPATCHED,
                EffectState.UNKNOWN,
                EffectState.ACCEPTED,
                EffectState.ABSENT,
                EffectState.REJECTED,
            }
        ),
        EffectState.CONFIRMED,
    ),
    "reject": (
        frozenset({EffectState.DISPATCHED, EffectState.UNKNOWN, EffectState.ACCEPTED}),
        EffectState.REJECTED,
    ),
    "doubt": (frozenset({EffectState.DISPATCHED, EffectState.ACCEPTED}), EffectState.UNKNOWN),
    "find_absent": (frozenset({EffectState.UNKNOWN}), EffectState.ABSENT),
    "undo": (frozenset({EffectState.CONFIRMED}), EffectState.UNDOING),
    "finish_undo": (
        frozenset({EffectState.CONFIRMED, EffectState.UNDOING, EffectState.UNDO_FAILED}),
        EffectState.UNDONE,
    ),
    "fail_undo": (frozenset({EffectState.UNDOING, EffectState.UNDONE}), EffectState.UNDO_FAILED),
    "undo_again": (frozenset({EffectState.UNDO_FAILED}), EffectState.CONFIRMED),
    "reverse": (frozenset({EffectState.CONFIRMED, EffectState.ACCEPTED}), EffectState.REVERSED),
}

APPROVAL_MOVES: Moves[ApprovalState] = {
    "approve": (frozenset({ApprovalState.OPEN}), ApprovalState.APPROVED),
    "reject": (frozenset({ApprovalState.OPEN}), ApprovalState.REJECTED),
    "expire": (frozenset({ApprovalState.OPEN}), ApprovalState.EXPIRED),
    "close": (frozenset({ApprovalState.OPEN}), ApprovalState.CLOSED),
}

WORDS: Mapping[str, str] = {
    "PENDING": "starting",
    "RUNNING": "working",
    "WAITING_HUMAN": "waiting for a decision",
    "WAITING": "waiting",
    "NEEDS_RECONCILIATION": "checking what happened",
    "PARKED": "needs attention",
    "ENDING": "ending",
    "COMPENSATING": "undoing",
    "SUCCEEDED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "COMPENSATED": "undone",
    "COMPENSATION_FAILED": "undoing failed",
    "EXHAUSTED_BUDGET": "stopped at its budget",
    "DEADLINE_EXCEEDED": "stopped at its deadline",
    "ABANDONED": "abandoned",
}
"""One word or phrase a manager understands for each run state."""
