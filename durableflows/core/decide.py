"""The engine's whole mind: (snapshot, outcome, now, rng) -> Decision.

Pure: no clock, no database, no exception classes of users. `progress.apply` carries decisions out; the runner,
the sweeps and the doors of people all come through one of the functions here.
Source: design, sections 4 and 5; specification S3.6 to S3.9, S3.22, S3.32 to S3.34.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from durableflows.core.backoff import delay_seconds
from durableflows.core.definition import StepDefinition
from durableflows.core.directives import Compensate, Fail, Goto, Succeed
from durableflows.core.outcomes import (
    Asked,
    Conflict,
    Done,
    ErrorInfo,
    Failed,
    FailureKind,
    Halted,
    Held,
    InDoubt,
    Outcome,
    Question,
    Refused,
    Waits,
)
from durableflows.core.payload import JSON
from durableflows.core.reconcile import Move, Next
from durableflows.core.states import EndingReason, ParkedReason
from durableflows.core.ways import Way

LOST_WORKERS_CAP = 3
TOLERATED: JSON = {"tolerated": True}
"""Output of an item's step that failed for good and let its run go on."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A step as of the lock: its declaration, its counters, and whether an effect of this visit is open.

    is_tolerated   it belongs to an item whose failure the others survive
    """

    step: StepDefinition
    attempts: int
    lost_workers: int
    tries_since: datetime
    is_in_doubt: bool
    is_accepted: bool
    is_tolerated: bool = False

    def may_try_again(self, at: datetime) -> bool:
        """Is another attempt inside the declared number and time?"""
        retry = self.step.retry
        inside = retry.within is None or at <= self.tries_since + retry.within
        return self.attempts < retry.attempts and inside

    def may_send_again(self, at: datetime) -> bool:
        """May an effect in doubt be settled by another send? Not by a step that kills its workers (R05)."""
        return self.lost_workers < LOST_WORKERS_CAP and self.may_try_again(at)


@dataclass(frozen=True, slots=True)
class Park:
    """Stop the run until a person or a deploy makes it go on."""

    reason: ParkedReason
    detail: str


@dataclass(frozen=True, slots=True)
class End:
    """End the run by this move of RUN_MOVES, or, while effects are open, as soon as they are settled."""

    verb: str
    reason: EndingReason | None = None
    result: JSON = None
    error: ErrorInfo | None = None


_PAST = {
    "succeed": "succeeded",
    "schedule_retry": "retry_scheduled",
    "make_ready": "ready",
    "wait_human": "asked",
    "wait": "waiting",
    "reconcile": "in_doubt",
    "fail": "failed",
    "cancel": "cancelled",
}
"""Move of a step -> what history calls it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a step and its run. `verb` is a move of STEP_MOVES; None leaves the step as it is.

    outcome      a word for the attempt's row; wake_at: when the step is due again; forgives: the attempt is not counted
    held         the provider that the step waits for: the attempt is not charged to the run's budget either
    next_steps   names of steps to arrive at; ways: those that wait first; brings: what the next steps are given;
                 data: the new checkpoint, or None for the old one
    """

    verb: str | None
    outcome: str = ""
    wake_at: datetime | None = None
    delay_seconds: float | None = None
    reason: str = ""
    needs_person: bool = False
    forgives: bool = False
    lost_worker: bool = False
    error: ErrorInfo | None = None
    data: dict[str, JSON] | None = None
    output: JSON = None
    next_steps: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()
    brings: dict[str, JSON] = field(default_factory=dict)
    question: Question | None = None
    held: Held | None = None
    park: Park | None = None
    end: End | None = None
    facts: dict[str, JSON] = field(default_factory=dict)

    @property
    def past(self) -> str:
        """What history calls it."""
        if self.lost_worker:
            return "worker_lost"
        if self.held is not None:
            return HELD
        return _PAST[self.verb] if self.verb is not None else "looked_at"


def after_step(snapshot: Snapshot, outcome: Outcome, now: datetime, rng: Random) -> Decision:
    """Decide what an attempt's outcome leads to."""
    if isinstance(outcome, Halted):
        return _halted(snapshot)
    if isinstance(outcome, Held):
        return _held(outcome)
    if isinstance(outcome, InDoubt) or snapshot.is_in_doubt:
        return _in_doubt(snapshot, outcome, now, rng)
    if isinstance(outcome, Waits) or snapshot.is_accepted:
        reason = outcome.reason if isinstance(outcome, Waits) else "the provider has not finished"
        return Decision("wait", outcome="waits", wake_at=now, reason=reason, forgives=True)
    if isinstance(outcome, Conflict):
        return _conflict(snapshot, outcome)
    if isinstance(outcome, Done):
        return _done(snapshot, outcome)
    if isinstance(outcome, Asked):
        return _asked(snapshot.step, outcome.question)
    if isinstance(outcome, Refused):
        return _refused(snapshot.step, outcome)
    return _failed(snapshot, outcome, now, rng)


def _asked(step: StepDefinition, question: Question) -> Decision:
    if not question.unneeded:
        return Decision("wait_human", outcome="asked", question=question, reason=question.title)
    passed = after_answer(step, "approve", "")
    reason = f"nobody needs to be asked, {question.unneeded}: {question.title}"
    return replace(passed, outcome="nobody is asked", question=question, reason=reason)


def _halted(snapshot: Snapshot) -> Decision:
    # A cancelled step in doubt must be reconciled: nobody may claim it any more (protocol, rule 10).
    if snapshot.is_in_doubt:
        return Decision("reconcile", outcome="halted", reason="the run was stopped while an effect was in doubt")
    return Decision("make_ready", outcome="halted", forgives=True, reason="the run was stopped")


HELD = "held"
"""What an attempt's row says that was ended before a send, because the provider takes none now."""


def _held(outcome: Held) -> Decision:
    """Wait without an attempt. READY also with an effect in doubt: each claim looks whether its key still holds."""
    return Decision(
        "make_ready", outcome=HELD, wake_at=outcome.until, reason=outcome.reason, forgives=True, held=outcome
    )


def _in_doubt(snapshot: Snapshot, outcome: Outcome, now: datetime, rng: Random) -> Decision:
    error = getattr(outcome, "error", None)
    asked = getattr(outcome, "retry_after_seconds", None)
    delay = delay_seconds(snapshot.attempts, snapshot.step.retry, rng, retry_after_seconds=asked)
    return Decision(
        "reconcile",
        outcome="in doubt",
        wake_at=now + timedelta(seconds=delay),
        delay_seconds=delay,
        error=error,
        reason="the answer of the provider was lost",
    )


def _conflict(snapshot: Snapshot, outcome: Conflict) -> Decision:
    """Run the body again on fresh state; its effects return their receipts. Bounded by the step's tries."""
    fields = ", ".join(outcome.fields)
    reason = f"another step changed the same fields of the state meanwhile: {fields}"
    if snapshot.attempts < snapshot.step.retry.attempts:
        return Decision("make_ready", outcome="state conflict", reason=reason)
    error = ErrorInfo("", "state_conflict", reason)
    return _parked(ParkedReason.NEEDS_PERSON, f"{snapshot.step.name}: {reason}", "state conflict", error)


def _done(snapshot: Snapshot, outcome: Done) -> Decision:
    directive = outcome.directive
    if isinstance(directive, Goto):
        return Decision(
            "succeed",
            outcome="done",
            data=outcome.data,
            output=outcome.output,
            next_steps=directive.steps,
            ways=directive.ways,
        )
    if isinstance(directive, Succeed):
        return Decision(
            "succeed",
            outcome="done",
            data=outcome.data,
            output=outcome.output if directive.result is None else directive.result,
            end=End("succeed", result=directive.result),
        )
    if isinstance(directive, Compensate):
        why = ErrorInfo("", "compensate", directive.reason)
        end = End("finish_compensation", EndingReason.COMPENSATE, error=why)
        return Decision("succeed", outcome="done", data=outcome.data, output=outcome.output, end=end)
    assert isinstance(directive, Fail)
    error = ErrorInfo("", "failed", directive.reason)
    if snapshot.is_tolerated:
        return replace(_tolerated(error, directive.reason), data=outcome.data)
    return Decision("succeed", outcome="done", data=outcome.data, end=End("fail", EndingReason.FAILURE, error=error))


def _refused(step: StepDefinition, outcome: Refused) -> Decision:
    error = ErrorInfo("", "refused", outcome.reason)
    if step.on_refused is None:
        return _parked(ParkedReason.NEEDS_PERSON, f"{step.name}: {outcome.reason}", "refused", error)
    return Decision("fail", outcome="refused", error=error, next_steps=(step.on_refused,), reason=outcome.reason)


def _failed(snapshot: Snapshot, failed: Failed, now: datetime, rng: Random) -> Decision:
    step, error = snapshot.step, failed.error
    if failed.kind in (FailureKind.NEVER_SENT, FailureKind.TRANSIENT):
        return _try_again(snapshot, failed, now, rng)
    if failed.kind is FailureKind.PERMANENT:
        return _given_up(snapshot, error, f"{step.name} failed for good: {error.text}")
    if failed.kind is FailureKind.NEEDS_HUMAN:
        return _parked(ParkedReason.NEEDS_PERSON, f"{step.name}: {error.text}", str(failed.kind), error)
    if failed.kind is FailureKind.LIMIT:
        end = End("exhaust_budget", EndingReason.BUDGET, error=error)
        return Decision("cancel", outcome=str(failed.kind), error=error, end=end, reason=error.text)
    if failed.kind is FailureKind.INTEGRITY:
        return _parked(ParkedReason.INTEGRITY, f"{step.name}: {error.text}", str(failed.kind), error)
    return _parked(ParkedReason.OUR_CODE, f"{step.name}: {error.error_class}: {error.text}", str(failed.kind), error)


def _try_again(snapshot: Snapshot, failed: Failed, now: datetime, rng: Random) -> Decision:
    step, error = snapshot.step, failed.error
    delay = delay_seconds(snapshot.attempts, step.retry, rng, retry_after_seconds=failed.retry_after_seconds)
    at = now + timedelta(seconds=delay)
    if snapshot.may_try_again(at):
        return Decision(
            "schedule_retry",
            outcome=str(failed.kind),
            wake_at=at,
            delay_seconds=delay,
            error=error,
            reason=f"{failed.kind}: {error.text}",
        )
    if step.on_failure is not None or snapshot.is_tolerated:
        return _given_up(snapshot, error, error.text)
    detail = f"{step.name} did not work in {snapshot.attempts} attempts; the last error was: {error.text}"
    return _parked(ParkedReason.NEEDS_PERSON, detail, str(failed.kind), error)


def _given_up(snapshot: Snapshot, error: ErrorInfo, reason: str) -> Decision:
    following = snapshot.step.on_failure
    if following is not None:
        return Decision("fail", outcome="failed", error=error, next_steps=(following,), reason=reason)
    if snapshot.is_tolerated:
        return _tolerated(error, reason)
    return Decision(
        "fail", outcome="failed", error=error, reason=reason, end=End("fail", EndingReason.FAILURE, error=error)
    )


def _tolerated(error: ErrorInfo, reason: str) -> Decision:
    """Let an item fail alone: the join that gathers the others is told by `run.results`."""
    return Decision("fail", outcome="failed", error=error, reason=reason, output=TOLERATED)


def _parked(reason: ParkedReason, detail: str, outcome: str, error: ErrorInfo) -> Decision:
    return Decision("make_ready", outcome=outcome, error=error, park=Park(reason, detail), reason=detail)


def after_loss(snapshot: Snapshot, why: str) -> Decision:
    """Decide what happens to a step whose worker is gone (or hung). The start is not held against the step's retries.

    Source: protocol, rule 6; R05.
    """
    lost = snapshot.lost_workers + 1
    if snapshot.is_in_doubt:
        return Decision("reconcile", outcome="lost", reason=why, lost_worker=True, forgives=True)
    if snapshot.is_accepted:
        return Decision("wait", outcome="lost", reason=why, lost_worker=True, forgives=True)
    if lost >= LOST_WORKERS_CAP:
        detail = f"{snapshot.step.name} killed its worker {lost} times"
        return Decision(
            "make_ready",
            outcome="lost",
            reason=why,
            lost_worker=True,
            forgives=True,
            park=Park(ParkedReason.NEEDS_PERSON, detail),
        )
    return Decision("make_ready", outcome="lost", reason=why, lost_worker=True, forgives=True)


def after_overrun(snapshot: Snapshot, now: datetime, rng: Random) -> Decision:
    """Decide what happens to a step whose process was ended at its hard time limit: the try has failed, and counts.

    It has cost a worker too: the same number of times at most. Source: R07.
    """
    text = f"{snapshot.step.name} did not end within its hard time limit, and its process was ended"
    if snapshot.is_in_doubt or snapshot.is_accepted or snapshot.lost_workers + 1 >= LOST_WORKERS_CAP:
        return after_loss(snapshot, text)
    failed = Failed(FailureKind.TRANSIENT, ErrorInfo("TimeoutError", "", text))
    return replace(_try_again(snapshot, failed, now, rng), lost_worker=True)


def after_answer(step: StepDefinition, verdict: str, actor_name: str) -> Decision:
    """Decide where an approval leads: verdict is approve, reject or expire."""
    spec = step.approval
    assert spec is not None
    leads_to = {"approve": spec.approved, "expire": spec.fallback}
    target = leads_to.get(verdict) or spec.rejected
    output: JSON = {"verdict": verdict, "by": actor_name}
    return Decision("succeed", output=output, next_steps=(target,), reason=f"{verdict} {actor_name}".strip())


def after_timeout(signal: str, on_timeout: str) -> Decision:
    """Decide where a run goes when a signal did not come in time."""
    return Decision("cancel", reason=f"the signal {signal} did not come in time", next_steps=(on_timeout,))


def after_failed_child(error: ErrorInfo, on_failure: str | None, brings: dict[str, JSON]) -> Decision:
    """Decide where a run goes whose child did not succeed; without a declared way it fails too."""
    if on_failure is not None:
        return Decision("fail", error=error, reason=error.text, next_steps=(on_failure,), brings=brings)
    return Decision("fail", error=error, reason=error.text, end=End("fail", EndingReason.FAILURE, error=error))


def after_look(move: Move) -> Decision:
    """Decide what an unsettled step does, given its most urgent effect. `verb` None: it stays as it is."""
    if move.next in (Next.SETTLED, Next.RESEND):
        return Decision("make_ready", reason=move.reason, wake_at=move.at)
    return Decision(None, reason=move.reason, wake_at=move.at, needs_person=move.next is Next.PERSON)


def unparked(decision: Decision) -> Decision:
    """What becomes of an undo that nobody goes on with: it has failed, and the next one begins."""
    if decision.park is None:
        return decision
    error = decision.error or ErrorInfo("", "undo_failed", decision.park.detail)
    end = End("fail", EndingReason.FAILURE, error=error)
    return replace(decision, verb="fail", wake_at=None, park=None, error=error, end=end)
