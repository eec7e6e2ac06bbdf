"""Asking a provider whether an effect happened. The only place where lookup functions of users are called.

A lookup is two transactions around an outside call: `begin` takes the row's lookup lease and notes the version that
is asked about, `end` uses the answer only if that version still stands. Called by the `durableflows.lookup` task.
Source: protocol, rules 3, 4 and 13.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from durableflows import clock, journal, ledger, ledger_answers, ledger_undo, providers, wall_time, watching
from durableflows.at_work import About, working_on
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.classify import TEXT_LIMIT, describe
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import CannotTell, EffectCall, Found, NotFound
from durableflows.core.events import is_same_act
from durableflows.core.fold import Fold, fold
from durableflows.core.keys import new_token
from durableflows.core.outcomes import Answer, AnswerKind, ErrorInfo
from durableflows.core.payload import JSON, redact, storable
from durableflows.core.states import EffectState
from durableflows.errors import InvalidDefinition, Permanent
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_effect, lock_run, lock_step
from durableflows.transactions import database, transact, transact_durably

LOOKED_UP = frozenset({EffectState.UNKNOWN, EffectState.ACCEPTED})


@dataclass(frozen=True, slots=True)
class Ticket:
    """A question that was asked about one version of one row."""

    run_id: UUID
    step_id: UUID
    effect_id: UUID
    send_id: UUID
    token: UUID
    seen_version: int
    number: int
    asked_at: datetime
    call: EffectCall
    arguments: dict[str, JSON]


@dataclass(frozen=True, slots=True)
class Heard:
    """What the lookup function said, as a value.

    `rejected`: the lookup raised Permanent. Of an effect that the provider had accepted that means: it failed later.
    Of one in doubt it means nothing certain (a 404 may be our fault), and a person looks.
    """

    kind: str
    receipt: JSON = None
    is_pending: bool = False
    reason: str = ""


def look_up(effect_id: UUID) -> UUID | None:
    """Ask the provider about one effect. Returns its step's id when the row may have changed, None: not due.

    Crash   between the two transactions: the lookup's lease runs out and the sweep asks again
    """
    place = SideEffect.objects.using(database()).filter(pk=effect_id).values_list("run_id", "step_id", "effect").first()
    if place is None:
        return None
    run = (
        WorkflowRun.objects.using(database())
        .filter(pk=place[0])
        .values_list("workflow", "version", "trace_context")
        .first()
    )
    assert run is not None
    try:
        effect = registry.get(*run[:2]).effects[place[2]]
    except (InvalidDefinition, KeyError):
        return None  # another worker knows it; the sweep sends the question again
    if effect.lookup is None:
        return None
    ticket = begin(place[0], place[1], effect_id, effect)
    if ticket is None:
        return None
    about = watching.Asked(ticket.run_id, ticket.step_id, run[0], ticket.call.step, run[2], ticket.asked_at)
    with (
        working_on(About(str(ticket.run_id), run[0], ticket.call.step)),
        watching.call(about, _watched(effect, ticket)) as call,
    ):
        heard = ask(effect, ticket)
        call.end()
        cross(Boundary.LOOKUP_BEFORE_COMMIT)
        call.answer, call.receipt = heard.kind, heard.receipt
        call.state = str(end(ticket, heard))
        cross(Boundary.LOOKUP_AFTER_COMMIT)
    return ticket.step_id


def _watched(effect: EffectDefinition[object], ticket: "Ticket") -> watching.Call:
    call = ticket.call
    return watching.Call(
        "lookup",
        effect.name,
        provider=effect.provider,
        operation=call.operation,
        key=call.key,
        number=ticket.number,
        version=effect.version,
        timeout_seconds=effect.timeout_seconds,
    )


@transact_durably
def begin(run_id: UUID, step_id: UUID, effect_id: UUID, effect: EffectDefinition[object]) -> Ticket | None:
    """Take the lookup lease, unless a send is open, another lookup is under way, or nothing is to be asked.

    Nor is a provider asked that is left alone: its silence would use the questions up, and ask a person for each run.
    """
    lock_run(run_id), lock_step(step_id)
    row = lock_effect(effect_id)
    now = clock.now()
    if not _is_due(row, now) or providers.is_left_alone(row.provider, now):
        return None
    row.lookup_count += 1
    row.lookup_token = new_token()
    row.lookup_must_end_by = now + timedelta(seconds=effect.timeout_seconds + settings().LEASE_MARGIN_SECONDS)
    row.store("lookup_count", "lookup_token", "lookup_must_end_by")
    send = EffectSend(
        effect=row, number=row.lookup_count, kind="lookup", seen_version=row.row_version, phase="asked", started_at=now
    )
    insert(send, database())
    call = ledger.lookup_call(row, effect.timeout_seconds, time.monotonic())
    token, version, number = row.lookup_token, row.row_version, row.lookup_count
    return Ticket(run_id, step_id, row.pk, send.pk, token, version, number, now, call, row.arguments)


def _is_due(row: SideEffect, now: datetime) -> bool:
    if row.lookup_must_end_by is not None and now < row.lookup_must_end_by:
        return False
    if row.state in LOOKED_UP:
        # "Absent" counts only when it was asked after every send had landed or was lost.
        return row.settles_at is None or now >= row.settles_at
    return row.audit_at is not None and now >= row.audit_at


def ask(effect: EffectDefinition[object], ticket: Ticket) -> Heard:
    """Call the user's lookup; anything but a clear answer is "cannot tell"."""
    assert effect.lookup is not None
    try:
        with wall_time.limit(effect.timeout_seconds, f"lookup of {effect.name}"):
            answer = effect.lookup(ticket.call, **effect.load_arguments(ticket.arguments))
        if isinstance(answer, Found):
            is_pending = effect.accepted is not None and effect.accepted(answer.receipt)
            return Heard("found", effect.dump_receipt(answer.receipt), is_pending)
        if isinstance(answer, NotFound):
            return Heard("not found")
        reason = answer.reason if isinstance(answer, CannotTell) else f"the lookup returned {answer!r:.100}"
        return Heard("cannot tell", reason=str(storable(redact(str(reason))))[:TEXT_LIMIT])
    except Permanent as error:
        return Heard("rejected", reason=describe(error).text)
    except Exception as error:  # noqa: BLE001 - a lookup that fails says nothing about the effect
        return Heard("cannot tell", reason=describe(error).text)


@transact
def end(ticket: Ticket, heard: Heard) -> EffectState:
    """Use the answer, if the row is still as it was when asked. "Found" by its key is true whatever happened since."""
    run, step, row = lock_run(ticket.run_id), lock_step(ticket.step_id), lock_effect(ticket.effect_id)
    now = clock.now()
    EffectSend.objects.using(database()).filter(pk=ticket.send_id).update(
        phase="answered", outcome=heard.kind, ended_at=now, answer=heard.receipt, error_text=heard.reason
    )
    is_fresh = row.row_version == ticket.seen_version
    if heard.kind == "found":
        _found(run, step, row, heard, now)
    elif not is_fresh:
        journal.record(run, "lookup.stale", at=now, step=step, data={"effect": row.effect, "answer": heard.kind})
        run.store(*journal.FIELDS)
    elif heard.kind == "not found":
        _not_found(run, step, row, now)
    elif heard.kind == "rejected" and row.state == EffectState.ACCEPTED:
        answer = Answer(AnswerKind.REJECTED, error=ErrorInfo("", "rejected", heard.reason))
        change = Fold("reject", closes=True, notice=f"it was accepted, and has failed: {heard.reason}")
        ledger_answers.apply_fold(run, step, row, change, answer, now=now, source="lookup")
    else:
        _cannot_tell(run, step, row, heard.reason, now)
    if row.lookup_token == ticket.token:
        row.lookup_token = row.lookup_must_end_by = None
        row.store("lookup_token", "lookup_must_end_by")
    if step.is_unsettled:
        step.wake_at = now  # what was heard counts at once, not when the lost question would have been asked again
        step.store("wake_at")
    return EffectState(row.state)


def _found(run: WorkflowRun, step: StepRun, row: SideEffect, heard: Heard, now: datetime) -> None:
    answer = Answer(AnswerKind.ACCEPTED if heard.is_pending else AnswerKind.RECEIPT, receipt=heard.receipt)
    change = fold(
        EffectState(row.state),
        answer.kind,
        is_holder=False,
        doubted=row.in_doubt_since is not None,
        run_ended=run.has_settled,
        same_receipt=is_same_act(row.receipt, heard.receipt),
    )
    is_told = change.verb is None and change.alert in ("", row.contradiction)
    if not (heard.is_pending and is_told):  # it may be pending for long, and is said once
        ledger_answers.apply_fold(run, step, row, change, answer, now=now, source="lookup")
    if heard.is_pending:
        _cannot_tell(run, step, row, "the provider is not done with it", now)
    elif row.audit_at is not None:
        row.audit_at = None
        row.store("audit_at")


def _not_found(run: WorkflowRun, step: StepRun, row: SideEffect, now: datetime) -> None:
    if row.state == EffectState.UNKNOWN:
        row.find_absent()
        row.in_doubt_since, row.next_lookup_at, row.settles_at = None, None, None
        row.audit_at = now + timedelta(seconds=settings().AUDIT_SECONDS)
        row.store("state", "in_doubt_since", "next_lookup_at", "settles_at", "audit_at")
        journal.record(run, "effect.absent", at=now, step=step, data={"effect": row.effect, "by": "lookup"})
        run.store(*journal.FIELDS)
        ledger_undo.follow(run, step, row, now)
    elif row.state == EffectState.ACCEPTED:
        _cannot_tell(run, step, row, "it was accepted, and now the provider does not find it", now)
    else:  # the audit of an ABSENT row: it stayed absent
        row.audit_at = None
        row.store("audit_at")
        journal.record(run, "effect.audited", at=now, step=step, data={"effect": row.effect})
        run.store(*journal.FIELDS)


def _cannot_tell(run: WorkflowRun, step: StepRun, row: SideEffect, reason: str, now: datetime) -> None:
    pause = min(settings().LOOKUP_SECONDS * 2 ** min(row.lookup_count, 16), settings().LOOKUP_CAP_SECONDS)
    row.reason = reason
    if row.state in LOOKED_UP:
        row.next_lookup_at = now + timedelta(seconds=pause)
    else:
        row.audit_at = now + timedelta(seconds=settings().LOOKUP_CAP_SECONDS)
    row.store("reason", "next_lookup_at", "audit_at")
    data: dict[str, JSON] = {"effect": row.effect, "reason": reason, "lookup": row.lookup_count}
    journal.record(run, "lookup.open", at=now, step=step, data=data)
    run.store(*journal.FIELDS)
