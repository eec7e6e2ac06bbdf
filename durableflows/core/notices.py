"""What people are told about a request, how often a notice is tried, and when it is given up. Values only.

A notice that may have been given is given again under the same id, but for reminders: a second one is worse than none.
Source: design, section 6.
"""

from datetime import timedelta
from enum import StrEnum


class NoticeKind(StrEnum):
    """What a notice is about."""

    ASKED = "asked"
    ASSIGNED = "assigned"
    REMINDER = "reminder"
    ESCALATED = "escalated"
    CHANGED = "changed"
    QUESTION = "question"
    REPLY = "reply"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    UNANSWERABLE = "unanswerable"


ASKS = frozenset({NoticeKind.ASKED, NoticeKind.ASSIGNED, NoticeKind.REMINDER, NoticeKind.ESCALATED, NoticeKind.CHANGED})
"""Notices that ask for a decision: only for who may give it, with a link to where."""
WHILE_OPEN = ASKS | {NoticeKind.QUESTION, NoticeKind.REPLY, NoticeKind.UNANSWERABLE}
"""Notices that nobody needs any more once the request is closed."""
AT_MOST_ONCE = frozenset({NoticeKind.REMINDER})
"""Notices that are dropped when nobody knows whether they were given."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 3600.0
ALERT_AFTER_ATTEMPTS = 5
GIVE_UP_AFTER = timedelta(days=3)


class Fate(StrEnum):
    """What becomes of a notice that was not given, or perhaps was."""

    AGAIN = "tried again"
    DROPPED = "given up"


def fate(kind: str, *, is_permanent: bool, in_doubt: bool, age: timedelta) -> Fate:
    """Say whether a notice is tried again.

    is_permanent   no further try can work; in_doubt: it may have been given; age: since it was to be given
    """
    if is_permanent or age >= GIVE_UP_AFTER or (in_doubt and kind in AT_MOST_ONCE):
        return Fate.DROPPED
    return Fate.AGAIN


def pause_seconds(attempts: int) -> float:
    """How long to wait after so many attempts: 30 s, doubled each time, at most an hour."""
    return float(min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(attempts, 1) - 1, 20), LONGEST_PAUSE_SECONDS))
