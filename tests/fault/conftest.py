"""The world in which faults are played: rows are real, clock, broker and workers are moved by the test."""

import pytest

from durableflows import dispatch
from durableflows.core import registry
from durableflows.testing import virtual
from tests.support.runbook import scene

__all__ = ["scene"]


@pytest.fixture
def world(monkeypatch):
    """No broker is asked: it would say "empty", and nothing would ever have to wait for its second message."""
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: None)
    with registry.isolated(), virtual() as world:
        yield world
