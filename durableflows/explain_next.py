"""What comes next in a run and when, and which verbs are accepted now. Pure, from its rows."""

from datetime import datetime

from durableflows import explain_standing
from durableflows.core.states import (
    EFFECT_OPEN,
    ENDS_BY_LIMIT,
    RUN_CLEANED_UP,
    RUN_COMPENSABLE,
    EffectState,
    EndingPhase,
    ParkedReason,
    RunState,
    StepState,
)
from durableflows.core.undo import undo_of
from durableflows.explain_rows import Rows
from durableflows.explain_words import plain
from durableflows.models import SideEffect, StepRun, WorkflowRun

LEFT = (EffectState.CONFIRMED, EffectState.UNDO_FAILED)
RESOLVABLE = (EffectState.UNKNOWN, EffectState.ACCEPTED)


def what_comes(run: WorkflowRun, rows: Rows) -> tuple[str, datetime | None]:
    """What happens next by itself, and when; no time: a person must do something."""
    if run.ended_at is not None:
        return _next_after_end(run, rows)
    moving = [step for step in rows.steps if not run.parked_reason or _goes_on_parked(step)]
    # What waits for a signal, a child or other branches has no time of its own: the deadline is the limit.
    things = [_next_of(step, rows) for step in moving if not step.waits_on or step.wake_at is not None]
    if not run.ending_reason:
        things.append((run.deadline_at, "the deadline ends the run"))
    else:
        things += [(row.settles_at, _SETTLES.format(plain(row))) for row in rows.effects if _is_flying(row, rows)]
        things += [(run.cleanup_until, "its clean-up is given up")] if run.is_cleaning_up else []
        things += [(run.cleanup_until, "undoing is given up")] if run.is_undoing else []
    timed = [(at, text) for at, text in things if at is not None]
    untimed = [text for at, text in things if at is None]
    if untimed:
        return untimed[0], None
    if run.parked_reason and not moving:
        return "a person lets it go on; else the deadline ends the run", run.deadline_at
    return _first(timed) if timed else ("the run ends", rows.now)


def _next_after_end(run: WorkflowRun, rows: Rows) -> tuple[str, datetime | None]:
    """Lookups go on after the end: of what was found absent, and of what an abandoned run left open."""
    things = [(row.audit_at, f"{plain(row)} is looked up once more") for row in rows.effects if row.audit_at]
    left = [row for row in rows.effects if row.state in EFFECT_OPEN]
    things += [(row.next_lookup_at, f"the provider is asked about {plain(row)}") for row in left if row.next_lookup_at]
    if not things and left:
        return f"{plain(run.heir_name) or 'a person'} finds out what happened with {explain_standing.names(left)}", None
    return _first(things) if things else ("", None)


def _goes_on_parked(step: StepRun) -> bool:
    """Does something of the step go on in a parked run? Its timers, signals' times and children's ends wait."""
    return step.state in _GOES_ON_PARKED and not step.waits_on


_GOES_ON_PARKED = (StepState.RUNNING, StepState.NEEDS_RECONCILIATION, StepState.WAITING, StepState.WAITING_HUMAN)
_SETTLES = "after that no request of {} can arrive any more"


def _first(timed: list[tuple[datetime, str]]) -> tuple[str, datetime]:
    at, text = min(timed)
    return text, at


def _is_flying(row: SideEffect, rows: Rows) -> bool:
    return row.settles_at is not None and row.settles_at > rows.now


def _next_of(step: StepRun, rows: Rows) -> tuple[datetime | None, str]:
    """When a step's next thing is due. No time: only a person moves it."""
    if step.needs_person:
        return None, f"a person decides: {plain(step.waits_for)}"
    if step.state == StepState.RUNNING:
        return step.must_end_by, f"the worker must end {plain(step)} by then"
    if step.state == StepState.WAITING_HUMAN:
        request = next((request for request in rows.requests if request.step_id == step.pk), None)
        return (request.expires_at, explain_standing.after_expiry(request)) if request else (None, "")
    if step.state == StepState.RETRY_SCHEDULED:
        return step.wake_at, f"{plain(step)} is tried again"
    if step.state == StepState.READY:
        if step.held_by and step.wake_at is not None and step.wake_at > rows.now:
            return step.wake_at, f"{plain(step)} looks again, or goes on earlier when {plain(step.held_by)} takes it"
        if step.wake_at is not None and step.wake_at > rows.now:
            return step.wake_at, f"{plain(step)} goes on"
        return step.resend_at, f"{plain(step)} is sent again if no worker has taken it"
    if step.waits_on:
        return step.wake_at, explain_standing.after_wait(step)
    lookups = [row.next_lookup_at for row in rows.effects if row.step_id == step.pk and row.next_lookup_at]
    return step.wake_at, f"{plain(step)}: the provider is asked" if lookups else f"{plain(step)} is looked at again"


def safe_verbs(run: WorkflowRun, rows: Rows) -> tuple[str, ...]:
    """Verbs that are accepted now and can do no harm to what is under way."""
    goes_on = run.ended_at is None and not run.ending_reason
    is_paused = run.parked_reason == ParkedReason.PAUSED
    retries = (bool(run.parked_reason) and not is_paused) or any(
        step.state == StepState.RETRY_SCHEDULED for step in rows.steps
    )
    answers = any(rows.now < request.expires_at for request in rows.requests) and rows.now < run.deadline_at
    verbs = {
        "answer": goes_on and answers,
        "cancel": run.ended_at is None and run.cancel_asked_at is None,
        "compensate": _may_compensate(run, rows),
        "pause": goes_on and not run.parked_reason,
        "resume": goes_on and is_paused,
        "retry": goes_on and retries and not is_paused,
        "extend": run.ending_reason in ENDS_BY_LIMIT and run.state != RunState.ABANDONED and _may_reopen(run),
        "redrive": _may_redrive(run, rows),
        "resolve": any(_is_resolvable(row, rows) for row in rows.effects),
    }
    return tuple(verb for verb, is_safe in verbs.items() if is_safe)


def _may_redrive(run: WorkflowRun, rows: Rows) -> bool:
    """A clean-up that failed may be done again, also after a cancel."""
    if run.cleanup_error and run.state in RUN_CLEANED_UP:
        return True
    return run.state == RunState.FAILED and _may_reopen(run) and rows.now < run.deadline_at


def _may_compensate(run: WorkflowRun, rows: Rows) -> bool:
    """Is there something that can be undone, and is it not undone already, or about to be?"""
    undoable = undo_of(run.manifest).effects
    left = [row for row in rows.effects if row.undoes_id is None and not row.step.of_cleanup]
    left = [row for row in left if row.state in LEFT and row.effect in undoable]
    if not left:
        return False
    if run.ended_at is not None:
        return run.state in RUN_COMPENSABLE
    return run.ending_phase == EndingPhase.SETTLING and not undo_of(run.manifest).starts(run.ending_reason)


def _may_reopen(run: WorkflowRun) -> bool:
    """A cancel is final, and so is the end of a child: the run that started it is told within seconds."""
    return run.cancel_asked_at is None and (run.ended_at is None or run.parent_id is None)


def _is_resolvable(row: SideEffect, rows: Rows) -> bool:
    if row.state in RESOLVABLE or row.state == EffectState.UNDO_FAILED:
        return True
    asks = any(step.pk == row.step_id and step.needs_person for step in rows.steps)
    return row.state == EffectState.ABSENT and not row.verdict and asks
