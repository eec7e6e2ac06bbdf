"""The figures on the dashboard: each counts the runs that one view of the list shows, and leads to it. Reads only.

One query for all of them, bounded by what is under way, and one for the errors of what is tried again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import CharField, Count, Min, QuerySet, Value
from django.urls import reverse

from durableflows.conf import settings
from durableflows.models import WorkflowRun
from durableflows.reading import narrow
from durableflows.reading.narrow import Kept
from durableflows.reading.standing import span
from durableflows.selectors import Sight
from durableflows.transactions import database

Counted = QuerySet[Any, Any]
ERRORS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """What a view shows: how many runs, how many rows of them, and since when the oldest stands so."""

    runs: int = 0
    rows: int = 0
    since: datetime | None = None

    def and_(self, other: "Figure") -> "Figure":
        """Both, of rows that have none in common."""
        since = min((at for at in (self.since, other.since) if at is not None), default=None)
        return Figure(self.runs + other.runs, self.rows + other.rows, since)


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure in words. `late`: why a person should look at it now; `tone`: the colour of that."""

    words: str
    count: str
    detail: str
    late: str
    tone: str
    address: str
    errors: list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Spec:
    """`noun`: what stands there, '' for runs; `tone`: of any figure above 0; `limit`: the setting, in seconds."""

    words: str
    noun: str
    age: str
    tone: str = "calm"
    limit: str = ""
    sort: str = ""


SPECS: Mapping[str, _Spec] = {
    "live": _Spec("Not ended", "", "the oldest was started {} ago", sort="first"),
    "stuck": _Spec("Stuck", "", "the oldest was started {} ago", tone="bad"),
    "failing": _Spec("Failing now", "", "the oldest was started {} ago", tone="look"),
    "doubt": _Spec("In doubt", "effect", "the oldest for {}", tone="look"),
    "asked": _Spec("Somebody is asked", "request", "the oldest for {}"),
    "retried": _Spec("Tried again later", "step", "the longest tried for {}"),
    "held": _Spec("Held at a provider", "step", "the longest for {}"),
    "unsent": _Spec("Not sent yet", "step", "the longest due for {}", limit="HEALTH_LATE_SECONDS"),
    "queued": _Spec("In a queue", "step", "the longest for {}", limit="HEALTH_QUEUE_SECONDS"),
    "leases": _Spec("Leases run out", "step", "the longest for {}", tone="bad"),
}
"""The views that are counted, in the order of the page."""


def tiles(sight: Sight, now: datetime) -> Iterator[Tile]:
    """All figures of what a person sees."""
    found = figures(sight, now)
    errors = _errors(narrow.kept("retried", now), sight) if found["retried"].runs else []
    for name in SPECS:
        yield _tile(name, found[name], now, errors if name == "retried" else [])


def figures(sight: Sight, now: datetime) -> Mapping[str, Figure]:
    """Count what each view shows, by one query."""
    first, *rest = _counted(sight, now)
    found: dict[str, Figure] = {}
    for row in first.union(*rest, all=True):
        found[row["what"]] = found.get(row["what"], Figure()).and_(Figure(row["runs"], row["rows"], row["since"]))
    doubt, effects = found["doubt"], found.pop("doubt: effects")
    return found | {"doubt": Figure(doubt.runs, effects.rows, effects.since)}


def _counted(sight: Sight, now: datetime) -> Iterator[Counted]:
    runs = WorkflowRun.objects.using(database()).filter(sight.within())
    for name in SPECS:
        if rows := narrow.kept(name, now):
            yield _of_rows(name, rows, sight)
        else:
            yield from (_of_runs(name, part) for part in narrow.parts(name, runs, now))
    yield _of_rows("doubt: effects", Kept(narrow.doubtful(), "in_doubt_since"), sight)


def _of_runs(name: str, runs: narrow.Runs) -> Counted:
    counted = {"runs": Count("pk"), "rows": Count("pk"), "since": Min("created_at")}
    return runs.order_by().values(what=Value(name, CharField())).annotate(**counted)


def _of_rows(name: str, kept: Kept, sight: Sight) -> Counted:
    counted = {"runs": Count("run", distinct=True), "rows": Count("pk"), "since": Min(kept.since)}
    rows: Counted = kept.rows.filter(sight.within("run__")).values(what=Value(name, CharField())).annotate(**counted)
    return rows


def _errors(retried: Kept | None, sight: Sight) -> list[tuple[str, str, str]]:
    """The classes of error that most runs are tried again after: its name, how many runs, and the list of them."""
    if retried is None:
        return []
    rows = retried.rows.filter(sight.within("run__")).values("error_class")
    found = rows.annotate(runs=Count("run", distinct=True)).order_by("-runs", "error_class")[:ERRORS_SHOWN]
    return [(row["error_class"], f"{row['runs']:,}", _address("retried", error=row["error_class"])) for row in found]


def _tile(name: str, figure: Figure, now: datetime, errors: list[tuple[str, str, str]]) -> Tile:
    spec = SPECS[name]
    late = _late(spec, figure, now)
    tone = "bad" if late else spec.tone if figure.runs else "calm"
    address, detail = _address(name, sort=spec.sort), _detail(spec, figure, now)
    if name == "failing" and figure.runs > narrow.COUNTED:
        return Tile(spec.words, f"over {narrow.COUNTED:,}", "", late, tone, address, errors)
    return Tile(spec.words, f"{figure.runs:,}", detail, late, tone, address, errors)


def _detail(spec: _Spec, figure: Figure, now: datetime) -> str:
    age = spec.age.format(span(figure.since, now)) if figure.since is not None else ""
    if not spec.noun or not figure.rows:
        return age
    rows = f"{figure.rows:,} {spec.noun}{'' if figure.rows == 1 else 's'}"
    return f"{rows}, {age}" if age else rows


def _late(spec: _Spec, figure: Figure, now: datetime) -> str:
    if not spec.limit or figure.since is None:
        return ""
    limit = timedelta(seconds=getattr(settings(), spec.limit))
    return f"longer than the limit of {span(now - limit, now)}" if now - figure.since > limit else ""


def _address(name: str, **more: str) -> str:
    asked = {"show": name, **more}
    return f"{reverse('durableflows:runs')}?{urlencode({key: value for key, value in asked.items() if value})}"
