"""What a run did is undone: one effect after another, newest first, each in a step of its own.

The steps are the engine's (`core.undo`): they are claimed, sent, looked up and tried again as all others are, by the
process that knows the workflow. Called by `endings` and `progress`, with the run locked.
Source: P6, P15; docs/decisions/009.
"""

from datetime import datetime
from uuid import UUID

from durableflows import alerts, arrivals, dispatch, integrity, journal, ledger_undo, undo_children
from durableflows.boundaries import Boundary
from durableflows.core.payload import JSON
from durableflows.core.states import EffectState, EndingPhase, StepState
from durableflows.core.undo import UNDOES, undo_of
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_step
from durableflows.transactions import database

STEP_FIELDS = (
    *("state", "attempts_forgiven", "lost_workers", "tries_since", "wake_at", "needs_person", "stood", "ended_at"),
    *("sent_at", "sends", "send_error", "resend_at", "retry_reason", "waits_for"),
)


def starts(run: WorkflowRun) -> bool:
    """Is what the run did undone before it ends?"""
    return undo_of(run.manifest).starts(run.ending_reason)


def begin_next(run: WorkflowRun, now: datetime) -> None:
    """Begin to undo what was confirmed last, in a step of its own. The caller has seen that there is something.

    One step an effect: its visit is unique, so a second trigger finds it
    """
    if not run.is_undoing:
        _begin(run, now)
    row = ledger_undo.next_to_undo(run)
    assert row is not None
    ledger_undo.begin(row)
    _mark_step(row, now)
    step = _step(run, row, now)
    data: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "of": row.step_name, "key": row.key}
    journal.record(run, "effect.undo_began", at=now, step=step, data=data)
    dispatch.send_after_commit(run, step, Boundary.UNDO_BEFORE_SEND)


def _begin(run: WorkflowRun, now: datetime) -> None:
    run.parked_reason, run.parked_detail = "", ""
    run.ending_phase = EndingPhase.UNDOING
    run.cleanup_at, run.cleanup_until = now, now + undo_of(run.manifest).within
    found = ledger_undo.tally(run)
    data: dict[str, JSON] = {
        "undoes": [str(row) for row in reversed(found.left)],
        "not_reversible": [str(row) for row in found.not_reversible],
        "until": run.cleanup_until.isoformat(),
    }
    journal.record(run, "run.undo_began", at=now, data=data)


def _step(run: WorkflowRun, row: SideEffect, now: datetime) -> StepRun:
    name, item = undo_of(run.manifest).step_for(row.effect, row.step_name), str(row.pk)
    step = StepRun.objects.using(database()).filter(run=run, name=name, item_key=item).first()
    if step is not None:  # a person lets it be tried anew, under the same key
        step = lock_step(step.pk)
        step.reopen()
        step.attempts_forgiven, step.lost_workers, step.tries_since = step.attempts, 0, None
        step.stood = step.ended_at = step.wake_at = None
        step.needs_person, step.retry_reason, step.waits_for = False, "", ""
        arrivals.make_due(step, now)
        step.store(*STEP_FIELDS)
        return step
    step = StepRun(run=run, name=name, item_key=item, created_at=now, state=StepState.READY, of_cleanup=True)
    step.input, step.base_sequence = {UNDOES: item}, run.checkpoint_sequence
    integrity.seal_input(step)
    arrivals.make_due(step, now)
    insert(step, database())
    return step


def _mark_step(row: SideEffect, now: datetime) -> None:
    """The step that acted is being undone, from its first undo to its last."""
    acted = lock_step(row.step_id)
    if acted.state in (StepState.SUCCEEDED, StepState.FAILED):
        acted.compensate()
        acted.ended_at = None
        acted.store("state", "ended_at")


def after_end(run: WorkflowRun, step: StepRun, why: str, now: datetime) -> None:
    """An undo's step has ended: its effect is undone, or counts as failed, which is said aloud, and the next begins.

    why   what it failed of; '' when it did not
    """
    failed = ledger_undo.fail(UUID(str(step.input[UNDOES])), why) if why else None
    if failed is not None:
        text = f"{failed} of {failed.step_name} could not be undone: {why}"
        alerts.add(run, text, now)
        data: dict[str, JSON] = {"effect": failed.effect, "operation": failed.operation, "of": failed.step_name}
        journal.record(run, "effect.undo_failed", at=now, step=step, data={**data, "error": why})
    _close_steps(run, now)


def _close_steps(run: WorkflowRun, now: datetime) -> None:
    """Those that acted and have nothing left to be undone have been compensated, or could not be."""
    left = ledger_undo.tally(run).left
    under_way = {row.step_id for row in left if row.state != EffectState.UNDO_FAILED}
    failed = {row.step_id for row in left}
    for pk in _being_undone(run):
        if pk not in under_way:
            _close(lock_step(pk), "fail_compensation" if pk in failed else "finish_compensation", now)


def _being_undone(run: WorkflowRun) -> list[UUID]:
    rows = StepRun.objects.using(database()).filter(run=run, state=StepState.COMPENSATING)
    return list(rows.order_by("id").values_list("pk", flat=True))


def _close(step: StepRun, verb: str, now: datetime) -> None:
    step.move(verb)
    step.ended_at = now
    step.store("state", "ended_at")


def give_up(run: WorkflowRun, why: str, now: datetime) -> None:
    """Begin no more undos: what is in doubt is settled, and the run goes on to its clean-up and its end. In memory."""
    if not run.is_undoing:
        return
    run.ending_phase = EndingPhase.UNDONE
    alerts.add(run, f"undoing was given up: {why}", now)
    journal.record(run, "run.undo_given_up", at=now, data={"error": why})


def end(run: WorkflowRun, verb: str, now: datetime) -> tuple[str, dict[str, JSON]]:
    """How a run ends of which something was, or should have been, undone; what of it is left. Alerts when something is.

    verb   how it would end otherwise
    """
    if not starts(run):
        return verb, {}
    for pk in _being_undone(run):
        _close(lock_step(pk), "fail_compensation", now)
    found = ledger_undo.tally(run)
    left = names_left(run)
    if left and verb != "abandon":
        alerts.add(run, f"not undone: {', '.join(left)}", now)
    facts: dict[str, JSON] = {
        "undone": [str(row) for row in found.undone],
        "left": [*left],
        "not_reversible": [str(row) for row in found.not_reversible],
    }
    if verb == "abandon":
        return verb, facts
    if left:
        return "fail_compensation", facts
    return ("finish_compensation" if found.undone else verb), facts


def names_left(run: WorkflowRun) -> list[str]:
    """What of a run could be undone and is not, in words: its effects, and runs that it has started. Reads only."""
    effects = [f"{row} of {row.step_name}" for row in ledger_undo.tally(run).left]
    return effects + [f"the {child.workflow} run {child.pk}" for child in undo_children.left(run)]


def begin_again(run: WorkflowRun) -> None:
    """A run that has ended is to be undone: it has not ended, and takes up nothing of its main path. In memory."""
    run.move("compensate")
    run.ended_at, run.alert, run.alert_at = None, "", None
    run.ending_reason, run.ending_phase = "", EndingPhase.SETTLING
    run.cleanup_at = run.cleanup_until = None
    run.error_class, run.error_code, run.error_text = "", "", ""
