"""The death of a process, played: an exception that no code handles, raised at a named boundary."""

from collections.abc import Iterator
from contextlib import contextmanager

from durableflows import boundaries
from durableflows.boundaries import Boundary


class Crash(BaseException):
    """The process died at a boundary. BaseException: no code of ours or a user's may handle it."""


@contextmanager
def crash_at(boundary: Boundary, *, times: int = 1) -> Iterator[None]:
    """Let the process "die" (raise Crash) when it next crosses the boundary, `times` times."""
    left = times

    def hook(crossed: Boundary) -> None:
        nonlocal left
        if crossed is boundary and left > 0:
            left -= 1
            raise Crash(str(boundary))

    boundaries.install(hook)
    try:
        yield
    finally:
        boundaries.install(None)
