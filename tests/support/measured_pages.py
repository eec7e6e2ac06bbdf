"""What a page takes, measured over some turns: for `tests.measure_inbox` and `tests.measure_console`."""

import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection
from django.test import Client
from django.test.runner import DiscoverRunner
from django.test.utils import CaptureQueriesContext, setup_test_environment

MOST_QUERIES = 15
SHOWN = (200, 503)
"""The health is a 503 where no worker lives, as in a crowd that was made."""


@dataclass(frozen=True)
class Taken:
    """What one page took: queries, and milliseconds of several turns."""

    name: str
    queries: int
    milliseconds: list[float]
    most_milliseconds: float

    @property
    def is_slow(self) -> bool:
        """Did it take more than it may, in any turn?"""
        return self.queries >= MOST_QUERIES or self.worst >= self.most_milliseconds

    @property
    def middle(self) -> float:
        """The milliseconds of the turn that half of them were slower than."""
        return statistics.median(self.milliseconds)

    @property
    def worst(self) -> float:
        """Those of the slowest turn."""
        return max(self.milliseconds)

    def __str__(self) -> str:
        mark = "  SLOW" if self.is_slow else ""
        return f"{self.name:36} {self.queries:3} queries {self.middle:7.1f} ms, at most {self.worst:7.1f} ms{mark}"


@contextmanager
def a_database() -> Iterator[None]:
    """A test database of its own for as long as the block lasts."""
    setup_test_environment()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    old = runner.setup_databases()
    try:
        yield
    finally:
        runner.teardown_databases(old)


def look_at(
    pages: Iterable[tuple[str, str]], client: Client, *, turns: int, most_milliseconds: float
) -> Iterator[Taken]:
    """Look at each page so often, once before it counts."""
    for name, address in pages:
        client.get(address)
        spent = []
        for _ in range(turns):
            begun = time.perf_counter()
            assert client.get(address).status_code in SHOWN
            spent.append((time.perf_counter() - begun) * 1000)
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        yield Taken(name, len(queries), spent, most_milliseconds)
