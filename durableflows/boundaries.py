"""The closed list of places where a process may die, and `cross`, which the engine calls at each.

In production `cross` does nothing. Tests install a hook that kills, raises or waits at a named boundary
(design, section 9). A new transaction or outside call is a new boundary, with its crash test.
"""

from collections.abc import Callable
from enum import StrEnum


class Boundary(StrEnum):
    """Where a crash must leave rows from which the run can go on."""

    START_BEFORE_COMMIT = "start: before commit"
    START_BEFORE_SEND = "start: after commit, before send"
    CLAIM_BEFORE_COMMIT = "claim: before commit"
    CLAIM_AFTER_COMMIT = "claim: after commit"
    EFFECT_BEFORE_RESERVE = "effect: before reserve"
    EFFECT_AFTER_RESERVE = "effect: after reserve"
    EFFECT_AFTER_ANSWER = "effect: after the answer, before the receipt"
    EFFECT_AFTER_RECEIPT = "effect: after the receipt"
    SETTLE_BEFORE_COMMIT = "settle: before commit"
    SETTLE_BEFORE_SEND = "settle: after commit, before send"
    ANSWER_BEFORE_COMMIT = "approval: before commit"
    ANSWER_AFTER_COMMIT = "approval: after commit"
    CANCEL_BEFORE_COMMIT = "cancel: before commit"
    CANCEL_AFTER_COMMIT = "cancel: after commit"
    TIMER_BEFORE_COMMIT = "timer: before commit"
    TIMER_AFTER_COMMIT = "timer: after commit"
    LOOKUP_BEFORE_COMMIT = "lookup: before commit"
    LOOKUP_AFTER_COMMIT = "lookup: after commit"


_hook: Callable[[Boundary], None] | None = None


def cross(boundary: Boundary) -> None:
    """Pass a boundary; a test's hook may end the process here."""
    if _hook is not None:
        _hook(boundary)


def install(hook: Callable[[Boundary], None] | None) -> None:
    """Set or remove the hook of this process. For tests only."""
    global _hook
    _hook = hook
