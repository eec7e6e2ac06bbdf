"""Is the engine at work? A handful of figures with their limits, for monitors that ask each few seconds. Reads only.

Called by the pages of monitors and by `manage.py durableflows health`. `doctor` proves promises and names the runs;
this only says whether what should go on by itself does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Min

from durableflows import clock, doctor
from durableflows.conf import settings
from durableflows.core.states import StepState
from durableflows.doctor.rows import snapshot
from durableflows.metrics.values import age
from durableflows.models import SideEffect, StepRun, Worker, WorkflowRun
from durableflows.transactions import database


@dataclass(frozen=True, slots=True)
class Check:
    """One figure. `limit`: above it the check is red. `cure`: what helps then."""

    name: str
    says: str
    value: float
    limit: float
    cure: str

    @property
    def is_red(self) -> bool:
        """Is it past its limit?"""
        return self.value > self.limit

    @property
    def word(self) -> str:
        """For people."""
        return "red" if self.is_red else "ok"


@dataclass(frozen=True, slots=True)
class Health:
    """All checks, of one moment."""

    at: datetime
    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Is none red?"""
        return not any(check.is_red for check in self.checks)

    @property
    def word(self) -> str:
        """For people and programs."""
        return "ok" if self.is_well else "red"


_WORKER = (
    "Start a worker: `celery -A PROJECT worker`; its ticker does what is due. Once: `manage.py durableflows sweep`."
)
_DOCTOR = "`manage.py durableflows doctor` names the runs, and what helps."
_QUEUE = "Is the broker there, do workers listen to these queues, are there enough of them? Steps are sent again."
_TWICE = "An effect may have happened twice: `doctor` names it; look, then `resolve EFFECT --verdict seen`."


def examine() -> Health:
    """Look at all of it. A dozen short queries."""
    with snapshot():
        now = clock.now()
        return Health(now, tuple(_checks(now)))


def _checks(now: datetime) -> Iterator[Check]:
    limits = settings()
    has_runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True).exists()
    yield from _workers(now, has_runs=has_runs)
    late = {one.code: one for one in doctor.overdue(now)}
    leases = late.pop("lease-overdue")
    says = "seconds by which the lease of a step is overdue"
    yield Check("expired_lease", says, age(now, leases.since), limits.HEALTH_LATE_SECONDS, _DOCTOR)
    since = min((one.since for one in late.values() if one.since is not None), default=None)
    says = "seconds by which something that goes on by itself is late: a retry, a timer, a request, a deadline"
    yield Check("overdue", says, age(now, since), limits.HEALTH_LATE_SECONDS, _DOCTOR)
    says = "seconds for which a step that was sent waits for a worker"
    yield Check("queue", says, age(now, _oldest_queued()), limits.HEALTH_QUEUE_SECONDS, _QUEUE)
    doubled = SideEffect.objects.using(database()).exclude(contradiction="").count()
    yield Check("contradictions", "effects that contradict what was told before", doubled, 0, _TWICE)


def _workers(now: datetime, *, has_runs: bool) -> Iterator[Check]:
    """Nobody needs a worker where nothing is under way."""
    stale = settings().STALE_SECONDS
    workers = Worker.objects.using(database()).filter(stopped_at__isnull=True)
    fresh = workers.filter(heartbeat_at__gt=now - timedelta(seconds=stale))
    missing = has_runs and not fresh.exists()
    yield Check("workers", "1 when runs are under way and no worker lives", float(missing), 0, _WORKER)
    swept: datetime | None = workers.aggregate(swept=Max("swept_at"))["swept"]
    never = fresh.aggregate(started=Min("started_at"))["started"]  # one that has just started has not swept yet
    seconds = age(now, swept or never) if has_runs else 0.0
    yield Check("last_sweep", "seconds since anything due was looked for", seconds, stale, _WORKER)


def _oldest_queued() -> datetime | None:
    steps = StepRun.objects.using(database()).filter(
        state=StepState.READY, held_by="", run__parked_reason="", run__ended_at__isnull=True
    )
    oldest: datetime | None = steps.aggregate(oldest=Min("sent_at"))["oldest"]
    return oldest
