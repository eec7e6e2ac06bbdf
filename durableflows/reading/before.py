"""What was decided before about the same: earlier requests of the same workflow for the same customer, and by whom.

Bounded: only the newest requests of the workflow are looked through, however many there have been.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform

from durableflows.core.states import ApprovalState
from durableflows.explain_words import state_words
from durableflows.models import ApprovalRequest
from durableflows.reading.facts import amount_of, whom_fact

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
    rows = same.select_related(None).prefetch_related("decisions").order_by("-id")[:SHOWN]
    return [_earlier(row) for row in rows]


def _earlier(row: ApprovalRequest) -> Earlier:
    names = [one.actor_name for one in row.decisions.all() if one.voided_at is None]
    words = state_words(row.state, "approvalrequest")
    return Earlier(row, amount_of(row), words, ", ".join(names), row.closed_at)
