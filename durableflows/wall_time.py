"""A hard limit on how long an outside call may take, whatever its own time-outs do."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from durableflows.errors import UnknownOutcome


@contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
    """Raise UnknownOutcome in the block after `seconds` of wall time.

    Works in a process's main thread (prefork and solo pools). Elsewhere (threads pool) Python cannot interrupt a
    call: the adapter's own time-outs and the lease's `must_end_by` bound it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def expired(_signum: int, _frame: FrameType | None) -> None:
        raise UnknownOutcome(f"{what} gave no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
