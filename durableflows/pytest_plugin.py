"""Fixtures for projects that test their workflows with pytest; pytest finds them when durableflows is installed.

Imports nothing of Django until a fixture is asked for: pytest loads plugins before settings are read.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from durableflows.boundaries import Boundary
    from durableflows.testing import World


@pytest.fixture
def durable_world(db: None) -> "Iterator[World]":
    """Clock, broker and workers that the test moves: `durable_world.run_until_idle()`, `.clock.advance(hours=2)`.

    Messages leave when the code's transactions commit, inside the transaction around a test as well.
    """
    from durableflows.testing import virtual
    from durableflows.testing.fakes import commits_played

    with virtual() as world, commits_played():
        yield world


@pytest.fixture
def durable_crash() -> "Callable[..., AbstractContextManager[None]]":
    """Let the process die at a boundary: `with durable_crash("settle: before commit"): ...`, or a `Boundary`."""
    from durableflows.testing import Boundary, crash_at

    def crash(boundary: "Boundary | str", *, times: int = 1) -> AbstractContextManager[None]:
        return crash_at(Boundary(boundary), times=times)

    return crash
