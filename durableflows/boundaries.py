"""The closed list of places where a process may die, and `cross`, which the engine calls at each.

In production `cross` does nothing. Tests install a hook that kills, raises or waits at a named boundary.
A new transaction or outside call is a new boundary, with its crash test. The text under each says what is true after
a crash there; docs/reference/crash-points.md is printed from it.
"""

from collections.abc import Callable
from enum import StrEnum


class Boundary(StrEnum):
    """Where a crash must leave rows from which the run can go on."""

    START_BEFORE_COMMIT = "start: before commit"
    """Neither run, step nor message exists: the caller's transaction is rolled back as a whole."""
    START_BEFORE_SEND = "start: after commit, before send"
    """The run is stored and its first step is READY. No message left; a sweep sends the step."""
    CLAIM_BEFORE_COMMIT = "claim: before commit"
    """The step is READY as before. The message is used up; a sweep sends the step again."""
    CLAIM_AFTER_COMMIT = "claim: after commit"
    """The step is RUNNING and nothing was sent. Its lease is freed, it becomes READY, and the try is not counted."""
    EFFECT_BEFORE_RESERVE = "effect: before reserve"
    """As after the claim: no row says that this call was meant, and nothing has left."""
    EFFECT_AFTER_RESERVE = "effect: after reserve"
    """The effect is DISPATCHED; no row can say whether the request left. When the lease is freed, it is UNKNOWN."""
    EFFECT_AFTER_ANSWER = "effect: after the answer, before the receipt"
    """The same rows as before the answer: DISPATCHED, then UNKNOWN. The provider has acted and only it knows so."""
    EFFECT_AFTER_RECEIPT = "effect: after the receipt"
    """The effect has its receipt. The body runs again and gets that receipt; nothing is sent."""
    TOGETHER_BEFORE_COMMIT = "transactional effect: before commit"
    """Nothing of it has happened: neither what its function wrote, nor its row. The body runs again, and it is done."""
    SETTLE_BEFORE_COMMIT = "settle: before commit"
    """The step is RUNNING, the checkpoint is the old one, effects keep their receipts, an atomic step wrote nothing."""
    SETTLE_BEFORE_SEND = "settle: after commit, before send"
    """The checkpoint is stored and the next step is READY. No message left; a sweep sends the step."""
    ANSWER_BEFORE_COMMIT = "approval: before commit"
    """The request is OPEN and the answer is not stored."""
    ANSWER_AFTER_COMMIT = "approval: after commit"
    """The answer is stored. When it decided, the next step is READY; a sweep sends it if nobody has."""
    PEOPLE_BEFORE_COMMIT = "verb between people: before commit"
    """Nothing was lent, handed on, asked, replied or withdrawn, and nobody is told of it: it may be said again."""
    PEOPLE_AFTER_COMMIT = "verb between people: after commit"
    """It was done, and whom it concerns is told by a sweep. The same again does nothing."""
    NOTICE_BEFORE_COMMIT = "notice addressed: before commit"
    """What was announced is not addressed, or a reminder not announced: it is still due, and worked out again."""
    NOTICE_TAKEN = "notice: taken, before it is given"
    """Nobody was told. When its time is over it is given by another worker; a reminder is not, it may have been."""
    NOTICE_GIVEN = "notice: given, before that is recorded"
    """The same rows: it is given a second time under the same id; a reminder is not."""
    CANCEL_BEFORE_COMMIT = "cancel: before commit"
    """The run goes on: nobody has asked for its end."""
    CANCEL_AFTER_COMMIT = "cancel: after commit"
    """The run ends as CANCELLED, or is ENDING: nothing more of it is sent, and a sweep ends it once it is quiet."""
    CLEANUP_BEFORE_COMMIT = "clean-up: before commit"
    """The run is as it was before whatever would have begun its clean-up; a sweep begins it once the run is quiet."""
    CLEANUP_BEFORE_SEND = "clean-up: after commit, before send"
    """What was under way is settled and closed, and the clean-up's first step is READY. A sweep sends the step."""
    UNDO_BEFORE_COMMIT = "undo: before commit"
    """The run is as it was before whatever would have begun this undo; a sweep begins it once the run is quiet."""
    UNDO_BEFORE_SEND = "undo: after commit, before send"
    """What is to be undone is UNDOING, and the step that undoes it is READY. A sweep sends the step."""
    TIMER_BEFORE_COMMIT = "timer: before commit"
    """The step is RETRY_SCHEDULED and overdue; the next sweep wakes it."""
    TIMER_AFTER_COMMIT = "timer: after commit"
    """The step is READY; a sweep sends it if nobody has."""
    SIGNAL_BEFORE_COMMIT = "signal: before commit"
    """The signal is not stored, and its sender was told nothing: it may be sent again."""
    SIGNAL_AFTER_COMMIT = "signal: after commit"
    """The signal is stored. A step that waited for it is READY; a sweep sends it if nobody has."""
    CROSSING_BEFORE_COMMIT = "crossing: before commit"
    """A child is not started, or its end not handed over: it is still due, and a sweep carries it."""
    CROSSING_AFTER_COMMIT = "crossing: after commit"
    """The child is started, or its parent's step READY; a sweep sends what nobody has."""
    OPERATE_BEFORE_COMMIT = "operator's verb: before commit"
    """Pause, resume, extend, edit, redrive, abandon, rotate or cleanup was not done: the run stands as before, and may
    be told again."""
    OPERATE_AFTER_COMMIT = "operator's verb: after commit"
    """It was done, in one commit with all that it closes and opens. READY steps are sent by a sweep if nobody has."""
    LOOKUP_BEFORE_COMMIT = "lookup: before commit"
    """The question is counted and its answer is lost. The question's own lease runs out, and it is asked again."""
    LOOKUP_AFTER_COMMIT = "lookup: after commit"
    """The answer is in the effect's row; a sweep looks at the step and lets it go on."""
    PROVIDER_EVENT_BEFORE_COMMIT = "provider event: before commit"
    """The event is not stored, and its provider was not told that it arrived: it sends it again."""
    PROVIDER_EVENT_AFTER_COMMIT = "provider event: after commit"
    """The event is stored, once, and not judged: a sweep judges it if nobody has. A copy changes nothing."""
    EVENT_JUDGED_BEFORE_COMMIT = "provider event judged: before commit"
    """The event waits as before, and the effect is as it was; a sweep judges it."""
    EVENT_JUDGED_AFTER_COMMIT = "provider event judged: after commit"
    """What it tells is in the effect's row and in the event's; a sweep looks at the step and lets it go on."""


_hook: Callable[[Boundary], None] | None = None


def cross(boundary: Boundary) -> None:
    """Pass a boundary; a test's hook may end the process here."""
    if _hook is not None:
        _hook(boundary)


def install(hook: Callable[[Boundary], None] | None) -> None:
    """Set or remove the hook of this process. For tests only."""
    global _hook
    _hook = hook
