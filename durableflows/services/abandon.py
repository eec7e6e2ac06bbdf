"""Giving a run up while effects of it are open: it ends, and a named person inherits what is not settled (P15)."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durableflows import alerts, clock, dispatch, endings, journal, ledger_answers, progress
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core.payload import JSON
from durableflows.core.reconcile import Next, next_for
from durableflows.core.states import EFFECT_PENDING, RunState
from durableflows.errors import InvalidState, TooLate
from durableflows.models import SideEffect, WorkflowRun
from durableflows.models.locks import lock_effect, lock_run, lock_steps, try_lock_run
from durableflows.releases import may_judge
from durableflows.selectors import OPERATE, may_operate, run_for
from durableflows.services.operations import Order, order
from durableflows.services.reconcile import facts_of
from durableflows.transactions import database, transact


def abandon(run_id: UUID | str, *, by: Any, reason: str, heir: Any) -> WorkflowRun:
    """End a run at once, whatever of it is open. Leases are taken; open effects stay open, and are the heir's.

    Raises           NotFoundError; NotAllowed for who may not operate the run; InvalidState without an heir who may;
                     TooLate when it has ended
    Writes / Locks   WorkflowRun, StepRun, SideEffect, ApprovalRequest, RunEvent; locks run, steps, effects
    Crash            after the commit nothing more of it is sent; what is open is looked up, and can be resolved
    """
    given = order(run_id, "abandon", by=by, reason=reason)
    check_heir(run_for(run_id, by), heir)
    abandoned = _abandon(given, heir)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return abandoned


def check_heir(run: WorkflowRun, heir: Any) -> None:
    """Raise InvalidState for nobody, and for somebody who could not settle what is left. Runs code of the project."""
    if getattr(heir, "pk", None) is None:
        raise InvalidState("abandon: name the person who settles what is left, heir=...")
    if not heir.is_active or not may_operate(run, heir):
        raise InvalidState(f"abandon: {heir} could not settle what is left: {OPERATE} is needed, in the run's tenant")


@transact
def _abandon(given: Order, heir: Any) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    check_abandon(run)
    run.heir, run.heir_name = heir, str(heir.get_username())[:150]
    run.store("heir", "heir_name")
    for step in lock_steps(run):
        ledger_answers.doubt_dispatched(step, now, "the run was abandoned while it was under way")
        endings.close_step(run, step, now)
    left = _leave_open(run, now)
    run.error_code, run.error_text = "abandoned", given.reason
    data: dict[str, JSON] = {"reason": given.reason, "heir": run.heir_name, "open": [*left]}
    journal.record(run, "run.abandoned", at=now, actor_name=given.name, data=data)
    endings.finish(run, "abandon", now)
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def check_abandon(run: WorkflowRun) -> None:
    """Raise TooLate for a run that has ended."""
    if run.ended_at is not None:
        raise TooLate(f"the run has already finished: {run.word}, {run.ended_at:%Y-%m-%d %H:%M}")


def _leave_open(run: WorkflowRun, now: datetime) -> list[str]:
    """Let lookups go on for what is open: their step is closed, so the effect's own row says when it is due."""
    names = []
    rows = SideEffect.objects.using(database()).filter(run=run, state__in=_OPEN).order_by("id")
    for pk in list(rows.values_list("pk", flat=True)):
        row = lock_effect(pk)
        row.next_lookup_at = max(now, row.settles_at or now)
        row.store("next_lookup_at")
        names.append(str(row))
    return names


_OPEN = [str(state) for state in sorted(EFFECT_PENDING)]


def inherited(now: datetime) -> Any:
    """The open effects of abandoned runs that are due to be looked at."""
    rows = SideEffect.objects.using(database()).filter(run__state=RunState.ABANDONED, state__in=_OPEN)
    return rows.filter(next_lookup_at__lte=now).order_by("next_lookup_at")


def look_at(effect_id: UUID) -> bool:
    """Ask the provider about an inherited effect, or tell the heir that nobody can be asked."""
    is_due = _look_at(effect_id)
    return dispatch.send_lookup(effect_id) if is_due else False


@transact
def _look_at(effect_id: UUID) -> bool:
    run_id = SideEffect.objects.using(database()).filter(pk=effect_id).values_list("run_id", flat=True).first()
    run = try_lock_run(run_id) if run_id else None
    if run is None or run.state != RunState.ABANDONED:
        return False
    row, now = lock_effect(effect_id), clock.now()
    if row.state not in _OPEN or row.next_lookup_at is None or row.next_lookup_at > now or not may_judge(run, now):
        return False
    move = next_for(facts_of(run, row), now, is_halted=True, has_tries=False, not_before=now)
    if move.next is Next.PERSON:
        _tell_heir(run, row, move.reason, now)
        return False
    # The question is a message, and may be lost: it is asked again later, not at every sweep.
    later = now + timedelta(seconds=settings().RESEND_SECONDS)
    row.next_lookup_at = later if move.next is Next.LOOK_UP else max(move.at, later)
    row.store("next_lookup_at")
    return move.next is Next.LOOK_UP


def _tell_heir(run: WorkflowRun, row: SideEffect, why: str, now: datetime) -> None:
    row.next_lookup_at = None
    row.store("next_lookup_at")
    text = f"{why}: {run.heir_name} has inherited it"
    alerts.add(run, text, now)
    data: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "text": text}
    journal.record(run, "effect.alert", at=now, step=row.step, data=data)
    run.store("alert", "alert_at", *journal.FIELDS)
