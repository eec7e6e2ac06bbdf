"""A page of a long list by its place in the order, not by its number: the last row costs what the first does.

A cursor names the row that a page ends or begins at; what comes or goes meanwhile moves no row to another page.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)

PAGE = 25
ORDERS = {
    "soonest": ("expires_at", "id"),
    "newest": ("-id",),  # ids are UUIDv7: the order of creation, without ties
    "oldest": ("id",),
    "last started": ("-created_at", "-id"),
    "first started": ("created_at", "id"),
}
"""The first field of an order is a moment, or the id itself; the id settles ties."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CURSOR = re.compile(r"(\d{1,17})\.([0-9a-f]{32})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window(Generic[Row]):
    """The rows of a page, and the cursors of the pages beside it; '' where there is none."""

    rows: list[Row]
    earlier: str
    later: str


def window(rows: QuerySet[Row], order: str, *, after: str = "", before: str = "") -> Window[Row]:
    """Read one page by one query; a cursor that is none counts as none, and gives the first page.

    order   one of ORDERS
    """
    fields = ORDERS[order]
    place = _read(after)
    if place is not None:
        found = _beyond(rows, fields, place)
        return Window(found[:PAGE], _write(found[0], fields) if found else "", _more(found, fields))
    place = _read(before)
    if place is not None:
        found = _beyond(rows, _turned(fields), place)
        shown = found[:PAGE][::-1]
        earlier = _write(shown[0], fields) if len(found) > PAGE else ""
        return Window(shown, earlier, _write(shown[-1], fields) if shown else "")
    found = list(rows.order_by(*fields)[: PAGE + 1])
    return Window(found[:PAGE], "", _more(found, fields))


def _more(found: Sequence[Model], fields: Sequence[str]) -> str:
    return _write(found[PAGE - 1], fields) if len(found) > PAGE else ""


def _beyond(rows: QuerySet[Row], fields: Sequence[str], place: tuple[datetime, UUID]) -> list[Row]:
    """The rows that come after a place, one more than a page."""
    values: dict[str, Any] = {_first(fields): place[0], "id": place[1]}
    reached, beyond = Q(), Q()
    for field in fields:
        name, verb = field.lstrip("-"), "lt" if field.startswith("-") else "gt"
        beyond |= reached & Q(**{f"{name}__{verb}": values[name]})
        reached &= Q(**{name: values[name]})
    first = _first(fields)
    # Said once more for the first field alone, so that its index leads to the place.
    bound = Q(**{f"{first}__{'lte' if fields[0].startswith('-') else 'gte'}": values[first]})
    return list(rows.filter(bound & beyond).order_by(*fields)[: PAGE + 1])


def _turned(fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(field[1:] if field.startswith("-") else f"-{field}" for field in fields)


def _first(fields: Sequence[str]) -> str:
    return fields[0].lstrip("-")


def _write(row: Model, fields: Sequence[str]) -> str:
    at = EPOCH if _first(fields) == "id" else getattr(row, _first(fields))
    return f"{(at - EPOCH) // timedelta(microseconds=1)}.{row.pk.hex}"


def _read(cursor: str) -> tuple[datetime, UUID] | None:
    match = CURSOR.fullmatch(cursor)
    if match is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=int(match[1])), UUID(match[2])
    except OverflowError:
        return None
