"""Which runs a view of the console keeps, and what its fields find: conditions on rows, each led by an index (R39).

Reads nothing itself. Each keeps of the runs that the person may see those under it, never more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.db.models import Q, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.lookups import Exact

from durableflows import accounts
from durableflows.core.states import STEP_OPEN, ApprovalState, EffectState, ParkedReason, RunState, StepState
from durableflows.doctor.due import MARGIN_SECONDS, WHEN
from durableflows.doctor.rows import Scope
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.reading.looking import as_id
from durableflows.transactions import database

Runs = QuerySet[WorkflowRun]
FEW, COUNTED = 1000, 10_000
FAILED = [str(RunState.FAILED), str(RunState.COMPENSATION_FAILED)]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
AGES: Mapping[str, tuple[str, str, timedelta]] = {
    "hour": ("in the last hour", "gte", HOUR),
    "day": ("in the last 24 hours", "gte", DAY),
    "week": ("in the last 7 days", "gte", 7 * DAY),
    "over-hour": ("more than an hour ago", "lt", HOUR),
    "over-day": ("more than a day ago", "lt", DAY),
    "over-week": ("more than 7 days ago", "lt", 7 * DAY),
    "over-month": ("more than 30 days ago", "lt", 30 * DAY),
}
"""When a run was started: the words, and which side of which moment."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of live runs that stand somewhere, and the field that says since when each does."""

    rows: QuerySet[Any]
    since: str


def kept(choice: str, now: datetime) -> Kept | None:
    """The rows that a view of one kind of row keeps the runs of; None for a view of runs."""
    match choice:
        case "asked":
            return Kept(_requests().filter(state=ApprovalState.OPEN, run__ended_at__isnull=True), "created_at")
        case "retried":
            return Kept(_retried().filter(run__ended_at__isnull=True), "tries_since")
        case "unsent":
            return Kept(_ready().filter(held_by="", sent_at__isnull=True), "resend_at")
        case "queued":
            return Kept(_ready().filter(held_by="", sent_at__isnull=False), "sent_at")
        case "held":
            return Kept(_ready().exclude(held_by=""), "held_since")
        case "leases":
            under_way = _steps().filter(state=StepState.RUNNING, run__ended_at__isnull=True)
            return Kept(under_way.filter(must_end_by__lt=now), "must_end_by")
    return None


def under(choice: str, runs: Runs, now: datetime) -> Runs:
    """Keep the runs of a view; all of them under an unknown one."""
    live = runs.filter(ended_at__isnull=True)
    match choice:
        case "live":
            return live
        case "stuck":
            return live.filter(pk__in=_any_of(*_late(now), _parked()))
        case "people":
            return live.filter(pk__in=_any_of(_all().filter(state=RunState.WAITING_HUMAN), _parked(), _for_person()))
        case "doubt":
            return runs.filter(pk__in=_any_of(doubtful(), _all().filter(state=RunState.NEEDS_RECONCILIATION)))
        case "failing":
            return runs.filter(pk__in=_any_of(_retried(), _parked(ParkedReason.OUR_CODE), _failed(now)))
    found = kept(choice, now)
    return live.filter(pk__in=found.rows.values("run_id")) if found else runs


def parts(choice: str, runs: Runs, now: datetime) -> Iterator[Runs]:
    """The runs of a view in parts that have none in common, to be counted.

    All but one are bounded by what is under way. Of what has failed lately one more than COUNTED is enough.
    """
    if choice == "failing":
        going_on = _any_of(_retried(), _parked(ParkedReason.OUR_CODE))
        yield runs.filter(ended_at__isnull=True, pk__in=going_on)
        failed = runs.filter(state__in=FAILED, ended_at__gte=now - DAY).order_by()
        yield _all().filter(pk__in=failed.values("pk")[: COUNTED + 1])
    else:
        yield under(choice, runs, now)


def _all() -> Runs:
    return WorkflowRun.objects.using(database()).order_by()


def _steps() -> QuerySet[StepRun]:
    return StepRun.objects.using(database()).order_by()


def _requests() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.using(database()).order_by()


def _ready() -> QuerySet[StepRun]:
    """Steps that may begin, of runs that nobody has parked."""
    return _steps().filter(state=StepState.READY, run__parked_reason="", run__ended_at__isnull=True)


def _any_of(*rows: QuerySet[Any]) -> QuerySet[Any]:
    """The ids of runs that any of these names: each found by its own index, then brought together."""
    first, *rest = (one.values("pk" if one.model is WorkflowRun else "run_id") for one in rows)
    return first.union(*rest, all=True)


def _parked(reason: str = "") -> Runs:
    parked = _all().filter(state=RunState.PARKED)
    return parked.filter(parked_reason=reason) if reason else parked.exclude(parked_reason=ParkedReason.PAUSED)


def _late(now: datetime) -> Iterator[QuerySet[Any]]:
    """What the doctor calls late: nothing has come for it although its time is over."""
    scope, before = Scope(None, now, None), now - timedelta(seconds=MARGIN_SECONDS)
    for rows, field in WHEN.values():
        yield rows(scope).order_by().filter(**{f"{field}__lt": before})


def _for_person() -> QuerySet[StepRun]:
    states = [str(StepState.NEEDS_RECONCILIATION), str(StepState.WAITING)]
    return _steps().filter(state__in=states, needs_person=True)


def doubtful() -> QuerySet[SideEffect]:
    """Unknown, or sent and never answered; one that was sent this moment is only under way."""
    effects = SideEffect.objects.using(database()).order_by()
    sent = Q(state=EffectState.DISPATCHED, in_doubt_since__isnull=False)
    open_ones = [str(EffectState.DISPATCHED), str(EffectState.UNKNOWN)]
    return effects.filter(state__in=open_ones).filter(Q(state=EffectState.UNKNOWN) | sent)


def _retried() -> QuerySet[StepRun]:
    return _steps().filter(state=StepState.RETRY_SCHEDULED)


def _failed(now: datetime) -> Runs:
    return _all().filter(state__in=FAILED, ended_at__gte=now - DAY)


def found(words: str, runs: Runs) -> Runs:
    """The run of an id; else those whose business key begins with the words, or whose subject has them as its id."""
    wanted = as_id(words)
    if wanted is not None:
        return runs.filter(pk=wanted)
    return runs.filter(called(words))


def called(words: str) -> Q:
    """By the beginning of the business key, or by the subject's id."""
    return Q(business_key__startswith=words.strip()) | _about(words.strip())


def _about(subject_id: str) -> Q:
    # Each kind by name, so that the index on kind and id leads to them.
    return Q(subject_type__in=list(ContentType.objects.values_list("pk", flat=True)), subject_id=subject_id)


def with_fields(given: Mapping[str, str], runs: Runs, now: datetime, *, show: str = "") -> Runs:
    """Keep what fits each field that is filled in. `show`: the view; of steps that wait for a provider, for which."""
    for name in ("workflow", "state", "tenant"):
        if given[name]:
            runs = runs.filter(**{name: given[name]})
    if given["age"] in AGES:
        _words, side, span = AGES[given["age"]]
        runs = runs.filter(**{f"created_at__{side}": now - span})
    if given["owner"]:
        runs = runs.filter(owned(given["owner"]))
    if given["label"]:
        runs = runs.filter(_labelled(*label_of(given["label"])))
    if given["subject"]:
        runs = runs.filter(_about(given["subject"]))
    if given["provider"]:
        runs = runs.filter(pk__in=_at(given["provider"], show).values("run_id"))
    return runs.filter(_erring(given["error"])) if given["error"] else runs


def label_of(text: str) -> tuple[str, str]:
    """Name and value of "name=value"; '' for what is not said."""
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _labelled(name: str, value: str) -> Any:
    if connections[database()].vendor == "postgresql":
        return Q(labels__contains={name: value})  # the only way that the index on labels leads
    return Exact(KeyTextTransform(name, "labels"), Value(value))


def _at(provider: str, show: str) -> QuerySet[Any]:
    if show == "held":
        return _ready().filter(held_by=provider)
    return SideEffect.objects.using(database()).filter(provider=provider).order_by()


def owned(name: str) -> Q:
    """By the account of that name; of one that is gone, by the name that was kept."""
    person = accounts.named(name)
    return Q(owner_name=name, owner__isnull=True) & ~Q(owner_name="") if person is None else Q(owner=person)


def _erring(name: str) -> Q:
    """Runs that have met an error of this class, named in full or by its last part."""
    named = ~Q(error_class="") & (Q(error_class=name) | Q(error_class__endswith=f".{name}"))
    tried = _steps().filter(named, state__in=[str(state) for state in sorted(STEP_OPEN)]).values("run_id")
    return named | Q(pk__in=_few(tried))


def _few(rows: QuerySet[Any, Any]) -> Any:
    """The ids themselves while they are few: beside another condition a query within the query is led by no index, and
    would look at every run. Of many it is right to look at the runs in their order: a page of them is soon found.
    """
    ids = list(dict.fromkeys(row["run_id"] for row in rows[: FEW + 1]))
    return rows if len(ids) > FEW else ids
