"""Has every live run a next thing, and does it come when it is due? (P10)"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Subquery

from durableflows.conf import settings
from durableflows.core.ending import AT_WORK
from durableflows.core.states import EFFECT_PENDING, STEP_OPEN, ApprovalState, RunState, StepState, WaitsOn
from durableflows.doctor import due
from durableflows.doctor.findings import Finding, finding, listed
from durableflows.doctor.rows import CHUNK, Scope
from durableflows.models import ApprovalRequest, SideEffect, StepRun, Worker, WorkflowRun
from durableflows.models.step import GOES_ON
from durableflows.transactions import database

Found = Iterator[tuple[UUID, str]]

STUCK_SECONDS = 600.0
"""Late by more under a living ticker: sweeping does not help."""
SENDS_UNCLAIMED = 4


def ticking_since(now: datetime) -> datetime | None:
    """Since when the longest running of the living tickers has been there, or None."""
    beats = Worker.objects.using(database()).filter(stopped_at__isnull=True)
    fresh = now - timedelta(seconds=settings().STALE_SECONDS)
    started: datetime | None = (
        beats.filter(heartbeat_at__gt=fresh, swept_at__gt=fresh)
        .order_by("started_at")
        .values_list("started_at", flat=True)
        .first()
    )
    return started


def examine_waits(scope: Scope) -> list[Finding]:
    """All findings about what comes next, and about what is late."""
    return [
        *listed("no-next-thing", _without_next(scope)),
        *listed("no-request", _without_request(scope)),
        *listed("request-without-step", _without_step(scope)),
        *_late(scope, "lease-overdue", due.leases(scope), "must_end_by", "its worker should have ended it"),
        *_late(scope, "retry-overdue", due.retries(scope), "wake_at", "it should have been tried again"),
        *_late(scope, "unsent", due.unsent(scope), "resend_at", "it should have been sent to a worker"),
        *_late(scope, "look-overdue", due.unsettled(scope), "wake_at", "it should have been looked at"),
        *_late(scope, "timer-overdue", due.timers(scope), "wake_at", "its time has come"),
        *_by_age(scope, "crossing-overdue", list(_crossings(scope))),
        *_late(scope, "request-overdue", due.expired(scope), "expires_at", "its request should have expired"),
        *_late_runs(scope, "deadline-overdue", due.past_deadline(scope), "deadline_at", "its deadline has passed"),
        *_late_runs(scope, "cleanup-overdue", due.cleanups(scope), "cleanup_until", "its undo or clean-up is late"),
        *_late_runs(scope, "end-overdue", _quiet(scope), "changed_at", "it is ending and nothing of it is open"),
        *listed("parked", _parked(scope)),
        *listed("needs-person", _needs_person(scope)),
        *listed("unanswerable", _unanswerable(scope)),
        *listed("unclaimed", _unclaimed(scope)),
        *_unknown(scope),
        *_tickers(scope),
    ]


def _without_next(scope: Scope) -> Found:
    live = scope.steps().filter(run__ended_at__isnull=True)
    goes_on = Q(run__parked_reason="") & GOES_ON
    nothing = (
        Q(state=StepState.READY, resend_at__isnull=True) & goes_on
        | Q(state=StepState.RETRY_SCHEDULED, wake_at__isnull=True) & goes_on
        | Q(state=StepState.RUNNING, must_end_by__isnull=True)
        | Q(state__in=[StepState.NEEDS_RECONCILIATION, StepState.WAITING], wake_at__isnull=True, needs_person=False)
        & Q(waits_on="")
        | Q(state=StepState.WAITING, waits_on=WaitsOn.TIMER, wake_at__isnull=True)
        | Q(state=StepState.WAITING, waits_on=WaitsOn.BRANCHES) & ~Exists(_others(scope)) & goes_on
        | Q(state=StepState.WAITING, waits_on=WaitsOn.TURN) & ~Exists(_under_way(scope)) & goes_on
    )
    values = live.filter(nothing).values_list("run_id", "name", "state")
    for run_id, name, state in values.iterator(chunk_size=CHUNK):
        yield run_id, f"step {name} is {state} and nothing says when it goes on"


def _others(scope: Scope) -> QuerySet[Any]:
    """Open steps of the same run that a join may wait for: when all of them are joins, one of these has begun."""
    still_open = scope.steps().filter(run=OuterRef("run"), state__in=[str(state) for state in STEP_OPEN])
    return still_open.exclude(waits_on=WaitsOn.BRANCHES)


def _under_way(scope: Scope) -> QuerySet[Any]:
    """Branches of the same group whose end gives the next item its turn."""
    group = scope.steps().filter(gather=OuterRef("gather"), each_step=OuterRef("each_step"))
    return group.filter(state__in=[str(state) for state in STEP_OPEN]).exclude(waits_on=WaitsOn.TURN)


def _without_request(scope: Scope) -> Found:
    asked = ApprovalRequest.objects.using(database()).filter(step=OuterRef("pk"), state=ApprovalState.OPEN)
    steps = scope.steps().filter(run__ended_at__isnull=True, run__ending_reason="", state=StepState.WAITING_HUMAN)
    for run_id, name in steps.filter(~Exists(asked)).values_list("run_id", "name").iterator(chunk_size=CHUNK):
        yield run_id, f"step {name} waits for a decision that nobody is asked for"


def _without_step(scope: Scope) -> Found:
    requests = scope.requests().filter(state=ApprovalState.OPEN, run__ended_at__isnull=True)
    values = requests.exclude(step__state=StepState.WAITING_HUMAN).values_list("run_id", "pk", "step__state")
    for run_id, pk, state in values.iterator(chunk_size=CHUNK):
        yield run_id, f"request {pk} is open and its step is {state}"


def _crossings(scope: Scope) -> Iterator[tuple[UUID, datetime, str]]:
    """Steps whose child was not started, or whose child's end was not handed over."""
    children = WorkflowRun.objects.using(database()).filter(parent_step=OuterRef("pk"))
    steps = scope.steps().filter(GOES_ON, state=StepState.WAITING, waits_on=WaitsOn.CHILD, run__parked_reason="")
    since = scope.now - timedelta(seconds=due.MARGIN_SECONDS)
    found = steps.annotate(child_ended_at=Subquery(children.values("ended_at")[:1]), has_child=Exists(children))
    late = found.filter(Q(has_child=False, created_at__lt=since) | Q(child_ended_at__lt=since))
    rows = late.values_list("run_id", "name", "created_at", "child_ended_at").iterator(chunk_size=CHUNK)
    for run_id, name, asked_at, ended_at in rows:
        what = "its child has ended and was not handed over" if ended_at else "its child was not started"
        yield run_id, ended_at or asked_at, f"step {name}: {what}"


def _quiet(scope: Scope) -> QuerySet[Any]:
    rows = SideEffect.objects.using(database()).filter(run=OuterRef("pk"))
    is_open = Q(state__in=[str(state) for state in EFFECT_PENDING]) | Q(settles_at__gt=scope.now)
    at_work = StepRun.objects.using(database()).filter(run=OuterRef("pk"), state__in=[str(s) for s in STEP_OPEN])
    runs = scope.runs().filter(state__in=[RunState.ENDING, RunState.COMPENSATING])
    waits = WorkflowRun.objects.using(database()).filter(parent=OuterRef("pk"), ended_at__isnull=True)
    runs = runs.exclude(Exists(waits))  # what it has started is undone first
    runs = runs.exclude(Exists(at_work.filter(of_cleanup=True)), ending_phase__in=[str(one) for one in AT_WORK])
    return runs.filter(~Exists(rows.filter(is_open)))


def _late(scope: Scope, code: str, rows: QuerySet[Any], field: str, what: str) -> list[Finding]:
    """Steps and requests whose time has passed by more than the margin, with the step's name."""
    name = "step__name" if field == "expires_at" else "name"
    error = "send_error" if field == "resend_at" else name
    late = rows.filter(**{f"{field}__lt": scope.now - timedelta(seconds=due.MARGIN_SECONDS)})
    found = [
        (run_id, at, f"step {step}: {what}" + (f" ({text})" if error == "send_error" and text else ""))
        for run_id, at, step, text in late.values_list("run_id", field, name, error).iterator(chunk_size=CHUNK)
    ]
    return _by_age(scope, code, found)


def _late_runs(scope: Scope, code: str, rows: QuerySet[Any], field: str, what: str) -> list[Finding]:
    late = rows.filter(**{f"{field}__lt": scope.now - timedelta(seconds=due.MARGIN_SECONDS)})
    found = [
        (run_id, at, f"the run: {what}") for run_id, at in late.values_list("pk", field).iterator(chunk_size=CHUNK)
    ]
    return _by_age(scope, code, found)


def _by_age(scope: Scope, code: str, found: list[tuple[UUID, datetime, str]]) -> list[Finding]:
    """Late without a ticker is due; late for long, although one has been sweeping all the time, is broken."""
    limit = scope.now - timedelta(seconds=STUCK_SECONDS)
    sweeps = scope.ticking_since is not None and scope.ticking_since < limit
    stuck = [(run_id, _since(text, at)) for run_id, at, text in found if sweeps and at < limit]
    late = [(run_id, _since(text, at)) for run_id, at, text in found if not (sweeps and at < limit)]
    return [*listed("stuck", stuck), *listed(code, late)]


def _since(text: str, at: datetime) -> str:
    return f"{text}, due since {at:%Y-%m-%d %H:%M:%S} UTC"


def _parked(scope: Scope) -> Found:
    runs = scope.runs().filter(ended_at__isnull=True).exclude(parked_reason="")
    for run_id, reason, detail in runs.values_list("pk", "parked_reason", "parked_detail").iterator(chunk_size=CHUNK):
        yield run_id, f"parked, {reason}: {detail}"


def _needs_person(scope: Scope) -> Found:
    steps = scope.steps().filter(needs_person=True, run__ended_at__isnull=True)
    for run_id, name, why in steps.values_list("run_id", "name", "waits_for").iterator(chunk_size=CHUNK):
        yield run_id, f"step {name}: {why}"


def _unanswerable(scope: Scope) -> Found:
    requests = scope.requests().filter(state=ApprovalState.OPEN, unanswerable_at__isnull=False)
    for request in requests.filter(run__ended_at__isnull=True).iterator(chunk_size=CHUNK):
        asked = request.asked_of.words() if request.asked_of else "nobody"
        since = f"{request.unanswerable_at:%Y-%m-%d %H:%M} UTC"
        yield request.run_id, f"{request.title!r} is asked of {asked}: nobody could answer since {since}"


def _unclaimed(scope: Scope) -> Found:
    steps = scope.steps().filter(
        state=StepState.READY, sends__gte=SENDS_UNCLAIMED, run__parked_reason="", run__ended_at__isnull=True
    )
    for run_id, name, sends, why in steps.values_list("run_id", "name", "sends", "retry_reason").iterator(CHUNK):
        yield run_id, f"step {name} was sent {sends} times and no worker took it" + (f": {why}" if why else "")


def _unknown(scope: Scope) -> list[Finding]:
    """Releases of live runs that no living worker has; silent where none lives, which is another finding."""
    fresh = scope.now - timedelta(seconds=settings().STALE_SECONDS)
    workers = Worker.objects.using(database()).filter(stopped_at__isnull=True, heartbeat_at__gt=fresh)
    known = [
        {(str(name), int(version)) for name, version in knows} for knows in workers.values_list("knows", flat=True)
    ]
    if not any(known):
        return []
    live = scope.runs().filter(ended_at__isnull=True, parked_reason="").order_by("workflow", "version")
    counts = live.values_list("workflow", "version").annotate(count=Count("pk"))
    return [
        finding("unknown-release", None, f"{count} runs of {name}, version {version}, and no living worker knows it")
        for name, version, count in counts
        if (name, version) not in set().union(*known)
    ]


def _last_sweep() -> str:
    last: datetime | None = Worker.objects.using(database()).aggregate(last=Max("swept_at"))["last"]
    return f"; the last sweep was at {last:%Y-%m-%d %H:%M:%S} UTC" if last is not None else ""


def _tickers(scope: Scope) -> list[Finding]:
    if scope.ticking_since is not None or not scope.runs().filter(ended_at__isnull=True).exists():
        return []
    fresh = scope.now - timedelta(seconds=settings().STALE_SECONDS)
    beating = Worker.objects.using(database()).filter(stopped_at__isnull=True, heartbeat_at__gt=fresh)
    if not beating.exists():
        return [finding("no-ticker", None, f"runs are under way and no ticker has been heard of{_last_sweep()}")]
    # One that has just started has not swept yet.
    old = beating.filter(started_at__lt=fresh)
    return [finding("ticker-stalled", None, f"ticker {worker.name} beats and does not sweep") for worker in old]
