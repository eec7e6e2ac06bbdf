"""The one clock: the database's, read after the lock (P12). Nothing else in the engine asks what time it is.

Process clocks may be wrong by minutes; leases and timers judged by one clock are not (R08).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from django.db import connections

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


@contextmanager
def replaced(clock: Clock) -> Iterator[None]:
    """Let tests move time: within the block `now` is the given clock's, in this process."""
    _replaced.append(clock)
    try:
        yield
    finally:
        _replaced.pop()
