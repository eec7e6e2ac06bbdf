"""Is the ledger sound: receipts, doubt, leases behind sends, one act for one operation? (P3, P4, P5)"""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.db.models import Count, JSONField, Q, QuerySet, Value

from durableflows import ledger
from durableflows.core.events import EventVerdict
from durableflows.core.reconcile import REPEAT
from durableflows.core.states import EFFECT_OPEN, EffectState, RunState, StepState
from durableflows.doctor.findings import Finding, listed, told
from durableflows.doctor.rows import CHUNK, Query, Rows, Scope, asked
from durableflows.errors import InvalidState
from durableflows.models import ProviderEvent
from durableflows.transactions import database

Found = Iterator[tuple[UUID, str]]

WITHOUT_LEASE = "{} ({}) is DISPATCHED and its step {} is {}: nobody brings its answer"
MARGIN_SECONDS = 30.0
"""What is late by less is only waiting for the next sweep."""
OPERATION = ("run_id", "step_name", "visit", "item_key", "operation")
# An issue in one of these may have been done; the next issue is made only after "absent" or "refused".
MAY_BE_DONE = [str(state) for state in (*sorted(EFFECT_OPEN), EffectState.PLANNED, EffectState.CONFIRMED)]


def examine_effects(scope: Scope) -> list[Finding]:
    """All findings about the ledger."""
    return [
        *examine_ledger(scope),
        *listed("arguments-changed", _changed(scope)),
        *listed("contradiction", _contradicted(scope)),
        *listed("audit-due", _audits(scope)),
        *_examine_events(scope),
        *listed("inherited", _inherited(scope)),
        *listed("inherited-look-overdue", _inherited_late(scope)),
    ]


def examine_ledger(scope: Scope) -> list[Finding]:
    """Findings about rows that no run, living or ended, may have."""
    return [
        *told("confirmed-without-receipt", asked(scope, _without_receipt), "{} ({}) is CONFIRMED and has no receipt"),
        *told("doubt-without-date", asked(scope, _without_date), "{} ({}) is in doubt and nothing says since when"),
        *told("doubt-forgotten", asked(scope, _forgotten), "{} ({}) is {} while an earlier send of it is in doubt"),
        *told("dispatched-without-lease", asked(scope, _without_lease), WITHOUT_LEASE),
        *told("operation-twice", asked(scope, _twice), "{4} of {1} has {0} issues that may have been done"),
    ]


def _without_receipt(rows: Rows) -> Query:
    nothing = Q(receipt__isnull=True) | Q(receipt=Value(None, JSONField()))
    return rows.effects().filter(nothing, state=EffectState.CONFIRMED).values_list("run_id", "effect", "pk")


def _without_date(rows: Rows) -> Query:
    effects = rows.effects().filter(state=EffectState.UNKNOWN, in_doubt_since__isnull=True)
    return effects.values_list("run_id", "effect", "pk")


def _forgotten(rows: Rows) -> Query:
    """Doubt is sticky: only a receipt, a lookup or a person clears it (protocol, rule 7)."""
    cleared = [EffectState.PLANNED, EffectState.REJECTED, EffectState.ABSENT]
    effects = rows.effects().filter(state__in=cleared, in_doubt_since__isnull=False)
    return effects.values_list("run_id", "effect", "pk", "state")


def _without_lease(rows: Rows) -> Query:
    """Whoever frees a lease turns what was under way UNKNOWN (protocol, rule 6)."""
    effects = rows.effects().filter(state=EffectState.DISPATCHED).exclude(step__state=StepState.RUNNING)
    return effects.values_list("run_id", "effect", "pk", "step__name", "step__state")


def _twice(rows: Rows) -> Query:
    effects = rows.effects().filter(state__in=MAY_BE_DONE).exclude(verdict=REPEAT).order_by()
    counted: Query = effects.values(*OPERATION).annotate(issues=Count("pk")).filter(issues__gt=1)
    return counted.order_by(*OPERATION).values_list("run_id", "issues", *OPERATION[1:])


def _changed(scope: Scope) -> Found:
    """The stored arguments are what the next send would carry."""
    rows = scope.effects().filter(run__ended_at__isnull=True)
    fields = ("run_id", "effect", "effect_version", "arguments", "request_digest", "pk")
    for run_id, effect, version, arguments, digest, pk in rows.values_list(*fields).iterator(chunk_size=CHUNK):
        if _digest(effect, version, arguments) != digest:
            yield run_id, f"the stored arguments of {effect} ({pk}) are not those that were reserved"


def _digest(effect: str, version: int, arguments: object) -> str:
    try:
        assert isinstance(arguments, dict)
        return ledger.request_digest(effect, version, arguments)
    except (AssertionError, InvalidState):
        return ""


def _contradicted(scope: Scope) -> Found:
    rows = scope.effects().exclude(contradiction="")
    values = rows.values_list("run_id", "effect", "pk", "contradiction")
    for run_id, effect, pk, text in values.iterator(chunk_size=CHUNK):
        yield run_id, f"{effect} ({pk}): {text}"


def _audits(scope: Scope) -> Found:
    rows = scope.effects().filter(state=EffectState.ABSENT, audit_at__lte=scope.now)
    values = rows.values_list("run_id", "effect", "pk", "audit_at")
    for run_id, effect, pk, at in values.iterator(chunk_size=CHUNK):
        yield (
            run_id,
            f"{effect} ({pk}) was found absent and is to be looked up once more, since {at:%Y-%m-%d %H:%M} UTC",
        )


def _examine_events(scope: Scope) -> list[Finding]:
    """What providers told: judged late, or about nothing that we know. They belong to no run until they are judged."""
    if scope.run_id is not None:
        return []
    events = ProviderEvent.objects.using(database()).order_by("arrived_at")
    late = scope.now - timedelta(seconds=MARGIN_SECONDS)
    return [
        *listed("event-overdue", _told(events.filter(judge_at__lt=late))),
        *listed("event-unmatched", _told(events.filter(verdict=EventVerdict.UNMATCHED).exclude(key=""))),
        *listed("event-unreadable", _told(events.filter(verdict=EventVerdict.UNREADABLE))),
    ]


def _told(events: "QuerySet[ProviderEvent]") -> Iterator[tuple[UUID | None, str]]:
    rows = events.values_list("event_id", "provider", "arrived_at", "reason")
    for event_id, provider, at, reason in rows.iterator(chunk_size=CHUNK):
        yield None, f"event {event_id} of {provider}, {at:%Y-%m-%d %H:%M} UTC: {reason or 'not judged yet'}"


def _inherited(scope: Scope) -> Found:
    """What abandoned runs left open: only their heir can settle it, or a lookup."""
    rows = scope.effects().filter(run__state=RunState.ABANDONED, state__in=[str(state) for state in EFFECT_OPEN])
    values = rows.values_list("run_id", "effect", "pk", "state", "run__heir_name")
    for run_id, effect, pk, state, heir in values.iterator(chunk_size=CHUNK):
        yield run_id, f"{effect} ({pk}) is {state}, inherited by {heir}"


def _inherited_late(scope: Scope) -> Found:
    late = scope.now - timedelta(seconds=MARGIN_SECONDS)
    rows = scope.effects().filter(run__state=RunState.ABANDONED, state__in=[str(state) for state in EFFECT_OPEN])
    values = rows.filter(next_lookup_at__lt=late).values_list("run_id", "effect", "pk", "next_lookup_at")
    for run_id, effect, pk, at in values.iterator(chunk_size=CHUNK):
        yield run_id, f"{effect} ({pk}) should have been looked up, due since {at:%Y-%m-%d %H:%M:%S} UTC"
