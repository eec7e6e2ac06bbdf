"""Requests that are held on purpose: until a time, until a test lets them go, or until the client hangs up.

Owns the waiting. Nothing here polls: each held request waits on a socket pair of its own, so that a test can ask
"is it held now?" and go on at that moment instead of sleeping.
"""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_SECONDS = 600.0


class Holds:
    """All requests under way, and those of them that are held now."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: set[str] = set()
        self._held: dict[str, socket.socket] = {}

    @contextmanager
    def under_way(self, request_id: str) -> Iterator[None]:
        """Count a request from its arrival until all is done that it asked for."""
        with self._changed:
            self._under_way.add(request_id)
        try:
            yield
        finally:
            with self._changed:
                self._under_way.discard(request_id)
                self._changed.notify_all()

    def hold(self, request_id: str, *, seconds: float | None, client: socket.socket | None = None) -> None:
        """Wait for `seconds`, or until released, or until `client` has hung up."""
        with self._registered(request_id) as released:
            watched = [released] if client is None else [released, client]
            select.select(watched, [], [], min(LONGEST_SECONDS if seconds is None else seconds, LONGEST_SECONDS))

    def release(self) -> int:
        """Let all held requests go on; say how many there were."""
        with self._changed:
            for waker in self._held.values():
                waker.send(b"!")
            return len(self._held)

    def wait_until_held(self, count: int, *, timeout_seconds: float) -> list[str]:
        """Wait until at least `count` requests are held; give those that are when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) >= count, timeout_seconds)
            return list(self._held)

    def wait_until_done(self, *, timeout_seconds: float) -> list[str]:
        """Wait until no request is under way; give those that are when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout_seconds)
            return list(self._under_way)

    @contextmanager
    def _registered(self, request_id: str) -> Iterator[socket.socket]:
        waker, released = socket.socketpair()
        with waker, released:
            with self._changed:
                self._held[request_id] = waker
                self._changed.notify_all()
            try:
                yield released
            finally:
                with self._changed:
                    del self._held[request_id]
                    self._changed.notify_all()
