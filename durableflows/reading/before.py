"""What was decided before about the same: earlier requests of the same workflow for the same customer, and by whom.

Bounded: only the newest requests of the workflow are looked through, however many there have been.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.db.models.fields.json import KeyTransform

from durableflows.core.states import ApprovalState
from durableflows.explain_words import state_words
from durableflows.models import ApprovalRequest
from durableflows.reading.facts import amount_of, whom_fact
from durableflows.transactions import database

LOOKED_THROUGH = 500
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Earlier:
    """A request that was decided. `who`: whose answers counted."""

    asked: ApprovalRequest
    amount: str
    standing: str
    who: str
    at: datetime | None


def earlier(asked: ApprovalRequest, visible: QuerySet[ApprovalRequest]) -> list[Earlier]:
    """The newest closed requests about the same person or thing. `visible`: what the person who looks may see."""
    name = whom_fact(asked)
    if name is None:
        return []
    closed = visible.exclude(state=ApprovalState.OPEN).filter(run__workflow=asked.run.workflow)
    newest = closed.order_by("-id").values("pk")[:LOOKED_THROUGH]
    same = visible.filter(pk__in=newest).annotate(whom=KeyTransform(name, "binding"))
    same = same.filter(whom=asked.binding[name]).exclude(pk=asked.pk)
    return _with_answers(same.order_by("-id").values("pk")[:SHOWN])


def _with_answers(shown: QuerySet[ApprovalRequest, Any]) -> list[Earlier]:
    """Read these requests, newest first, a row for each of their answers: by one statement."""
    rows = ApprovalRequest.objects.using(database()).filter(pk__in=shown)
    rows = rows.annotate(who=F("decisions__actor_name"), void_at=F("decisions__voided_at"))
    found: dict[UUID, tuple[ApprovalRequest, list[str]]] = {}
    for row in rows.order_by("-id", "decisions__at", "decisions__id"):
        _, names = found.setdefault(row.pk, (row, []))
        names += [row.who] if row.who is not None and row.void_at is None else []
    return [_earlier(row, names) for row, names in found.values()]


def _earlier(row: ApprovalRequest, names: list[str]) -> Earlier:
    words = state_words(row.state, "approvalrequest")
    return Earlier(row, amount_of(row), words, ", ".join(names), row.closed_at)
