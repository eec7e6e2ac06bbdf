"""The broker of one test: this process publishes there for as long as the block lasts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from durableflows import broker


@contextmanager
def broker_at(url: str) -> Iterator[None]:
    """Send to this address, by connections that are new in the block and closed after it."""
    ways = dict(broker._ways)
    pool = broker._pool(url)
    broker._ways[os.getpid()] = broker._Way(pool)
    try:
        yield
    finally:
        broker._ways.clear()
        broker._ways.update(ways)
        pool.connections.force_close_all()
