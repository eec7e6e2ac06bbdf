"""The only writer of `Announcement`: what people must be told commits with what happened, and is addressed later.

Called with the run and the request locked. Works nobody out and calls nobody: that runs code of the project (P11).
"""

from datetime import datetime

from durableflows.conf import settings
from durableflows.core.notices import NoticeKind
from durableflows.models import Announcement, ApprovalRequest
from durableflows.transactions import database


def announce(request_locked: ApprovalRequest, kind: NoticeKind, now: datetime, *, number: int = 0) -> None:
    """Have people told about a request, once for each kind, rung and number. Nothing where nobody is notified.

    number   tells those of one rung apart: which note or reminder it is about
    """
    if not settings().NOTIFIERS:
        return
    row = Announcement(
        request=request_locked,
        kind=str(kind),
        rung=request_locked.ladder_position,
        number=number,
        at=now,
        due_at=now,
    )
    Announcement.objects.using(database()).bulk_create([row], ignore_conflicts=True)


def announce_again(request_locked: ApprovalRequest, kind: NoticeKind, now: datetime) -> None:
    """The same each time that it happens: a request may be put to the same rung again, or change more than once."""
    rows = Announcement.objects.using(database()).filter(request=request_locked, kind=str(kind))
    announce(request_locked, kind, now, number=rows.count() if settings().NOTIFIERS else 0)
