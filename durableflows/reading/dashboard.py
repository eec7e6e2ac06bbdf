"""The dashboard: what is under way, what has ended lately, and how well, for who looks. Reads only, in few queries.

Of runs, each figure is of those that the person may see. Providers and workers serve all tenants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q
from django.http import HttpRequest
from django.utils import timezone

from durableflows import provider_state
from durableflows.conf import settings
from durableflows.core.breaker import BreakerState
from durableflows.explain_words import state_words
from durableflows.models import Worker
from durableflows.reading import charts, ends, tiles
from durableflows.reading.ends import Ends, Hour
from durableflows.reading.looking import once
from durableflows.reading.providers import WORDS
from durableflows.reading.standing import now_of
from durableflows.reading.workers import ago
from durableflows.selectors import Sight, sight_of
from durableflows.transactions import database, uncompiled

Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One hour in figures, as the table has it."""

    start: datetime
    counts: list[int]
    half: str
    most: str


def sight_for(request: HttpRequest) -> Sight:
    """What the person sees; asked once a page. Raises TenantsUnknown."""
    return once(request, "sight", lambda: sight_of(request.user))


def dashboard(request: HttpRequest, most: int) -> Context:
    """All that the page shows: six queries, and what the rights take. `most`: of the newest ends."""
    now, sight = now_of(request), sight_for(request)
    with uncompiled():
        found, counted = ends.lately(sight, now, most=most), list(tiles.tiles(sight, now))
    words = [_words(hour) for hour in found.hours]
    return {
        "tiles": counted,
        "ends": found,
        "most": f"{most:,}",
        "throughput": charts.throughput(found.hours, words),
        "looks": charts.LOOKS.items(),
        "latency": charts.latency(found.hours, [_took(hour) for hour in found.hours]),
        "states": [(state, state_words(state)) for state in found.states],
        "lines": _lines(found),
        "providers": _providers(),
        "workers": _workers(now),
    }


def _at(hour: Hour) -> str:
    """ "14:00 to 15:00", in the current time zone."""
    start = timezone.localtime(hour.start)
    return f"{start:%H:%M} to {start + ends.HOUR:%H:%M}"


def _words(hour: Hour) -> str:
    counts = ", ".join(f"{count:,} {state_words(state)}" for state, count in hour.ended.items())
    return f"{_at(hour)}: {counts or 'none ended'}"


def _took(hour: Hour) -> str:
    if hour.half_within is None:
        return f"{_at(hour)}: none ended well"
    return f"{_at(hour)}: half within {charts.said(hour.half_within)}, 95 % within {charts.said(hour.most_within)}"


def _lines(found: Ends) -> Sequence[Line]:
    """Newest first: that is what people look for."""
    return [
        Line(
            hour.start,
            [hour.ended.get(state, 0) for state in found.states],
            charts.said(hour.half_within),
            charts.said(hour.most_within),
        )
        for hour in reversed(found.hours)
    ]


def _providers() -> list[tuple[str, str]]:
    """The providers for which nothing leaves, or one request that tries, and how each stands."""
    found = provider_state.read_all().values()
    return [(one.provider, WORDS[one.state]) for one in found if one.state is not BreakerState.CLOSED]


def _workers(now: datetime) -> Context:
    """How many live, and when anything due was last looked for."""
    fresh = now - timedelta(seconds=settings().STALE_SECONDS)
    rows = Worker.objects.using(database()).filter(stopped_at__isnull=True)
    found = rows.aggregate(living=Count("pk", filter=Q(heartbeat_at__gt=fresh)), swept_at=Max("swept_at"))
    swept_at: datetime | None = found["swept_at"]
    is_late = swept_at is None or now - swept_at > timedelta(seconds=settings().STALE_SECONDS)
    return {"living": found["living"], "swept": ago(swept_at, now) if swept_at else "", "is_late": is_late}
