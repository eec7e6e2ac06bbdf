"""A payment that asks a person, driven to its question, and clocks that differ by thread: for tests of two at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from durableflows import api, clock
from durableflows.models import ApprovalRequest
from durableflows.services import expiry
from durableflows.testing import World


def ask(world: World, *, is_last_rung: bool = False) -> ApprovalRequest:
    """A payment's question, on the first rung of its ladder or on the last one."""
    run = api.start("pay", {"amount": 5, "ask": True})
    while world.messages:
        world.deliver(*world.messages.popleft())
    request = run.requests.get()
    if is_last_rung:
        world.clock.move_to(request.expires_at)
        assert expiry.expire(request.pk)
        request.refresh_from_db()
    return request


@contextmanager
def clocks_by_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, datetime]]:
    """Let each thread read its own time: both sides of a deadline at once, as two reads of one clock may be."""
    times: dict[int, datetime] = {}
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: times.get(threading.get_ident()) or real())
    yield times
