"""Servers that a test takes away and brings back: the throwaway PostgreSQL as a whole, and a Redis of its own."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection
from redis import Redis

from tests.services import SUPERVISOR, free_port, running_redis
from tests.support.workers import wait_for

T = TypeVar("T")


def through(act: Callable[[], T], *, seconds: float = 60.0) -> T:
    """Do it again while the database is away, by connections that are new."""
    stop_at = time.monotonic() + seconds
    while True:
        try:
            return act()
        except (OperationalError, InterfaceError):
            connection.close()
            if time.monotonic() > stop_at:
                raise
            time.sleep(0.1)


def may_restart_database() -> bool:
    """Is the database a throwaway server of `python -m tests.services`? Nobody else's is restarted."""
    return bool(os.environ.get(SUPERVISOR))


def restart_database() -> None:
    """Kill PostgreSQL, as a crash would, and start it again. Returns when it answers."""
    before = through(_started_at)
    os.kill(int(os.environ[SUPERVISOR]), signal.SIGUSR1)
    wait_for(lambda: through(_started_at) != before, seconds=60, what="PostgreSQL to be back")


@contextmanager
def commits_that_survive() -> Iterator[None]:
    """Let no commit be lost with a killed server: the throwaway one writes its log a little later otherwise."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" SET synchronous_commit TO on')
    connection.close()
    try:
        yield
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')


def _started_at() -> object:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        return cursor.fetchone()


class RedisServer:
    """A Redis that keeps nothing, always at the same address."""

    def __init__(self) -> None:
        self._port = free_port()
        self._life = ExitStack()
        self.url = self._life.enter_context(running_redis(port=self._port))

    def restart(self) -> None:
        """Kill it with all that it holds, and start an empty one."""
        self.stop()
        self._life.enter_context(running_redis(port=self._port))

    def flush(self) -> None:
        """Throw away all that it holds."""
        with Redis.from_url(self.url) as client:
            client.flushall()

    def stop(self) -> None:
        """Kill it."""
        self._life.close()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """One for as long as the block lasts."""
    server = RedisServer()
    try:
        yield server
    finally:
        server.stop()
