"""The one clock: the database's, read after the lock (P12). Nothing else in the engine asks what time it is.

Process clocks may be wrong by minutes; leases and timers judged by one clock are not (R08).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from django.db import connections
from django.db.models import DateTimeField, Expression, Func, Value

from durableflows.conf import settings


class Clock(Protocol):
    """Anything that can say what time it is."""

    def now(self) -> datetime:
        """Aware UTC time."""


_replaced: list[Clock] = []


def now() -> datetime:
    """Time of the engine's database, as an aware UTC datetime."""
    if _replaced:
        return _replaced[-1].now()
    connection = connections[settings().DATABASE]
    if connection.vendor == "sqlite":  # the database lives in this process and has no other clock
        return datetime.now(UTC)
    sql = "SELECT clock_timestamp()" if connection.vendor == "postgresql" else "SELECT CURRENT_TIMESTAMP(6)"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        moment: datetime = cursor.fetchone()[0]
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def as_expression() -> Expression:
    """The same time as a part of a query, which then needs no round trip for it."""
    if _replaced or connections[settings().DATABASE].vendor != "postgresql":
        return Value(now(), output_field=DateTimeField())
    return Func(function="clock_timestamp", output_field=DateTimeField())


def may_be_asked_along() -> bool:
    """Can the time come with the answer to another question (`now_and`), and not by a round trip of its own?"""
    return not _replaced and connections[settings().DATABASE].vendor == "postgresql"


def now_and(question: str, parameters: list[str]) -> tuple[datetime, tuple[Any, ...] | None]:
    """The time as `now` gives it, and the one row that the question finds, by one round trip. For PostgreSQL.

    question   a SELECT whose first column is never null
    """
    sql = f"SELECT clock_timestamp(), found.* FROM (SELECT 1) AS it LEFT JOIN ({question}) AS found ON true"  # noqa: S608
    with connections[settings().DATABASE].cursor() as cursor:
        cursor.execute(sql, parameters)
        moment, *found = cursor.fetchone()
    return moment.astimezone(UTC), tuple(found) if found[0] is not None else None


@contextmanager
def replaced(clock: Clock) -> Iterator[None]:
    """Let tests move time: within the block `now` is the given clock's, in this process."""
    _replaced.append(clock)
    try:
        yield
    finally:
        _replaced.pop()
