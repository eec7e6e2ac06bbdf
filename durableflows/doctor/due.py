"""What goes on by itself at a time: the rows, and the field that says when. Read by `waits` and `overdue`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min, QuerySet

from durableflows.core.ending import AT_WORK
from durableflows.core.states import ApprovalState, StepState
from durableflows.doctor import counts
from durableflows.doctor.counts import Counted, Part
from durableflows.doctor.rows import Scope
from durableflows.models.step import GOES_ON

MARGIN_SECONDS = 30.0
"""What is late by less is only waiting for the next sweep."""


def leases(scope: Scope) -> QuerySet[Any]:
    """Steps that a worker has."""
    return scope.steps().filter(state=StepState.RUNNING, run__ended_at__isnull=True)


def retries(scope: Scope) -> QuerySet[Any]:
    """Steps that wait for their next try."""
    return scope.steps().filter(state=StepState.RETRY_SCHEDULED, run__parked_reason="", run__ended_at__isnull=True)


def unsent(scope: Scope) -> QuerySet[Any]:
    """Steps that may begin."""
    return scope.steps().filter(state=StepState.READY, run__parked_reason="", run__ended_at__isnull=True)


def unsettled(scope: Scope) -> QuerySet[Any]:
    """Steps with effects that are to be looked at."""
    states = [StepState.NEEDS_RECONCILIATION, StepState.WAITING]
    return scope.steps().filter(state__in=states, waits_on="", needs_person=False, run__ended_at__isnull=True)


def timers(scope: Scope) -> QuerySet[Any]:
    """Steps that wait for a time or a signal."""
    return scope.steps().filter(GOES_ON, state=StepState.WAITING, run__parked_reason="").exclude(waits_on="")


def expired(scope: Scope) -> QuerySet[Any]:
    """Requests that may expire."""
    return scope.requests().filter(state=ApprovalState.OPEN, run__ended_at__isnull=True, run__ending_reason="")


def past_deadline(scope: Scope) -> QuerySet[Any]:
    """Runs that have a deadline before them, or behind."""
    return scope.runs().filter(ended_at__isnull=True, ending_reason="")


def cleanups(scope: Scope) -> QuerySet[Any]:
    """Runs that undo, or clean up, within a bound."""
    return scope.runs().filter(ended_at__isnull=True, ending_phase__in=[str(one) for one in AT_WORK])


WHEN: Mapping[str, tuple[Callable[[Scope], QuerySet[Any]], str]] = {
    "lease-overdue": (leases, "must_end_by"),
    "retry-overdue": (retries, "wake_at"),
    "unsent": (unsent, "resend_at"),
    "look-overdue": (unsettled, "wake_at"),
    "timer-overdue": (timers, "wake_at"),
    "request-overdue": (expired, "expires_at"),
    "deadline-overdue": (past_deadline, "deadline_at"),
    "cleanup-overdue": (cleanups, "cleanup_until"),
}
"""The doctor's code for what is late -> the rows, and the field that says when they are due."""


@dataclass(frozen=True, slots=True)
class Late:
    """How many rows are late by more than the margin, and since when the latest of them."""

    code: str
    count: int
    since: datetime | None


def overdue(scope: Scope) -> Iterator[Late]:
    """What is late, counted by one statement, each code by an index on its time. Those with nothing late too."""
    return late(counts.count(parts(scope)))


def parts(scope: Scope) -> Iterator[Part]:
    """The same as parts of a statement that counts other things as well; `late` reads its answer."""
    before = scope.now - timedelta(seconds=MARGIN_SECONDS)
    for code, (rows, field) in WHEN.items():
        yield counts.part(code, rows(scope).filter(**{f"{field}__lt": before}), Min(field))


def late(counted: Mapping[str, list[Counted]]) -> Iterator[Late]:
    """What is late, of all that was counted."""
    for code in WHEN:
        for one in counted[code]:
            yield Late(code, one.count, one.at)
