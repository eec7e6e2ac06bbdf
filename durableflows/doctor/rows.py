"""What an examination looks at: one moment, one run or all of them. Shared by the examinations; reads only."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from durableflows.core.payload import JSON, sha256
from durableflows.errors import InvalidState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import Question
from durableflows.transactions import atomic, database

CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Rows:
    """What is looked at of the rows: those of one run, or with None of all."""

    run_id: UUID | None

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


@dataclass(frozen=True, slots=True)
class Scope(Rows):
    """An examination. `ticking_since`: since when a living ticker sweeps; None when there is none."""

    now: datetime
    ticking_since: datetime | None


Query: TypeAlias = "QuerySet[Any, Any]"
Ask = Callable[[Rows], Query]
"""Gives a query for values, the run's id first. A function of a module: its statement is kept by it."""


def asked(rows: Rows, ask: Ask) -> Iterator[Sequence[Any]]:
    """What a query finds, in batches; of one run by a statement that is made once.

    A played schedule is examined as it ends, and Django takes longer to make the doctor's statements than the database
    to answer them.
    """
    if rows.run_id is not None:
        return iter(_of_one(ask).answers(database(), rows.run_id))
    return ask(rows).iterator(chunk_size=CHUNK)


@cache
def _of_one(ask: Ask) -> Question:
    return Question(lambda alias, run_id: ask(Rows(run_id)).using(alias))


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
