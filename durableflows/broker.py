"""This process's way to the broker: connections of its own, a limit on each call, and a rest after one that failed.

Called by `dispatch` alone. A broker that is there and does not answer costs each caller PUBLISH_SECONDS; without the
rest a ticker with two hundred due rows would send for minutes, and free no dead worker's lease meanwhile.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery import current_app
from celery.exceptions import QueueNotFound
from kombu.exceptions import ChannelError, EncodeError
from kombu.pools import ProducerPool

from durableflows.conf import settings
from durableflows.core.classify import describe

REST_SECONDS = 5.0
OURS = (QueueNotFound, EncodeError)
"""What is raised for a message that no broker could take: its step names a queue that the project does not have."""


class BrokerRests(Exception):
    """The broker failed a moment ago, and is not asked again yet."""


@dataclass(slots=True)
class _Way:
    """How one process reaches the broker, and since when it does not."""

    pool: ProducerPool
    rests_until: float = 0.0
    why: str = ""

    def check(self) -> None:
        if time.monotonic() < self.rests_until:
            raise BrokerRests(f"the broker failed a moment ago and is asked again in a few seconds ({self.why})")

    def rest(self, error: Exception) -> None:
        self.rests_until, self.why = time.monotonic() + REST_SECONDS, describe(error).text


# A forked child leaves its parent's entry alone: to use it would mix their bytes, to drop it could shut the socket.
_ways: dict[int, _Way] = {}


@dataclass(slots=True)
class _Allowance:
    seconds: float


_allowance: ContextVar[_Allowance | None] = ContextVar("durableflows_broker_allowance", default=None)


@contextmanager
def producer() -> Iterator[Any]:
    """Give a kombu Producer for one call. Raises BrokerRests at once after a failure, else what the broker raises.

    A ChannelError is an answer: the broker is there. OURS are the message's own fault: nothing was asked of it. Any
    other error lets it rest; a success ends the rest.
    """
    way = _way()
    way.check()
    began = time.monotonic()
    try:
        with way.pool.acquire(block=True, timeout=settings().PUBLISH_SECONDS) as taken:
            yield taken
        way.rests_until = 0.0
    except (ChannelError, *OURS):
        raise
    except Exception as error:
        way.rest(error)
        raise
    finally:
        _spend(time.monotonic() - began)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Bound how long the calls within the block may take together; after it `has_time` says no."""
    token = _allowance.set(_Allowance(seconds))
    try:
        yield
    finally:
        _allowance.reset(token)


def has_time() -> bool:
    """Is there something left of the time that the caller gave for sending?"""
    allowance = _allowance.get()
    return allowance is None or allowance.seconds > 0


def is_open() -> bool:
    """Is it worth a try now: is the broker not at rest, and time left?"""
    return has_time() and time.monotonic() >= _way().rests_until


def _spend(seconds: float) -> None:
    allowance = _allowance.get()
    if allowance is not None:
        allowance.seconds -= seconds


def _way() -> _Way:
    pid = os.getpid()
    return _ways.get(pid) or _ways.setdefault(pid, _Way(_pool()))


def _pool(url: str | None = None) -> ProducerPool:
    """A pool with short time-outs that no other process has: kombu's global ones are the parent's after a fork."""
    seconds = settings().PUBLISH_SECONDS
    options = dict(current_app.conf.broker_transport_options or {})
    options |= {"socket_connect_timeout": seconds, "socket_timeout": seconds}
    connection = current_app.connection_for_write(url, connect_timeout=seconds, transport_options=options)
    limit = current_app.conf.broker_pool_limit
    return ProducerPool(connection.Pool(limit), limit=limit)
