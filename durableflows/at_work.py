"""What this process is working on: run, workflow, step, attempt, for log lines. Never touches a row, imports no Django.

Set by `watching` and `lookups`; read by `logs`, which is imported before Django's apps are ready.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """What a line is about. `attempt` 0: no attempt is under way (a lookup)."""

    run_id: str
    workflow: str
    step: str
    attempt: int = 0


_about: ContextVar[About | None] = ContextVar("durableflows_about", default=None)


def about() -> About | None:
    """What is worked on here and now; None outside of steps."""
    return _about.get()


@contextmanager
def working_on(what: About) -> Iterator[None]:
    """Let lines within the block be about this."""
    token = _about.set(what)
    try:
        yield
    finally:
        _about.reset(token)
