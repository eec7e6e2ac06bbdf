"""Undoing what a run did because a person wants it: of a run that goes on, and of one that has ended. One verb."""

from typing import Any
from uuid import UUID

from durableflows import clock, endings, journal, ledger_undo, progress, undo_children, undoing
from durableflows.boundaries import Boundary, cross
from durableflows.core.payload import JSON
from durableflows.core.states import RUN_COMPENSABLE, EndingPhase, EndingReason, RunState
from durableflows.errors import TooLate
from durableflows.models import WorkflowRun
from durableflows.models.locks import lock_run
from durableflows.services.operations import Order, order
from durableflows.transactions import database, transact


def compensate(run_id: UUID | str, *, by: Any, reason: str) -> WorkflowRun:
    """Undo what a run did, newest first, and end it; of one whose undo failed, what is left.

    Raises           NotFoundError, NotAllowed, InvalidState without a reason; TooLate for a run that was abandoned, is
                     in its clean-up, or has ended with nothing that can be undone. A second time changes nothing
    Writes / Locks   WorkflowRun, StepRun, SideEffect, RunEvent; locks run, steps, effects
    Crash            after the commit nothing of the main path is sent; a sweep begins the undo once the run is quiet
    """
    undone = _compensate(order(run_id, "compensate", by=by, reason=reason))
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return undone


@transact
def _compensate(given: Order) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    check_compensate(run)
    if is_undone(run):
        return run
    data: dict[str, JSON] = {"reason": given.reason}
    journal.record(run, "run.compensate_asked", at=now, actor_name=given.name, data=data)
    if run.ended_at is not None:
        undoing.begin_again(run)
        ledger_undo.try_again(run, given.name, given.reason, now)
    endings.begin(run, EndingReason.COMPENSATE, given.reason, now, actor_name=given.name)
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def is_undone(run: WorkflowRun) -> bool:
    """Is it undone, or about to be, whoever wanted that?"""
    if run.ended_at is not None:  # what came to light since, or did not last, may be undone still
        return bool(run.state == RunState.COMPENSATED and not undoing.names_left(run))
    return run.ending_reason == EndingReason.COMPENSATE or run.ending_phase in (
        EndingPhase.UNDOING,
        EndingPhase.UNDONE,
    )


def check_compensate(run: WorkflowRun) -> None:
    """Raise TooLate for a run that cannot be undone now; one that is undone, or about to be, passes."""
    if is_undone(run):
        return
    if run.ended_at is None:
        if run.ending_phase != EndingPhase.SETTLING:
            raise TooLate("the run is in its clean-up: compensate it when it has ended")
        return
    if run.state not in RUN_COMPENSABLE:
        raise TooLate(f"the run is {run.word}: nothing of it is undone any more")
    failed_before = run.state == RunState.COMPENSATION_FAILED
    if not (failed_before or undoing.names_left(run) or undo_children.waits(run)):
        raise TooLate(f"the run is {run.word}, and nothing that it did can be undone")
    parent = None if run.parent_id is None else WorkflowRun.objects.using(database()).get(pk=run.parent_id)
    if parent is not None and parent.ended_at is None:
        raise TooLate(f"the run that started this one, {parent.pk}, goes on with what it came to: compensate that one")
