"""What a person has lent to others, and others to the person: what holds or will hold, and the last that did."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from durableflows.models import Delegation
from durableflows.transactions import database

SHOWN = 20
MIDNIGHT = time(0)


@dataclass(frozen=True, slots=True)
class Lent:
    """A delegation, when it holds and where it stands, in words."""

    row: Delegation
    span: str
    standing: str
    is_over: bool


def lent_by(person: Any, now: datetime) -> list[Lent]:
    """The delegations that a person has given, those that hold or will hold first."""
    return _shown(_rows().filter(giver_id=person.pk), now)


def lent_to(person: Any, now: datetime) -> list[Lent]:
    """The delegations that a person has taken."""
    return _shown(_rows().filter(taker_id=person.pk), now)


def _rows() -> QuerySet[Delegation]:
    return Delegation.objects.using(database())


def _shown(rows: QuerySet[Delegation], now: datetime) -> list[Lent]:
    over = Q(ended_at__isnull=False) | Q(until_at__lte=now)
    holding = rows.exclude(over).order_by("from_at", "id")[:SHOWN]
    past = rows.filter(over).order_by("-until_at", "-id")[:SHOWN]
    shown = [(row, False) for row in holding] + [(row, True) for row in past]
    return [Lent(row, _span(row), _standing(row, now), is_over) for row, is_over in shown]


def _span(row: Delegation) -> str:
    """From when until when: whole days as they were given, the last one included."""
    start, end = timezone.localtime(row.from_at), timezone.localtime(row.until_at)
    if start.time() != MIDNIGHT or end.time() != MIDNIGHT:
        return f"from {_day(start)} {start:%H:%M} until {_day(end)} {end:%H:%M %Z}"
    last = end - timedelta(hours=12)
    return f"on {_day(start)}" if last.date() == start.date() else f"from {_day(start)} to {_day(last)}, included"


def _day(at: datetime) -> str:
    return f"{at:%a} {at.day} {at:%b} {at.year}"


def _standing(row: Delegation, now: datetime) -> str:
    if row.ended_at is not None:
        return f"ended by {row.ended_by_name}" if row.ended_by_name else "ended"
    if row.until_at <= now:
        return "over"
    return "in force" if row.from_at <= now else "to come"
