"""What providers tell on their own: stored once, then judged against the effect that it is about.

Two transactions. The first stores the event with what the project's reader found in it: from then on it is not lost,
and its provider may be told so. The second locks run, step, effect and event, and settles or contradicts the effect;
what it cannot do now (no such effect yet, the run is busy, the process dies) a sweep does later. The reader is user
code and runs before both, outside any transaction.
Source: P2, P5, P13, P14; R17, R20, R21.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import clock, journal, ledger_answers, progress
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import log_lines, registry, shape
from durableflows.core.classify import describe
from durableflows.core.decide import Park
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import EventOutcome, EventReading
from durableflows.core.events import (
    BELIEVED,
    OPEN_VERDICTS,
    Event,
    EventVerdict,
    Judgement,
    Standing,
    judge,
    reference_of,
)
from durableflows.core.outcomes import Answer, AnswerKind, ErrorInfo
from durableflows.core.payload import JSON, check_size, check_text, redact, same, sha256, storable
from durableflows.core.states import EffectState, ParkedReason
from durableflows.errors import InvalidDefinition, InvalidState
from durableflows.models import ProviderEvent, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import delete, write
from durableflows.models.effect import REFERENCE
from durableflows.models.locks import lock_effect, lock_event, lock_step, try_lock_run
from durableflows.services import reconcile
from durableflows.transactions import after_commit, database, transact

logger = log_lines.logger("durableflows.provider_events")

READ_FIELDS = (
    "outcome",
    "key",
    "reference",
    "receipt",
    "facts",
    "said",
    "read_as",
    "body",
    "body_digest",
    "happened_at",
    "verdict",
    "reason",
    "judge_at",
)
Effects = list[EffectDefinition[object]]

JUDGED_FIELDS = ("effect", "verdict", "reason", "judged_at", "tries", "judge_at")
ANSWERS = {
    EventOutcome.PENDING: AnswerKind.ACCEPTED,
    EventOutcome.HAPPENED: AnswerKind.RECEIPT,
    EventOutcome.FAILED: AnswerKind.REJECTED,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event belongs."""

    run_id: UUID
    step_id: UUID
    effect_id: UUID


def take(
    provider: str, event_id: str, body: Mapping[str, Any], *, kind: str, happened_at: datetime | None
) -> ProviderEvent:
    """Store what a provider tells, once, and judge it. A copy changes nothing, unless the first could not be read.

    In a caller's transaction it is judged after that one has committed, by whoever commits or by a sweep.

    Raises           InvalidState for an event without id, or one that is too large or no JSON: nothing is stored
    Writes / Locks   ProviderEvent; then it as well as SideEffect, StepRun, WorkflowRun, RunEvent: run, step, effect
    Crash            before the first commit nothing is stored, and it is sent again; after it a sweep goes on
    """
    check_text(provider, 100, "the provider's name")
    check_text(event_id, 200, "the event's id")
    check_text(kind, 100, "the event's kind")
    if not provider or not event_id:
        raise InvalidState("an event needs the provider's name and an id, which is the same in each copy of it")
    if not isinstance(body, Mapping):
        raise InvalidState(f"an event's body is a mapping of names to values, not {type(body).__name__}")
    data = shape.plain_marked(body, what="an event's body")
    check_size(data, settings().MAX_EVENT_BYTES, "an event's body")
    event = ProviderEvent(
        provider=provider,
        event_id=event_id,
        kind=kind,
        body_digest=sha256(data),
        body=redact(data),
        happened_at=_utc(happened_at),
    )
    _read(event, body)
    stored = _store(event)
    cross(Boundary.PROVIDER_EVENT_AFTER_COMMIT)
    if stored.judge_at is not None and stored.verdict in OPEN_VERDICTS:
        # It is safe already: what fails here is left to a sweep.
        after_commit(partial(settle, stored.pk), f"the judging of event {stored.event_id}")
        stored.refresh_from_db(using=database())
    return stored


def _utc(at: datetime | None) -> datetime | None:
    if at is not None and at.tzinfo is None:
        raise InvalidState("an event's time needs a time zone")
    return None if at is None else at.astimezone(UTC)


# Reading: user code, outside any transaction.


def _read(event: ProviderEvent, body: Mapping[str, Any]) -> None:
    """Put into the event what the readers of its provider find in it. An error of theirs keeps it, and is told."""
    errors: list[str] = []
    readers = _readers(event.provider)
    for effects in readers:
        read = effects[0].event
        assert read is not None
        try:
            reading = read(body)
            if reading is not None:
                _put_reading(event, effects, reading)
                return
        except Exception as error:  # noqa: BLE001 - a reader that fails must not lose the event
            names = ", ".join(effect.name for effect in effects)
            errors.append(f"the reader of {names} failed: {type(error).__name__}: {describe(error).text}")
    if errors or not readers:
        event.verdict = EventVerdict.UNREADABLE
        event.reason = "; ".join(errors) or f"no effect of {event.provider} that is known here reads events"
        logger.error("event %s of %s is kept and cannot be used: %s", event.event_id, event.provider, event.reason)
        return
    event.verdict, event.reason = EventVerdict.OTHER, "no reader finds an effect in it"


def _readers(provider: str) -> list[Effects]:
    """For each reader of a provider's events the effects that have it, in the newest version of each."""
    found: dict[int, dict[str, EffectDefinition[object]]] = {}
    for definition in reversed(registry.definitions()):
        for effect in definition.effects.values():
            if effect.provider == provider and effect.event is not None:
                found.setdefault(id(effect.event), {}).setdefault(effect.name, effect)
    return [list(effects.values()) for effects in found.values()]


def _put_reading(event: ProviderEvent, effects: Effects, reading: object) -> None:
    """Take over a reading, in a form that can be stored. Raises whatever makes it useless."""
    if not isinstance(reading, EventReading):
        raise InvalidDefinition(f"it returned {type(reading).__name__}: return an EventReading, or None")
    receipt, names = _receipt_of(effects, reading.receipt)
    facts = shape.plain_marked(reading.facts, what="the facts of an event")
    check_text(reading.key, 255, "the key")
    check_text(reading.reference, 255, "the reference")
    event.outcome, event.key, event.reference = str(reading.outcome), reading.key, reading.reference
    event.receipt, event.facts, event.said = receipt, facts, str(storable(redact(reading.reason)))[:1000]
    event.read_as, event.happened_at = names, _utc(reading.at) or event.happened_at


def _receipt_of(effects: Effects, receipt: object) -> tuple[JSON, list[str]]:
    """The receipt as it is stored, and the effects of one reader that it can be about: those whose type it has."""
    if receipt is None:
        return None, [effect.name for effect in effects]
    written: list[tuple[str, JSON]] = []
    errors: list[Exception] = []
    for effect in effects:
        try:
            written.append((effect.name, effect.dump_receipt(receipt)))
        except InvalidState as error:
            errors.append(error)
    if not written:
        raise errors[0]
    first = written[0][1]
    return first, [name for name, value in written if same(value, first)]


@transact
def _store(event: ProviderEvent) -> ProviderEvent:
    """Store the event unless it is there; a copy is counted, and read anew when the first one could not be."""
    now = clock.now()
    event.arrived_at = now
    event.judge_at = now if event.verdict == EventVerdict.WAITING else None
    rows = ProviderEvent.objects.using(database())
    rows.bulk_create([event], ignore_conflicts=True)  # a copy at the same time waits here for the first one's commit
    stored = rows.get(provider=event.provider, event_id=event.event_id)
    if stored.pk != event.pk:
        stored = lock_event(stored.pk)
        if stored.body_digest != event.body_digest:
            logger.info("a copy of event %s of %s has another body", event.event_id, event.provider)
        if stored.verdict == EventVerdict.UNREADABLE and event.verdict != EventVerdict.UNREADABLE:
            for name in READ_FIELDS:
                setattr(stored, name, getattr(event, name))
        if stored.verdict == EventVerdict.UNMATCHED:  # its effect may be there now, also after a day
            stored.judge_at = now
        stored.copies = stored.copies + 1
        write(stored, database(), "copies", *READ_FIELDS)
    cross(Boundary.PROVIDER_EVENT_BEFORE_COMMIT)
    return stored


# Judging: values and rows alone, so that a ticker may do it too.


def due(now: datetime) -> Any:
    """The events that a sweep judges now, the oldest first."""
    return ProviderEvent.objects.using(database()).filter(judge_at__lte=now).order_by("judge_at")


def settle(event_id: UUID) -> bool:
    """Judge a stored event, and let the step of its effect go on. False: not now, or there was nothing to do."""
    event = ProviderEvent.objects.using(database()).filter(pk=event_id).first()
    if event is None or event.verdict not in OPEN_VERDICTS or event.judge_at is None:
        return False
    places = _places(event)
    if len(places) != 1:
        return _leave_unmatched(event_id, len(places))
    judged = _judge(places[0], event_id)
    cross(Boundary.EVENT_JUDGED_AFTER_COMMIT)
    if judged:
        reconcile.route(places[0].step_id)
    return judged


def _places(event: ProviderEvent) -> list[Place]:
    """The effects that an event may be about: by our key; by the provider's own name where it gives no key back.

    A name is unique among acts of a kind: a payment and a ticket may both be called 17.
    """
    rows = SideEffect.objects.using(database()).filter(provider=event.provider).order_by("id")
    if event.key:
        rows = rows.filter(key=event.key)
    else:
        rows = rows.annotate(of=REFERENCE).filter(of=event.reference)
        rows = rows.filter(effect__in=event.read_as) if event.read_as else rows
    found = rows.values_list("run_id", "step_id", "pk", "undoes_id")[:10]
    there = {pk for _, _, pk, _ in found}  # an undo may give back the name of what it undid: that is not its own
    return [Place(run_id, step_id, pk) for run_id, step_id, pk, undoes in found if undoes not in there]


@transact
def _leave_unmatched(event_id: UUID, found: int) -> bool:
    """Note that nothing, or more than one, answers to it; it is looked at again, less and less often, for a day."""
    event, now = lock_event(event_id), clock.now()
    if event.verdict not in OPEN_VERDICTS:
        return False
    event.verdict, event.judged_at = EventVerdict.UNMATCHED, now
    what = f"the key {event.key}" if event.key else f"the reference {event.reference}"
    event.reason = f"{found or 'no'} effects of {event.provider} have {what}"
    pause = timedelta(seconds=settings().LOOKUP_SECONDS * 2 ** min(event.tries, 20))
    event.tries += 1
    is_over = now + pause > event.arrived_at + timedelta(seconds=settings().AUDIT_SECONDS)
    event.judge_at = None if is_over else now + pause
    write(event, database(), *JUDGED_FIELDS)
    if is_over and event.key:
        logger.warning(
            "event %s of %s is about nothing that is known: %s", event.event_id, event.provider, event.reason
        )
    return False


@transact
def _judge(place: Place, event_id: UUID) -> bool:
    run = try_lock_run(place.run_id)
    if run is None:
        return False  # somebody works on it; a sweep comes back
    step, row, event = lock_step(place.step_id), lock_effect(place.effect_id), lock_event(event_id)
    if event.verdict not in OPEN_VERDICTS:
        return False
    now = clock.now()
    judged = judge(_event(event, reconcile.declared(run, row)), _standing(run, row))
    _use(run, step, row, event, judged, now)
    event.effect, event.verdict, event.reason = row, str(judged.verdict), judged.reason
    event.judged_at, event.judge_at = now, None
    write(event, database(), *JUDGED_FIELDS)
    cross(Boundary.EVENT_JUDGED_BEFORE_COMMIT)
    return True


def _event(event: ProviderEvent, effect: EffectDefinition[object] | None) -> Event:
    outcome, reference = EventOutcome(event.outcome), event.reference or reference_of(event.receipt)
    is_other = effect is not None and bool(event.read_as) and effect.name not in event.read_as
    other = f"it was read as one of {', '.join(event.read_as)}" if is_other else ""
    return Event(outcome, reference, event.receipt, event.facts, event.said, event.happened_at, other)


def _standing(run: WorkflowRun, row: SideEffect) -> Standing:
    told = ProviderEvent.objects.using(database()).filter(effect=row, verdict__in=[str(one) for one in BELIEVED])
    effect = reconcile.declared(run, row)
    return Standing(
        state=EffectState(row.state),
        receipt=row.receipt,
        arguments=row.arguments,
        settled_at=row.settled_at,
        was_accepted=row.accepted_at is not None,
        one_act=row.send_count == 1 or (effect is not None and effect.key_window is not None),
        run_ended=run.has_settled,
        said_by_person=row.verdict == "did_not_happen",
        before=tuple((EventOutcome(outcome), at) for outcome, at in told.values_list("outcome", "happened_at")),
    )


def _use(
    run: WorkflowRun, step: StepRun, row: SideEffect, event: ProviderEvent, judged: Judgement, now: datetime
) -> None:
    """Carry the judgement out: the effect's row, its history, the step that waits, and the run that must not go on."""
    facts: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "event": event.event_id}
    facts |= {"kind": event.kind, "says": event.outcome, "verdict": str(judged.verdict), "text": judged.reason}
    journal.record(run, "effect.event", at=now, step=step, data=facts)
    if judged.change.verb is not None:
        ledger_answers.wake(run, step, now)
        error = ErrorInfo("", "failed", judged.reason) if event.outcome == EventOutcome.FAILED else None
        answer = Answer(ANSWERS[EventOutcome(event.outcome)], receipt=_receipt(event, row), error=error)
        ledger_answers.apply_fold(run, step, row, judged.change, answer, now=now, source="event")
    elif judged.change.alert:
        ledger_answers.contradict(run, step, row, judged.change.alert, now)
    else:
        run.store(*journal.FIELDS)
    if judged.verdict is EventVerdict.REVERSED and _goes_on(run):
        detail = f"{row.effect}: {judged.reason}. What follows may rest on it: retry lets the run go on, cancel ends it"
        if run.parked_reason:
            detail += f". Before that: {run.parked_reason}, {run.parked_detail}"
        progress.park(run, Park(ParkedReason.NEEDS_PERSON, detail), now)
        progress.conclude(run, now)


def _receipt(event: ProviderEvent, row: SideEffect) -> JSON:
    """Of a failure at least which act it was: an answer to a send that comes after it is about the same one."""
    name = event.reference if event.receipt is None and row.receipt is None else ""
    return {"id": name} if name else event.receipt


def _goes_on(run: WorkflowRun) -> bool:
    """Does it, or will it when what it is parked for is cured? Then a person decides about this too."""
    return run.ended_at is None and not run.ending_reason


def forgettable(before: datetime) -> QuerySet[ProviderEvent]:
    """Events of before a moment that belong to no effect and are judged."""
    rows = ProviderEvent.objects.using(database()).filter(effect__isnull=True, arrived_at__lt=before)
    return rows.filter(judge_at__isnull=True)


def forget(before: datetime, among: Collection[UUID] | None = None) -> int:
    """Delete events of before a moment that belong to no effect. Returns how many.

    among    only these: those that were archived
    """
    rows = forgettable(before)
    return delete(rows if among is None else rows.filter(pk__in=among))
