"""What came back of a send or a lookup: the receipt or the doubt, folded into the ledger's row.

With `ledger` the only writer of `SideEffect` and `EffectSend`. Called by the step's context (record), by `lookups`, and
by whoever takes a lease away (open effects are in doubt then).
Source: P2, P5; protocol, rules 6 to 8.
"""

from datetime import datetime
from uuid import UUID

from durableflows import alerts, clock, journal, ledger_undo, provider_state
from durableflows.core.events import is_overtaken, is_same_act
from durableflows.core.fold import Fold, fold
from durableflows.core.outcomes import Answer, AnswerKind
from durableflows.core.payload import JSON, redact
from durableflows.core.states import EffectState, StepState
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import LockBy, update
from durableflows.models.locks import lock_effect, lock_effects, lock_run, lock_step
from durableflows.transactions import database, transact

# Outcomes of a send after which its request may still arrive; '' is an answer not yet recorded.
UNEXPLAINED = ("", str(AnswerKind.UNKNOWN), str(AnswerKind.IN_USE))

ANSWER_FIELDS = ("phase", "outcome", "ended_at", "answer", "health", "error_class", "error_text")
FOLDED_FIELDS = (
    *("state", "receipt", "in_doubt_since", "accepted_at", "next_lookup_at"),
    *("settled_at", "confirmed_number", "settles_at", "reason", "contradiction"),
)


@transact
def record(run_id: UUID, step_id: UUID, effect_id: UUID, send_id: UUID, answer: Answer) -> EffectState:
    """Record what one send brought back, whoever holds the lease now. Returns the row's state after it.

    Writes / Locks   SideEffect, EffectSend, RunEvent; locks run, step, effect, and the provider when it failed
    Crash            before the commit the row stays DISPATCHED and becomes UNKNOWN when the lease is freed
    Source           protocol, rules 7 and 8
    """
    run, step, row = lock_run(run_id), lock_step(step_id), lock_effect(effect_id)
    if row.undoes_id is not None:
        lock_effect(row.undoes_id)  # `follow` writes it, and the provider's row comes after every effect's
    now = clock.now()
    send = _send(send_id)
    is_holder = (
        step.state == StepState.RUNNING and step.lease_token == send.lease_token and send.number == row.send_count
    )
    _close_send(send, answer, now)
    change = fold(
        EffectState(row.state),
        answer.kind,
        is_holder=is_holder,
        doubted=row.in_doubt_since is not None or (row.send_count > 1 and _others_open(row, send, now)),
        run_ended=run.has_settled,
        same_receipt=is_same_act(row.receipt, answer.receipt),
    )
    if is_overtaken(EffectState(row.state), row.receipt, answer.receipt):
        change = Fold(closes=change.closes)
    if change.verb is not None:
        wake(run, step, now)
    provider_state.heard(run, step, send, answer, now)
    apply_fold(run, step, row, change, answer, now=now, source="send")
    return EffectState(row.state)


_SEND = LockBy(EffectSend, lambda rows, send_id: rows.filter(pk=send_id).order_by())


def _send(send_id: UUID) -> EffectSend:
    return _SEND.rows(database(), send_id)[0]


def wake(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Let a step that waits to know what was just told be looked at again, even if a person was asked (P10).

    The caller holds both locks and stores the run's alert.
    """
    if not step.is_unsettled:
        return
    if step.needs_person:
        alerts.drop_question(run, step)
    step.wake_at, step.needs_person = now, False
    step.store("wake_at", "needs_person")


def _others_open(row: SideEffect, send: EffectSend, now: datetime) -> bool:
    """Is another send unexplained and within its settle time? A receipt clears the doubt, not these (rule 3)."""
    others = EffectSend.objects.using(database()).filter(effect=row, kind="send", closes_at__gt=now).exclude(pk=send.pk)
    return others.filter(outcome__in=UNEXPLAINED).exists()


def _close_send(send: EffectSend, answer: Answer, now: datetime) -> None:
    send.phase, send.outcome, send.ended_at = "answered", str(answer.kind)[:20], now
    send.answer, send.health = answer.receipt, answer.health
    if answer.error is not None:
        send.error_class, send.error_text = answer.error.error_class, answer.error.text
    update(EffectSend, database(), {name: getattr(send, name) for name in ANSWER_FIELDS}, {"id": send.pk})


def apply_fold(
    run_locked: WorkflowRun,
    step_locked: StepRun,
    row_locked: SideEffect,
    change: Fold,
    answer: Answer,
    *,
    now: datetime,
    source: str,
) -> None:
    """Write what an answer makes of the row, with its event and, when it surprises, an alert on the run."""
    row = row_locked
    if change.verb == "confirm":
        row.confirmed_number = run_locked.event_sequence + 1
    _change(row, change, answer, now)
    ledger_undo.follow(run_locked, step_locked, row, now)
    loud = change.alert or change.notice
    if loud:
        alerts.add(run_locked, f"{row.effect}: {loud}", now)
    facts: dict[str, JSON] = {
        "effect": row.effect,
        "operation": row.operation,
        "answer": str(answer.kind),
        "state": str(row.state),
        "by": source,
        "receipt": redact(answer.receipt),
    }
    journal.record(run_locked, "effect.recorded", at=now, step=step_locked, data=facts)
    if loud:
        journal.record(run_locked, "effect.alert", at=now, step=step_locked, data={"effect": row.effect, "text": loud})
    run_locked.store("alert", "alert_at", *journal.FIELDS)


def contradict(run_locked: WorkflowRun, step_locked: StepRun, row_locked: SideEffect, text: str, now: datetime) -> None:
    """Write that a provider's word does not fit the row: loud, and nothing of the row's state changes."""
    row = row_locked
    row.contradiction = text
    row.store("contradiction")
    alerts.add(run_locked, f"{row.effect}: {text}", now)
    journal.record(run_locked, "effect.alert", at=now, step=step_locked, data={"effect": row.effect, "text": text})
    run_locked.store("alert", "alert_at", *journal.FIELDS)


def _change(row: SideEffect, change: Fold, answer: Answer, now: datetime) -> None:
    """Make the row's move, with what follows from the state it leads to."""
    if change.verb is not None:
        row.move(change.verb)
    if answer.receipt is not None and change.verb not in (None, "reverse"):  # that it happened stays on the record
        row.receipt = answer.receipt
    if row.state == EffectState.UNKNOWN and row.in_doubt_since is None:
        row.in_doubt_since = now
    if row.state == EffectState.ACCEPTED and row.accepted_at is None:
        row.accepted_at, row.next_lookup_at = now, now
    if row.state in (EffectState.CONFIRMED, EffectState.REJECTED) and row.settled_at is None:
        row.settled_at, row.in_doubt_since, row.next_lookup_at = now, None, None
    if change.closes:
        row.settles_at = None
    if answer.error is not None:
        row.reason = answer.error.text
    if change.alert:
        row.contradiction = change.alert
    row.store(*FOLDED_FIELDS)


def doubt_dispatched(step_locked: StepRun, now: datetime, why: str) -> list[SideEffect]:
    """Turn every DISPATCHED effect of the step UNKNOWN: nobody will bring its answer (protocol, rule 6).

    Returns all effects of the step, as they are then
    """
    effects = lock_effects(step_locked)
    for row in effects:
        if row.state == EffectState.DISPATCHED:
            row.doubt()
            row.in_doubt_since = row.in_doubt_since or now
            row.reason = why
            row.store("state", "in_doubt_since", "reason")
    return effects
