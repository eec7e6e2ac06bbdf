"""Are people told what they must be told? A notice that waits is late; one that fails needs a look."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows.core.notices import ALERT_AFTER_ATTEMPTS
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import CHUNK, Scope
from durableflows.models import Announcement, Notification
from durableflows.transactions import database

MARGIN_SECONDS = 120.0
"""What is late by less may wait for a worker."""

Found = Iterator[tuple[UUID, str]]


def examine_notices(scope: Scope) -> list[Finding]:
    """All findings about notices."""
    return [*listed("notice-overdue", _late(scope)), *listed("notice-failing", _failing(scope))]


def _late(scope: Scope) -> Found:
    late = scope.now - timedelta(seconds=MARGIN_SECONDS)
    announced = _of(scope, Announcement.objects.using(database()).filter(addressed_at__isnull=True, at__lt=late))
    for run_id, kind in announced.values_list("request__run_id", "kind").iterator(chunk_size=CHUNK):
        yield run_id, f"nobody knows yet who is to be told: {kind}"
    waiting = Notification.objects.using(database()).filter(sent_at__isnull=True, dropped_at__isnull=True, attempts=0)
    for run_id, name in _named(_of(scope, waiting.filter(made_at__lt=late))):
        yield run_id, f"{name} waits to be told"


def _failing(scope: Scope) -> Found:
    rows = Notification.objects.using(database()).filter(sent_at__isnull=True, dropped_at__isnull=True)
    rows = rows.filter(attempts__gte=ALERT_AFTER_ATTEMPTS)
    values = _of(scope, rows).values_list("request__run_id", "person_name", "kind", "attempts", "error")
    for run_id, name, kind, attempts, error in values.iterator(chunk_size=CHUNK):
        yield run_id, f"{name} could not be told ({kind}) in {attempts} tries: {error}"


def _of(scope: Scope, rows: "QuerySet[Any]") -> "QuerySet[Any]":
    ordered = rows.order_by("request__run_id", "pk")
    return ordered if scope.run_id is None else ordered.filter(request__run_id=scope.run_id)


def _named(rows: "QuerySet[Any]") -> Iterator[tuple[UUID, str]]:
    yield from rows.values_list("request__run_id", "person_name").iterator(chunk_size=CHUNK)
