"""Ends that nobody asks for: by a limit, by a clean-up that takes too long, and of a run that has become quiet.

One run, one transaction, looked at again under its lock; False: it is not so any more, or somebody holds the run.
Called by the sweeps, which pick the runs.
"""

from uuid import UUID

from durableflows import claims, clock, endings, progress
from durableflows.core.states import EndingReason, StepState
from durableflows.models import StepRun
from durableflows.models.locks import try_lock_run
from durableflows.transactions import database, transact


@transact
def end_overdue(run_id: UUID) -> bool:
    """Let a run past its deadline begin to end."""
    run = try_lock_run(run_id)
    now = clock.now()
    if run is None or run.ended_at is not None or run.ending_reason or run.deadline_at > now:
        return False
    endings.begin(run, EndingReason.DEADLINE, f"the deadline {run.deadline_at:%Y-%m-%d %H:%M} has passed", now)
    progress.conclude(run, now)
    return True


@transact
def end_idle(run_id: UUID) -> bool:
    """Let a run begin to end in which nothing has happened for too long, and no worker is at it."""
    run = try_lock_run(run_id)
    now = clock.now()
    if run is None or run.ended_at is not None or run.ending_reason or run.idle_at is None or run.idle_at > now:
        return False
    if StepRun.objects.using(database()).filter(run=run, state=StepState.RUNNING).exists():
        return False
    text = f"nothing has happened since {run.changed_at:%Y-%m-%d %H:%M}, longer than its budget allows"
    endings.begin(run, EndingReason.BUDGET, text, now)
    progress.conclude(run, now)
    return True


@transact
def end_late_cleanup(run_id: UUID) -> bool:
    """Give an undo or a clean-up up whose time is over."""
    run = try_lock_run(run_id)
    now = clock.now()
    if run is None or not run.has_own_time or not claims.end_cleanup_if_late(run, now):
        return False
    progress.conclude(run, now)
    return True


@transact
def confirm_end(run_id: UUID) -> bool:
    """Bring a run that is ending and has become quiet to its clean-up or its end (rule 10)."""
    run = try_lock_run(run_id)
    if run is None or run.ended_at is not None or not run.ending_reason:
        return False
    return progress.end_if_quiet(run, clock.now())
