"""Is the engine at work? A handful of figures with their limits, for monitors that ask each few seconds. Reads only.

Called by the pages of monitors and by `manage.py durableflows health`. `doctor` proves promises and names the runs;
this only says whether what should go on by itself does: when each periodic job last ran, how much waits, and since
when. Source: R40.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min

from durableflows import clock, doctor, housekeeping
from durableflows.conf import settings
from durableflows.core.states import STEP_OPEN, ApprovalState, StepState
from durableflows.doctor import due
from durableflows.doctor.rows import Scope, snapshot
from durableflows.housekeeping import Job
from durableflows.metrics.values import age
from durableflows.models import ApprovalRequest, SideEffect, StepRun, Worker, WorkflowRun
from durableflows.transactions import database


@dataclass(frozen=True, slots=True)
class Check:
    """One figure. `limit`: above it the check is red. `count`: of how many rows. `cure`: what helps then."""

    name: str
    says: str
    value: float
    limit: float
    cure: str
    count: int | None = None

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
    """All checks, of one moment; when each periodic job last ran, and how many runs and steps stand where."""

    at: datetime
    checks: tuple[Check, ...]
    jobs: tuple[Job, ...]
    runs: Mapping[str, int]
    steps: Mapping[str, int]

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
_JOB = "A job that fails says so here and in the ticker's log; one that never runs wants a ticker. " + _WORKER
_DOCTOR = "`manage.py durableflows doctor` names the runs, and what helps."
_QUEUE = "Is the broker there, do workers listen to these queues, are there enough of them? Steps are sent again."
_TWICE = "An effect may have happened twice: `doctor` names it; look, then `resolve EFFECT --verdict seen`."
_WAIT = "Somebody has to answer: the console's view *Waiting for people* names the runs and who is asked."


def examine() -> Health:
    """Look at all of it. A dozen short queries."""
    with snapshot():
        now = clock.now()
        jobs = housekeeping.last_runs()
        return Health(now, tuple(_checks(now, jobs)), jobs, _runs(), _steps())


def _runs() -> dict[str, int]:
    """Those that have not ended."""
    live = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True).order_by("state")
    return {str(state): count for state, count in live.values_list("state").annotate(count=Count("pk"))}


def _steps() -> dict[str, int]:
    """Those of them that are open."""
    live = StepRun.objects.using(database()).filter(
        run__ended_at__isnull=True, state__in=[str(one) for one in STEP_OPEN]
    )
    return {
        str(state): count for state, count in live.order_by("state").values_list("state").annotate(count=Count("pk"))
    }


def _checks(now: datetime, jobs: tuple[Job, ...]) -> Iterator[Check]:
    limits = settings()
    has_runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True).exists()
    yield from _workers(now, jobs, has_runs=has_runs)
    yield _outbox(now)
    late = {one.code: one for one in doctor.overdue(now)}
    leases = late.pop("lease-overdue")
    del late["unsent"]  # the outbox
    says = "seconds by which the lease of a step is overdue"
    yield Check("expired_lease", says, age(now, leases.since), limits.HEALTH_LATE_SECONDS, _DOCTOR, leases.count)
    since = min((one.since for one in late.values() if one.since is not None), default=None)
    count = sum(one.count for one in late.values())
    says = "seconds by which something that goes on by itself is late: a retry, a timer, a request, a deadline"
    yield Check("overdue", says, age(now, since), limits.HEALTH_LATE_SECONDS, _DOCTOR, count)
    yield _queue(now)
    yield _oldest_wait(now)
    doubled = SideEffect.objects.using(database()).exclude(contradiction="").count()
    yield Check("contradictions", "effects that contradict what was told before", doubled, 0, _TWICE)


def _workers(now: datetime, jobs: tuple[Job, ...], *, has_runs: bool) -> Iterator[Check]:
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
    # A ticker of an older release sweeps and does not say which jobs it has done.
    since = min((job.ran_at or never or swept or now for job in jobs), default=now) if _is_told(jobs) else now
    says = "seconds since the periodic job that waits longest was last done"
    late = sum(age(now, job.ran_at) > settings().HEALTH_LATE_SECONDS for job in jobs)
    yield Check(
        "jobs",
        says,
        age(now, since) if has_runs else 0.0,
        settings().HEALTH_LATE_SECONDS,
        _JOB,
        late if has_runs else 0,
    )


def _is_told(jobs: tuple[Job, ...]) -> bool:
    return any(job.ran_at is not None or job.error for job in jobs)


def _outbox(now: datetime) -> Check:
    """Steps that are to be sent, or sent again, and nobody has."""
    rows = due.unsent(Scope(None, now, None)).filter(resend_at__lte=now).order_by()
    found = rows.aggregate(count=Count("pk"), since=Min("resend_at"))
    says = "seconds for which the oldest step waits to be sent to a worker"
    limit = settings().HEALTH_LATE_SECONDS
    return Check("outbox", says, age(now, found["since"]), limit, _QUEUE, found["count"])


def _queue(now: datetime) -> Check:
    steps = StepRun.objects.using(database()).filter(
        state=StepState.READY, held_by="", sent_at__isnull=False, run__parked_reason="", run__ended_at__isnull=True
    )
    found = steps.order_by().aggregate(count=Count("pk"), since=Min("sent_at"))
    says = "seconds for which a step that was sent waits for a worker"
    limit = settings().HEALTH_QUEUE_SECONDS
    return Check("queue", says, age(now, found["since"]), limit, _QUEUE, found["count"])


def _oldest_wait(now: datetime) -> Check:
    rows = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN, run__ended_at__isnull=True)
    found = rows.order_by().aggregate(count=Count("pk"), since=Min("created_at"))
    says = "seconds for which somebody waits for a person's answer"
    limit = settings().HEALTH_WAIT_SECONDS
    return Check("oldest_wait", says, age(now, found["since"]), limit, _WAIT, found["count"])
