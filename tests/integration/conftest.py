"""What the tests of the engine in one process share: a played world, and looks at rows."""

import pytest

from durableflows.core import registry
from durableflows.testing import virtual
from tests.support.runbook import scene

__all__ = ["scene"]


@pytest.fixture
def world():
    """Clock, broker and workers, played in this process; workflows that a test declares are forgotten after it."""
    with registry.isolated(), virtual() as world:
        yield world
