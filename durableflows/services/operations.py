"""What operators do with a run as a whole: pause it, and let it go on. One function, one verb, one transaction.

Also what all of their verbs share: who may, on which record. The other verbs stand in modules of their own.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durableflows import clock, journal, progress, reopening
from durableflows.boundaries import Boundary, cross
from durableflows.core import free_text
from durableflows.core.states import EFFECT_OPEN, ParkedReason, StepState
from durableflows.errors import NotAllowed, TooLate
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_run
from durableflows.rights import as_stored
from durableflows.selectors import OPERATE, may_operate, run_for
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class Order:
    """A verb on one run, with the name and the reason that stay on the record. The right was checked."""

    run_id: UUID
    name: str
    reason: str

    @property
    def who(self) -> str:
        """Who gave it, in a sentence."""
        return self.name or "the system"


def order(run_id: UUID | str, verb: str, *, by: Any, reason: str) -> Order:
    """Check who asks and why, before any lock; the reason is masked. Raises NotFoundError, NotAllowed, InvalidState."""
    why, by = free_text.kept_reason(reason, verb), as_stored(by)
    run = run_for(run_id, by)
    check_right(run, verb, by)
    return Order(run.pk, "" if by is None else str(by.get_username())[:150], why)


def check_right(run: WorkflowRun, verb: str, by: Any) -> None:
    """Raise NotAllowed for who may not operate runs in this run's tenant. Runs project code: never under a lock."""
    if not may_operate(run, by):
        raise NotAllowed(f"{by} may not {verb} this run: the permission {OPERATE} is needed, in its tenant")


def pause(run_id: UUID | str, *, by: Any, reason: str) -> WorkflowRun:
    """Let a run stand still until `resume`. What is under way ends and is recorded; nothing more begins.

    Raises           NotFoundError, NotAllowed, InvalidState; TooLate when it has ended, is ending, or is parked for
                     another reason. A second pause changes nothing
    Writes / Locks   WorkflowRun, RunEvent; locks the run
    Crash            after the commit nothing of the run is claimed, reserved or sent again
    """
    paused = _pause(order(run_id, "pause", by=by, reason=reason))
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return paused


@transact
def _pause(given: Order) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    check_pause(run)
    if run.parked_reason:
        return run
    run.parked_reason, run.parked_detail = str(ParkedReason.PAUSED), f"by {given.who}: {given.reason}"
    journal.record(run, "run.paused", at=now, actor_name=given.name, data={"reason": given.reason})
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def check_pause(run: WorkflowRun) -> None:
    """Raise TooLate for a run that does not go on anyhow; one that is paused passes."""
    check_goes_on(run)
    if run.parked_reason and run.parked_reason != ParkedReason.PAUSED:
        raise TooLate(f"the run is parked already ({run.parked_reason}): it does not go on by itself")


def check_goes_on(run: WorkflowRun) -> None:
    """Raise TooLate for a run that has ended or is ending."""
    if run.ended_at is not None or run.ending_reason:
        raise TooLate(f"the run is {run.word}: it does not go on")


def check_stands_still(run: WorkflowRun) -> None:
    """Raise TooLate for a run that is ending, or goes on by itself; one that has ended or is parked passes."""
    if run.ended_at is None and run.ending_reason:
        raise TooLate("the run is ending: wait until it has ended")
    if run.ended_at is None and not run.parked_reason:
        raise TooLate(f"the run is {run.word}: it goes on by itself; pause it first")


def check_settled(run: WorkflowRun, before: str) -> None:
    """Raise TooLate while something of the run is under way or in doubt. `before`: what must wait for it, in words."""
    rows = SideEffect.objects.using(database()).filter(run=run, state__in=[str(state) for state in EFFECT_OPEN])
    if (row := rows.order_by("id").first()) is not None:
        raise TooLate(f"{row} is {row.state}: it must be settled before {before}")
    running = StepRun.objects.using(database()).filter(run=run, state=StepState.RUNNING).first()
    if running is not None:
        raise TooLate(f"a worker is at {running}: wait until it has ended")


def resume(run_id: UUID | str, *, by: Any, reason: str) -> WorkflowRun:
    """Let a paused run go on where it stands: due timers and what was decided meanwhile take effect at once.

    Raises   NotFoundError, NotAllowed, InvalidState; TooLate when it has ended, is ending, or is parked for another
             reason, which is for `retry`. A run that goes on already is left alone
    Crash    after the commit the sweep sends what nobody has
    """
    resumed = _resume(order(run_id, "resume", by=by, reason=reason))
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return resumed


@transact
def _resume(given: Order) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    check_resume(run)
    if not run.parked_reason:
        return run
    reopening.unpark(run)
    journal.record(run, "run.resumed", at=now, actor_name=given.name, data={"reason": given.reason})
    reopening.go_on(run, now)
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def check_resume(run: WorkflowRun) -> None:
    """Raise TooLate unless the run is paused, or goes on already."""
    check_goes_on(run)
    if run.parked_reason and run.parked_reason != ParkedReason.PAUSED:
        raise TooLate(f"the run is not paused but parked ({run.parked_reason}): cure that, then retry it")
