"""How things stand now: gauges of what has not ended. Reads only; each query is bounded by what is under way."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Q

from durableflows import doctor, provider_state
from durableflows.conf import settings
from durableflows.core.breaker import BreakerState
from durableflows.core.states import STEP_OPEN, ApprovalState, EffectState, StepState
from durableflows.metrics import values
from durableflows.metrics.values import Sample, age
from durableflows.models import ApprovalRequest, SideEffect, StepRun, Worker, WorkflowRun
from durableflows.transactions import database

OPEN_EFFECTS = (EffectState.DISPATCHED, EffectState.UNKNOWN, EffectState.ACCEPTED)


def standing(now: datetime) -> Iterator[Sample]:
    """All of them."""
    yield from _runs(now)
    yield from _steps(now)
    yield from _overdue(now)
    yield from _requests(now)
    yield from _effects(now)
    yield from _providers()
    yield from _workers(now)


def _runs(now: datetime) -> Iterator[Sample]:
    live = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True).order_by()
    rows = live.values("workflow", "state", "parked_reason").annotate(count=Count("pk"), oldest=Min("created_at"))
    counts: dict[tuple[str, str], tuple[int, datetime]] = {}
    for row in rows:
        key = row["workflow"], str(row["state"])
        count, oldest = counts.get(key, (0, row["oldest"]))
        counts[key] = count + row["count"], min(oldest, row["oldest"])
        if row["parked_reason"]:
            yield values.PARKED.sample(row["count"], row["workflow"], row["parked_reason"])
    for key, (count, oldest) in counts.items():
        yield values.RUNS.sample(count, *key)
        yield values.OLDEST_RUN.sample(age(now, oldest), *key)


def _steps(now: datetime) -> Iterator[Sample]:
    steps = StepRun.objects.using(database()).filter(
        run__ended_at__isnull=True, state__in=[str(state) for state in STEP_OPEN]
    )
    queued = Q(state=StepState.READY, sent_at__isnull=False)
    rows = (
        steps.order_by()
        .values("run__workflow", "state")
        .annotate(
            count=Count("pk"),
            people=Count("pk", filter=Q(needs_person=True)),
            queued=Count("pk", filter=queued),
            since=Min("sent_at", filter=queued),
        )
    )
    people: dict[str, int] = {}
    for row in rows:
        workflow = row["run__workflow"]
        people[workflow] = people.get(workflow, 0) + row["people"]
        yield values.STEPS.sample(row["count"], workflow, str(row["state"]))
        if row["queued"]:
            yield values.QUEUED.sample(row["queued"], workflow)
            yield values.OLDEST_QUEUED.sample(age(now, row["since"]), workflow)
    for workflow, count in people.items():
        yield values.PEOPLE.sample(count, workflow)


def _overdue(now: datetime) -> Iterator[Sample]:
    for late in doctor.overdue(now):
        yield values.OVERDUE.sample(late.count, late.code)
        yield values.OLDEST_OVERDUE.sample(age(now, late.since), late.code)


def _requests(now: datetime) -> Iterator[Sample]:
    rows = ApprovalRequest.objects.using(database()).filter(state=ApprovalState.OPEN).order_by()
    for row in rows.values("run__workflow").annotate(count=Count("pk"), oldest=Min("created_at")):
        yield values.REQUESTS.sample(row["count"], row["run__workflow"])
        yield values.OLDEST_REQUEST.sample(age(now, row["oldest"]), row["run__workflow"])


def _effects(now: datetime) -> Iterator[Sample]:
    rows = SideEffect.objects.using(database()).order_by()
    still_open = rows.filter(state__in=[str(state) for state in OPEN_EFFECTS])
    oldest: dict[str, datetime] = {}
    for row in still_open.values("provider", "state").annotate(count=Count("pk"), since=Min("in_doubt_since")):
        provider, since = row["provider"], row["since"]
        yield values.EFFECTS.sample(row["count"], provider, str(row["state"]))
        if since is not None:
            oldest[provider] = min(since, oldest.get(provider, since))
    for provider, since in oldest.items():
        yield values.OLDEST_DOUBT.sample(age(now, since), provider)
    doubled = rows.exclude(contradiction="").values("provider").annotate(count=Count("pk"))
    for provider, count in doubled.values_list("provider", "count"):
        yield values.CONTRADICTIONS.sample(count, provider)


def _providers() -> Iterator[Sample]:
    for name, breaker in provider_state.read_all().items():
        if breaker.state is not BreakerState.CLOSED:
            yield values.PROVIDERS.sample(1, name, str(breaker.state))
    held = StepRun.objects.using(database()).filter(state=StepState.READY).exclude(held_by="").order_by()
    for row in held.values("held_by").annotate(count=Count("pk")):
        yield values.HELD.sample(row["count"], row["held_by"])


def _workers(now: datetime) -> Iterator[Sample]:
    workers = Worker.objects.using(database()).filter(stopped_at__isnull=True)
    fresh = now - timedelta(seconds=settings().STALE_SECONDS)
    found = workers.aggregate(living=Count("pk", filter=Q(heartbeat_at__gt=fresh)), swept=Max("swept_at"))
    yield values.WORKERS.sample(found["living"])
    yield values.SWEPT.sample(age(now, found["swept"]) if found["swept"] else -1)
