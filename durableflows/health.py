"""Is the engine at work? A handful of figures with their limits, for monitors that ask each few seconds. Reads only.

Called by the pages of monitors and by `manage.py durableflows health`. `doctor` proves promises and names the runs;
this only says whether what should go on by itself does: when each periodic job last ran, how much waits, and since
when. Source: R40.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from django.db.models import Max, Min, Q

from durableflows import clock, housekeeping
from durableflows.conf import settings
from durableflows.core.ending import AT_WORK
from durableflows.core.states import ApprovalState, StepState
from durableflows.doctor import counts, due
from durableflows.doctor.counts import Counted, Part
from durableflows.doctor.rows import Scope
from durableflows.housekeeping import Job
from durableflows.metrics.values import age
from durableflows.models import ApprovalRequest, SideEffect, StepRun, Worker, WorkflowRun
from durableflows.transactions import database, uncompiled


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
_WAIT = "Somebody has to answer: the console's view “Somebody is asked” names the runs and who is asked."


def examine() -> Health:
    """Look at all of it: the clock, what tickers say, and one statement that counts everything else."""
    with uncompiled():
        now = clock.now()
        jobs = housekeeping.last_runs()
        counted = counts.count([*_parts(now), *due.parts(Scope(None, now, None))])
    return Health(now, tuple(_checks(now, jobs, counted)), jobs, _by_word(counted, _RUNS), _by_word(counted, _STEPS))


_RUNS, _STEPS, _FRESH, _SWEPT, _OUTBOX, _QUEUED, _ASKED, _DOUBLED = (
    *("runs", "steps", "workers that beat", "workers that sweep"),
    *("to be sent", "sent", "asked", "contradicted"),
)
_OPEN_STEPS = (
    *(Q(state=StepState.READY), Q(state=StepState.RETRY_SCHEDULED), Q(state=StepState.RUNNING)),
    Q(state__in=[StepState.NEEDS_RECONCILIATION, StepState.WAITING]),
    Q(state=StepState.WAITING_HUMAN, requests__state=ApprovalState.OPEN),
    Q(state=StepState.COMPENSATING, run__ending_phase__in=[str(phase) for phase in AT_WORK]),
)
"""All that are open, each by an index of its own: most steps have ended, and one look for all would go through them."""
_AllCounted: TypeAlias = Mapping[str, list[Counted]]


def _parts(now: datetime) -> Iterator[Part]:
    """What is counted, beside what is late; each by an index of what has not ended."""
    alias = database()
    runs = WorkflowRun.objects.using(alias).filter(ended_at__isnull=True)
    yield counts.part(_RUNS, runs, Min("created_at"), by="state")
    steps = StepRun.objects.using(alias).filter(run__ended_at__isnull=True)
    for some in _OPEN_STEPS:
        yield counts.part(_STEPS, steps.filter(some), Min("created_at"), by="state")
    workers = Worker.objects.using(alias).filter(stopped_at__isnull=True)
    fresh = workers.filter(heartbeat_at__gt=now - timedelta(seconds=settings().STALE_SECONDS))
    yield counts.part(_FRESH, fresh, Min("started_at"))
    yield counts.part(_SWEPT, workers, Max("swept_at"))
    unsent = due.unsent(Scope(None, now, None)).filter(resend_at__lte=now)
    yield counts.part(_OUTBOX, unsent, Min("resend_at"))
    sent = steps.filter(state=StepState.READY, held_by="", sent_at__isnull=False, run__parked_reason="")
    yield counts.part(_QUEUED, sent, Min("sent_at"))
    asked = ApprovalRequest.objects.using(alias).filter(state=ApprovalState.OPEN, run__ended_at__isnull=True)
    yield counts.part(_ASKED, asked, Min("created_at"))
    doubled = SideEffect.objects.using(alias).exclude(contradiction="")
    yield counts.part(_DOUBLED, doubled, Min("created_at"))


def _by_word(counted: _AllCounted, name: str) -> dict[str, int]:
    """How many there are in each state."""
    return {one.word: one.count for one in sorted(counted.get(name, ()), key=lambda one: one.word)}


def _checks(now: datetime, jobs: tuple[Job, ...], counted: _AllCounted) -> Iterator[Check]:
    limits = settings()
    yield from _workers(now, jobs, counted)
    yield _outbox(now, counted)
    late = {one.code: one for one in due.late(counted)}
    leases = late.pop("lease-overdue")
    del late["unsent"]  # the outbox
    says = "seconds by which the lease of a step is overdue"
    yield Check("expired_lease", says, age(now, leases.since), limits.HEALTH_LATE_SECONDS, _DOCTOR, leases.count)
    since = min((one.since for one in late.values() if one.since is not None), default=None)
    count = sum(one.count for one in late.values())
    says = "seconds by which something that goes on by itself is late: a retry, a timer, a request, a deadline"
    yield Check("overdue", says, age(now, since), limits.HEALTH_LATE_SECONDS, _DOCTOR, count)
    yield _queue(now, counted)
    yield _oldest_wait(now, counted)
    doubled = counted[_DOUBLED][0].count
    yield Check("contradictions", "effects that contradict what was told before", doubled, 0, _TWICE)


def _workers(now: datetime, jobs: tuple[Job, ...], counted: _AllCounted) -> Iterator[Check]:
    """Nobody needs a worker where nothing is under way."""
    stale, late_seconds = settings().STALE_SECONDS, settings().HEALTH_LATE_SECONDS
    has_runs, fresh = bool(counted.get(_RUNS)), counted[_FRESH][0]
    missing = has_runs and not fresh.count
    yield Check("workers", "1 when runs are under way and no worker lives", float(missing), 0, _WORKER)
    swept, never = counted[_SWEPT][0].at, fresh.at  # one that has just started has not swept yet
    seconds = age(now, swept or never) if has_runs else 0.0
    yield Check("last_sweep", "seconds since anything due was looked for", seconds, stale, _WORKER)
    # A ticker of an older release sweeps and does not say which jobs it has done.
    since = min((job.ran_at or never or swept or now for job in jobs), default=now) if _is_told(jobs) else now
    says = "seconds since the periodic job that waits longest was last done"
    late = sum(age(now, job.ran_at) > late_seconds for job in jobs) if has_runs else 0
    yield Check("jobs", says, age(now, since) if has_runs else 0.0, late_seconds, _JOB, late)


def _is_told(jobs: tuple[Job, ...]) -> bool:
    return any(job.ran_at is not None or job.error for job in jobs)


def _outbox(now: datetime, counted: _AllCounted) -> Check:
    """Steps that are to be sent, or sent again, and nobody has."""
    found, limit = counted[_OUTBOX][0], settings().HEALTH_LATE_SECONDS
    says = "seconds for which the oldest step waits to be sent to a worker"
    return Check("outbox", says, age(now, found.at), limit, _QUEUE, found.count)


def _queue(now: datetime, counted: _AllCounted) -> Check:
    found, limit = counted[_QUEUED][0], settings().HEALTH_QUEUE_SECONDS
    says = "seconds for which a step that was sent waits for a worker"
    return Check("queue", says, age(now, found.at), limit, _QUEUE, found.count)


def _oldest_wait(now: datetime, counted: _AllCounted) -> Check:
    found, limit = counted[_ASKED][0], settings().HEALTH_WAIT_SECONDS
    says = "seconds for which somebody waits for a person's answer"
    return Check("oldest_wait", says, age(now, found.at), limit, _WAIT, found.count)
