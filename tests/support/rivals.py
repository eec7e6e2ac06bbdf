"""Threads that meet in the database, each on a connection of its own, watched until they really stand at a lock.

Nothing here sleeps in hope: whoever must be blocked is looked up in pg_locks, whoever must stop is held at a named
boundary of the engine. For tests on PostgreSQL only.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, connections

from durableflows import boundaries
from durableflows.boundaries import Boundary

WAIT_SECONDS = 20.0


class Rival(threading.Thread):
    """One call on a connection of its own. What it raised, engine's control flow included, is kept for the test."""

    def __init__(self, call: Callable[[], object], *, together: threading.Barrier | None = None) -> None:
        super().__init__(daemon=True)
        self._call, self._together = call, together
        self._value: object = None
        self.error: BaseException | None = None
        self.backend = 0
        self._is_connected = threading.Event()

    def run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self.backend = cursor.fetchone()[0]
            self._is_connected.set()
            if self._together is not None:
                self._together.wait(WAIT_SECONDS)
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - the test judges what it was
            self.error = error
        finally:
            self._is_connected.set()
            connections.close_all()

    def begin(self) -> "Rival":
        """Start, and wait until the connection is there."""
        self.start()
        assert self._is_connected.wait(WAIT_SECONDS)
        return self

    def outcome(self) -> object:
        """What the call returned or raised, once it has ended."""
        self.join(WAIT_SECONDS)
        assert not self.is_alive(), "the rival is still busy"
        return self._value if self.error is None else self.error

    def wait_until_blocked(self) -> None:
        """Return when this rival stands at a lock that another connection holds."""
        sql = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        stop_at = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < stop_at:
            assert self.is_alive(), f"the rival was not held up: {self.outcome()!r}"
            with connection.cursor() as cursor:
                cursor.execute(sql, [self.backend])
                if cursor.fetchone()[0]:
                    return
            time.sleep(0.005)
        raise AssertionError("the rival never stood at a lock")


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Let all calls go at the same instant, each on its own connection; what each returned or raised, in order."""
    together = threading.Barrier(len(calls))
    rivals = [Rival(call, together=together) for call in calls]
    for rival in rivals:
        rival.start()
    return [rival.outcome() for rival in rivals]


class Gate:
    """A place where one thread stops until the test lets it go on."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        """Say that somebody is here, and wait."""
        self._reached.set()
        assert self._open.wait(WAIT_SECONDS), "nobody opened the gate"

    def wait(self) -> None:
        """Wait until somebody stands at the gate."""
        assert self._reached.wait(WAIT_SECONDS), "nobody came to the gate"

    def open(self) -> None:
        """Let whoever stands there go on, and whoever comes later."""
        self._open.set()


@contextmanager
def gate_at(boundary: Boundary) -> Iterator[Gate]:
    """Hold the first thread that crosses the boundary; others pass. The gate is open at the end at the latest."""
    gate, first = Gate(), threading.Lock()

    def hook(crossed: Boundary) -> None:
        if crossed is boundary and first.acquire(blocking=False):
            gate.pass_through()

    boundaries.install(hook)
    try:
        yield gate
    finally:
        gate.open()
        boundaries.install(None)
