"""How a run comes to its end: what is under way is settled, its clean-up runs, and then every step is closed.

Called by `progress` and by the verbs, with the run locked; `progress.conclude` stores the run. What comes next is
decided in `core.ending`. Source: P6, P15; protocol, rule 10.
"""

from datetime import datetime

from durableflows import (
    alerts,
    arrivals,
    dispatch,
    journal,
    ledger_facts,
    ledger_undo,
    model_calls,
    questions,
    undo_children,
    undoing,
)
from durableflows.boundaries import Boundary, cross
from durableflows.core import standing
from durableflows.core.ending import AT_WORK, Cleanup, Ending, Next, cleanup_of, next_of
from durableflows.core.payload import JSON
from durableflows.core.plan import END_OF
from durableflows.core.states import ENDS_BY_LIMIT, EndingPhase, EndingReason, RunState, StepState, WaitsOn
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.models.locks import lock_steps
from durableflows.transactions import database

CLOSED_FIELDS = (
    *("state", "stood", "ended_at", "wake_at", "resend_at", "waits_on", "waits_for"),
    *("lease_worker", "lease_token", "lease_task_id", "must_end_by"),
)


def begin(run: WorkflowRun, reason: EndingReason, detail: str, now: datetime, *, actor_name: str = "") -> None:
    """Let the run end as soon as its effects are settled, and ask nobody any more. The first reason stays.

    But a cancel overtakes a limit: nobody may extend the run any more, so it ends as cancelled, and cleans up (P6). And
    who wants undone what it did overtakes all others, as long as nothing has been cleaned up.
    """
    overtakes = _overtakes(run, reason)
    if run.ending_reason and not overtakes:
        return
    run.ending_reason = str(reason)
    run.parked_reason, run.parked_detail = "", ""
    if overtakes or not run.error_text:
        run.error_class, run.error_code, run.error_text = "", str(reason), detail
    journal.record(run, "run.ending", at=now, actor_name=actor_name, data={"reason": str(reason), "detail": detail})
    questions.close_all(run, f"the run is ending: {detail or reason}", now)


def _overtakes(run: WorkflowRun, reason: EndingReason) -> bool:
    if reason is EndingReason.COMPENSATE:
        return run.ending_reason != reason and run.ending_phase == EndingPhase.SETTLING
    return reason is EndingReason.CANCEL and run.ending_reason in ENDS_BY_LIMIT


def move_on(run: WorkflowRun, now: datetime) -> bool:
    """Bring a run that is ending to its clean-up or its end, if it may go there now. In memory, but for its steps.

    False: something is still open, and the run's row is as it was
    """
    steps = lock_steps(run)
    is_open = ledger_facts.with_open_effects(steps)
    if run.ending_phase not in AT_WORK:
        _reconcile_ready([step for step in steps if step.pk in is_open], now)
    cleanup = cleanup_of(run.manifest, run.ending_reason)
    undoes = undoing.starts(run)
    ending = Ending(
        reason=run.ending_reason,
        phase=EndingPhase(run.ending_phase),
        has_cleanup=cleanup is not None,
        undoes=undoes,
        has_to_undo=undoes and ledger_undo.next_to_undo(run) is not None,
        has_children=undoes and undo_children.waits(run),
        has_open_effects=bool(is_open),
        has_open_sends=ledger_facts.has_open_sends(run, now),
        has_open_steps=bool(steps),
    )
    following = next_of(ending)
    if following is Next.WAIT:
        return False
    for step in steps:
        close_step(run, step, now)
    if following is Next.UNDO:
        _undo(run, now)
    elif following is Next.CLEAN_UP and cleanup is not None:
        _clean_up(run, cleanup, now)
    else:
        finish(run, END_OF[run.ending_reason], now)
    return True


def _reconcile_ready(in_doubt: list[StepRun], now: datetime) -> None:
    """A READY step in doubt would be refused by every claim for ever: somebody must look at its effect."""
    for step in in_doubt:
        if step.state in (StepState.READY, StepState.RETRY_SCHEDULED):
            step.reconcile()
            step.wake_at, step.waits_for = now, "an effect is in doubt while the run ends"
            step.store("state", "wake_at", "waits_for")


def _undo(run: WorkflowRun, now: datetime) -> None:
    """Begin the next undo: the first in the commit that found nothing of the main path open, and closed all of it."""
    undoing.begin_next(run, now)
    if run.state != RunState.COMPENSATING:
        run.move("compensate")
    cross(Boundary.UNDO_BEFORE_COMMIT)


def _clean_up(run: WorkflowRun, cleanup: Cleanup, now: datetime) -> None:
    """Begin the clean-up: in the commit that found nothing of the main path open, and closed all its steps."""
    run.parked_reason, run.parked_detail = "", ""
    put_in_cleanup(run, cleanup, now)
    facts: dict[str, JSON] = {"step": cleanup.step, "until": str(run.cleanup_until and run.cleanup_until.isoformat())}
    journal.record(run, "run.cleanup_began", at=now, data=facts)
    arrivals.arrive_to_clean_up(run, cleanup.step, now)
    cross(Boundary.CLEANUP_BEFORE_COMMIT)


def put_in_cleanup(run: WorkflowRun, cleanup: Cleanup, now: datetime) -> None:
    """From now on the steps of the clean-up may be tried, and no others. In memory."""
    run.ending_phase = EndingPhase.CLEANUP
    run.cleanup_at, run.cleanup_until, run.cleanup_error = now, now + cleanup.within, ""


def fail_cleanup(run: WorkflowRun, why: str, now: datetime) -> None:
    """Give the clean-up up: nothing more of it begins, and the run ends as it was going to, with an alert (P10).

    In memory; the caller concludes the run. What of it is in doubt is settled first, as everywhere.
    """
    if not run.is_cleaning_up:
        return
    run.ending_phase = EndingPhase.CLOSING
    run.cleanup_error = why
    alert_of_cleanup(run, now)
    journal.record(run, "run.cleanup_failed", at=now, data={"error": why})


def alert_of_cleanup(run: WorkflowRun, now: datetime) -> None:
    """Say on the run that its clean-up was not done, beside what is said there already. In memory."""
    text = f"its clean-up was not done: {run.cleanup_error}"
    if run.cleanup_error:
        alerts.add(run, text, now)


def close_step(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Take the lease and close the step: whoever works on it can write nothing more. It keeps where it stood."""
    if step.state == StepState.RUNNING:
        tries = StepAttempt.objects.using(database()).filter(step=step, ended_at__isnull=True)
        tries.update(ended_at=now, outcome="cancelled")
        model_calls.lose(run, step, now)
    step.stood = place(step)
    if step.waits_on == WaitsOn.CHILD:
        dispatch.send_crossing_after_commit(step.pk)  # its child is cancelled in a transaction of its own
    step.cancel()
    step.lease_worker, step.lease_token, step.lease_task_id, step.must_end_by = None, None, "", None
    step.ended_at, step.wake_at, step.resend_at, step.waits_on, step.waits_for = now, None, None, "", ""
    step.store(*CLOSED_FIELDS)
    journal.record(run, "step.cancelled", at=now, step=step, data={"step": step.name})
    if step.is_undo:
        undoing.after_end(run, step, "it was closed before it was done", now)


def place(step: StepRun) -> dict[str, JSON]:
    """Where a step stands, for whoever lets its run go on after an end."""
    return standing.place(StepState(step.state), step.waits_on, step.waits_for, step.wake_at)


def finish(run: WorkflowRun, verb: str, now: datetime) -> None:
    """End the run, and close every question it still asks, in the same commit."""
    verb, undone = undoing.end(run, verb, now)
    run.move(verb)
    run.ended_at, run.parked_reason, run.parked_detail = now, "", ""
    questions.close_all(run, f"the run ended: {run.word}", now)
    journal.record(run, "run.ended", at=now, data={"state": str(run.state), "error": run.error_text, **undone})
    if run.parent_step_id is not None:
        dispatch.send_crossing_after_commit(run.parent_step_id)
