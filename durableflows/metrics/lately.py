"""What happened lately: counts over the last minutes, from rows that are found by their ids, which carry the time.

An id is made by the clock of the machine that wrote the row, so ids are taken from an hour earlier, and the row's own
time decides. Reads only.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from statistics import quantiles
from uuid import UUID

from django.db.models import Case, CharField, Count, F, QuerySet, Value, When

from durableflows.core.states import RunState, StepState
from durableflows.metrics import values
from durableflows.metrics.values import WINDOW, Sample
from durableflows.models import EffectSend, RunEvent
from durableflows.transactions import database

SKEW = timedelta(hours=1)
MOST_ENDS = 20_000
"""So many of the newest ends are measured; more of them in a few minutes give the same quantiles."""
QUANTILES = {"0.5": 49, "0.95": 94, "0.99": 98}


def lately(now: datetime) -> Iterator[Sample]:
    """All of them."""
    yield from _events(now)
    yield from _ends(now)
    yield from _resumed(now)
    yield from _sends(now)


def first_id(at: datetime) -> UUID:
    """The lowest id that a row made at this moment can have (UUIDv7)."""
    return UUID(int=(int(at.timestamp() * 1000) & 0xFFFF_FFFF_FFFF) << 80)


def _written(now: datetime) -> QuerySet[RunEvent]:
    since = now - WINDOW
    return RunEvent.objects.using(database()).filter(pk__gte=first_id(since - SKEW), at__gte=since).order_by()


def _events(now: datetime) -> Iterator[Sample]:
    special = {"step.retry_scheduled": values.RETRIES, "step.worker_lost": values.LOST}
    for row in _written(now).values("run__workflow", "kind").annotate(count=Count("pk")):
        yield values.EVENTS.sample(row["count"], row["run__workflow"], row["kind"])
        if kind := special.get(row["kind"]):
            yield kind.sample(row["count"], row["run__workflow"])


def _ends(now: datetime) -> Iterator[Sample]:
    ends = _written(now).filter(kind="run.ended", run__ended_at__isnull=False).order_by("-pk")
    rows = ends.values_list("run__workflow", "run__state", "run__created_at", "run__ended_at")[:MOST_ENDS]
    counts: dict[tuple[str, str], int] = {}
    seconds: dict[str, list[float]] = {}
    for workflow, state, created_at, ended_at in rows:
        assert ended_at is not None
        counts[workflow, str(state)] = counts.get((workflow, str(state)), 0) + 1
        if state == RunState.SUCCEEDED:
            seconds.setdefault(workflow, []).append((ended_at - created_at).total_seconds())
    for (workflow, state), count in counts.items():
        yield values.ENDED.sample(count, workflow, state)
    for workflow, found in seconds.items():
        cuts = quantiles(found * 2 if len(found) == 1 else found, n=100, method="inclusive")
        for quantile, position in QUANTILES.items():
            yield values.LATENCY.sample(cuts[position], workflow, quantile)


def _resumed(now: datetime) -> Iterator[Sample]:
    """Steps that had lost a worker, and have ended lately."""
    ends = _written(now).filter(kind__in=["step.succeeded", "step.failed"], step__lost_workers__gt=0)
    outcome = Case(
        When(step__state=StepState.SUCCEEDED, then=Value("done")), default=Value("failed"), output_field=CharField()
    )
    rows = ends.annotate(outcome=outcome).values("run__workflow", "outcome")
    for row in rows.annotate(count=Count("step", distinct=True)):
        yield values.RESUMED.sample(row["count"], row["run__workflow"], row["outcome"])


def _sends(now: datetime) -> Iterator[Sample]:
    since = now - WINDOW
    sends = EffectSend.objects.using(database()).filter(pk__gte=first_id(since - SKEW), started_at__gte=since)
    kind = Case(
        When(kind="lookup", then=Value("lookup")),
        When(number__gt=1, then=Value("repeat")),
        default=Value("first"),
        output_field=CharField(),
    )
    rows = sends.order_by().annotate(what=kind, of=F("effect__provider")).values("of", "what")
    for row in rows.annotate(count=Count("pk")):
        yield values.SENDS.sample(row["count"], row["of"], row["what"])
