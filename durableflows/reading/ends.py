"""Which runs have ended lately, hour by hour: how many in which state, and how long those took that ended well.

Reads only. Two queries: the work of the second is bounded by MOST_ENDS; where that is reached, the hours begin later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Q, Window
from django.db.models.functions import RowNumber, TruncHour

from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.selectors import Sight
from durableflows.transactions import database

HOURS = 24
HOUR = timedelta(hours=1)
MOST_ENDS = 50_000
"""So many of the newest ends are looked at, whoever may see them."""


@dataclass(slots=True)
class Hour:
    """One hour: how many runs have ended in which state, and how long a half and 95 % took of those that did well."""

    start: datetime
    ended: dict[str, int] = field(default_factory=dict)
    half_within: timedelta | None = None
    most_within: timedelta | None = None

    @property
    def total(self) -> int:
        """How many have ended, however."""
        return sum(self.ended.values())


@dataclass(frozen=True, slots=True)
class Ends:
    """The hours, oldest first; the last one is not over. `cut_at`: what ended before was too much to look at."""

    hours: Sequence[Hour]
    cut_at: datetime | None = None

    @property
    def states(self) -> list[str]:
        """The states in which any run has ended, in the order of `RunState`."""
        return [str(state) for state in RunState if any(state in hour.ended for hour in self.hours)]


def lately(sight: Sight, now: datetime, *, most: int = MOST_ENDS) -> Ends:
    """Read the last hours of what a person sees."""
    first = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - (HOURS - 1) * HOUR
    hours = {first + number * HOUR: Hour(first + number * HOUR) for number in range(HOURS)}
    newest = _ended(first).order_by("-ended_at").values_list("ended_at", flat=True)
    cut_at = next(iter(newest[most : most + 1]), None)
    for row in _marks(sight, cut_at or first):
        _put(hours[row["hour"]], row) if row["hour"] in hours else None
    return Ends(list(hours.values()), cut_at)


def _ended(since: datetime) -> Any:
    return WorkflowRun.objects.using(database()).filter(ended_at__gte=since).order_by()


def _marks(sight: Sight, since: datetime) -> Any:
    """Of each hour and state the run that ended soonest, the one in the middle, and the one that 95 % do not outlast.

    Any database sorts by a window; few have quantiles.
    """
    took = ExpressionWrapper(F("ended_at") - F("created_at"), output_field=DurationField())
    group = [F("hour"), F("state")]
    rows = _ended(since).filter(sight.within()).values("state", took=took, hour=TruncHour("ended_at", tzinfo=UTC))
    place = Window(RowNumber(), partition_by=group, order_by="took")
    rows = rows.annotate(count=Window(Count("*"), partition_by=group), place=place)
    # Of a hundred the 50th and the 95th: whole numbers, divided as whole numbers are.
    rows = rows.annotate(half=(F("count") + 1) / 2, nearly_all=(F("count") * 95 + 99) / 100)
    return rows.filter(Q(place=1) | Q(place=F("half")) | Q(place=F("nearly_all")))


def _put(hour: Hour, row: Mapping[str, Any]) -> None:
    hour.ended[str(row["state"])] = row["count"]
    if row["state"] == RunState.SUCCEEDED:
        if row["place"] == row["half"]:
            hour.half_within = row["took"]
        if row["place"] == row["nearly_all"]:
            hour.most_within = row["took"]
