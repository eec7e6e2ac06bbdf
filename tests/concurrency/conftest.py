"""The world in which rivals meet: connections, locks and threads are real; clock and broker are moved by the test."""

import pytest

from durableflows import dispatch
from durableflows.core import registry
from durableflows.testing import virtual


@pytest.fixture
def world(monkeypatch):
    """No broker is asked: it would say "empty", and nothing would ever have to wait for its second message."""
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: None)
    with registry.isolated(), virtual() as world:
        yield world
