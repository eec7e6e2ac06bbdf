"""A person says of what could not be undone that it is undone now, by hand. Called by `reconcile` with the locks held.

The engine sends nothing for it, and never will: from then on the effect is UNDONE, and `compensate` leaves it alone.
"""

from datetime import datetime

from durableflows import journal, ledger_undo
from durableflows.core.payload import JSON
from durableflows.core.states import EffectState, RunState
from durableflows.errors import TooLate
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.services import loud

VERDICT = ledger_undo.BY_HAND


def note(
    run_locked: WorkflowRun, step_locked: StepRun, row_locked: SideEffect, by: str, reason: str, now: datetime
) -> SideEffect:
    """Write that the effect was undone by hand.

    Raises   TooLate: nothing of it is left to be undone, its undo may still happen, or the run is still at it
    Writes   SideEffect, RunEvent, the run's alert
    """
    run, row = run_locked, row_locked
    _check(run, row)
    row.finish_undo()
    row.verdict, row.verdict_by, row.verdict_reason, row.verdict_at = VERDICT, by, reason, now
    row.store("state", "verdict", "verdict_by", "verdict_reason", "verdict_at")
    facts: dict[str, JSON] = {"effect": row.effect, "verdict": VERDICT, "reason": reason, "state": str(row.state)}
    journal.record(run, "effect.resolved", at=now, step=step_locked, actor_name=by, data=facts)
    loud.after_verdict(run, now)
    run.store("alert", "alert_at", *journal.FIELDS)
    return row


def _check(run: WorkflowRun, row: SideEffect) -> None:
    if run.ended_at is None:
        raise TooLate(f"the run is {run.word}: what it cannot undo is known when it has ended")
    is_left = row in ledger_undo.tally(run).left and run.state == RunState.COMPENSATION_FAILED
    if row.state != EffectState.UNDO_FAILED and not is_left:
        raise TooLate(f"{row.effect} is {row.state}: only of what could not be undone can be said that it is by hand")
    if ledger_undo.has_open_undo(row):
        raise TooLate(f"an undo of {row.effect} may still happen: settle that one first, else it is given back twice")
