"""What an examination looks at: one moment, one run or all of them. Shared by the examinations; reads only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from durableflows.core.payload import JSON, sha256
from durableflows.errors import InvalidState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.transactions import atomic, database

CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Scope:
    """`ticking_since`: since when a living ticker sweeps; None when there is none."""

    now: datetime
    run_id: UUID | None
    ticking_since: datetime | None

    def runs(self) -> QuerySet[WorkflowRun]:
        """The runs that are examined, in one order."""
        rows = WorkflowRun.objects.using(database()).order_by("pk")
        return rows if self.run_id is None else rows.filter(pk=self.run_id)

    def steps(self) -> QuerySet[StepRun]:
        """Their steps, those of a run together."""
        rows = StepRun.objects.using(database()).order_by("run_id", "created_at", "pk")
        return rows if self.run_id is None else rows.filter(run_id=self.run_id)

    def effects(self) -> QuerySet[SideEffect]:
        """Their effects, those of a run together."""
        rows = SideEffect.objects.using(database()).order_by("run_id", "created_at", "pk")
        return rows if self.run_id is None else rows.filter(run_id=self.run_id)

    def requests(self) -> QuerySet[ApprovalRequest]:
        """Their requests, those of a run together."""
        rows = ApprovalRequest.objects.using(database()).order_by("run_id", "created_at", "pk")
        return rows if self.run_id is None else rows.filter(run_id=self.run_id)


@contextmanager
def snapshot() -> Iterator[None]:
    """Let all reads in the block see one moment, so that a commit between two of them is not taken for a fault."""
    connection = connections[database()]
    if connection.in_atomic_block:
        yield
        return
    with atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def digest_of(value: JSON) -> str:
    """The digest of a stored value; '' for one that we never wrote, since it has none (SQLite keeps infinity)."""
    try:
        return sha256(value)
    except (InvalidState, RecursionError):
        return ""
