"""Giving one notice to one person: the only caller of notifiers. Called by the `durableflows.notify` task.

Between two transactions, outside of any: `notices.take` has the row to itself, then the notifier is called within its
time, then `notices` records what came of it. Whatever a notifier does, no run waits for it.
"""

import re
from collections.abc import Callable, Mapping
from uuid import UUID
from zoneinfo import ZoneInfo

from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from durableflows import classifiers, clock, links, wall_time
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core.classify import describe
from durableflows.core.notices import ASKS, NoticeKind
from durableflows.errors import CredentialsRefused, Permanent, Transient
from durableflows.explain_words import moment, plain
from durableflows.models import ApprovalRequest, Notification, RequestNote
from durableflows.notifiers import Notice, load
from durableflows.selectors import may_answer, may_operate
from durableflows.services import notices
from durableflows.services.notices import Taken
from durableflows.templatetags.durableflows import fact
from durableflows.tenants import acts_in
from durableflows.transactions import database

_TOKEN = re.compile(r"[\w-]{20,}")


def deliver(notification_id: UUID) -> bool:
    """Give a notice to its person, if it is due and still needed. False: nothing was given.

    Crash   before or after the notifier is called: the row stays taken until its time is over, then it may have been
            given. It is given again, unless it is a reminder
    """
    taken = notices.take(notification_id)
    if taken is None:
        return False
    cross(Boundary.NOTICE_TAKEN)
    row = _row(taken)
    try:
        needless = _needless(row)
    except Exception as error:  # noqa: BLE001 - of code of the project that says who may: nothing was given
        notices.failed(taken, _told(error), is_permanent=False, in_doubt=False)
        return False
    if needless:
        notices.dropped(taken, needless)
        return False
    return _give(taken, row)


def _row(taken: Taken) -> Notification:
    rows = Notification.objects.using(database()).select_related("announcement", "person", "request__run")
    return rows.get(pk=taken.row.pk)


def _needless(row: Notification) -> str:
    """Why a notice need not be given any more; '' when it does. Rights are asked again: they may be gone by now."""
    person = row.person
    if person is None or not getattr(person, "is_active", False):
        return "the person is not active any more"
    if notices.is_moot(row.kind, row.request, clock.now()):
        return "the request is closed"
    if row.kind in ASKS and not may_answer(row.request, person):
        return "the person may not answer it any more"
    if not _may_know(row):
        return "the person may not know of it any more"
    if row.kind in ASKS and row.request.asked_at is not None and row.announcement.at < row.request.asked_at:
        return "the request was handed on to others"
    if row.notifier not in settings().NOTIFIERS:
        return "its notifier is not used any more"
    return ""


def _may_know(row: Notification) -> bool:
    """Who asked always; all others only in the request's tenant, and of a request that nobody can answer operators."""
    if row.person_id == row.request.requester_id:
        return True
    if row.kind == NoticeKind.UNANSWERABLE:
        return may_operate(row.request.run, row.person)
    return acts_in(row.person, row.request.tenant)


def _give(taken: Taken, row: Notification) -> bool:
    try:
        notifier, notice = load(row.notifier), notice_of(row)
        with wall_time.limit(notices.NOTIFY_SECONDS, row.notifier):
            notifier.notify(notice)
    except Exception as error:  # noqa: BLE001 - whatever a notifier raises, the notice's row says what becomes of it
        meant = classifiers.inside(error)
        in_doubt = not isinstance(meant, Transient | Permanent | CredentialsRefused)
        notices.failed(taken, _told(error), is_permanent=isinstance(meant, Permanent), in_doubt=in_doubt)
        return False
    cross(Boundary.NOTICE_GIVEN)
    notices.sent(taken)
    return True


def _told(error: Exception) -> str:
    """An error as rows and logs keep it: a notifier may quote its notice, and the token of its link with it (P14)."""
    return _TOKEN.sub("…", describe(error).text)


def notice_of(row: Notification) -> Notice:
    """What a person is told, with a link of the own. Makes the link."""
    request, person = row.request, row.person
    assert person is not None
    return Notice(
        id=str(row.pk),
        kind=row.kind,
        person=person,
        request_id=str(request.pk),
        subject=_SUBJECTS[NoticeKind(row.kind)].format(plain(request.title, 120)),
        title=plain(request.title),
        lines=tuple(_LINES[NoticeKind(row.kind)](row)),
        facts={plain(name, 80): plain(fact(value)) for name, value in request.binding.items()},
        link=_link(row),
        expires_at=request.expires_at,
    )


def _link(row: Notification) -> str:
    """Where to look: by a token for who is asked; '' where this project has no such pages, or no address."""
    base, request = settings().BASE_URL.rstrip("/"), row.request
    try:
        if not base:
            return ""
        if row.kind in ASKS:
            token = links.mint(request, row.person, clock.now())
            return base + reverse("durableflows:link", args=[token])
        page = "asked" if row.person_id == request.requester_id else "decision"
        return base + reverse(f"durableflows:{page}", args=[request.pk])
    except NoReverseMatch:
        return ""


def _until(request: ApprovalRequest) -> str:
    """Until when, in the zone in which that was set, else in the project's own."""
    zone = ZoneInfo(request.zone) if request.zone else timezone.get_default_timezone()
    with timezone.override(zone):
        return f"{moment(request.expires_at, clock.now())} ({request.zone or timezone.get_default_timezone_name()})"


def _asks(row: Notification) -> list[str]:
    who = plain(row.request.requester_name, 80)
    asked = f"{who} asks for your decision." if who else "Your decision is asked for."
    return [asked, f"You can answer until {_until(row.request)}."]


def _reminds(row: Notification) -> list[str]:
    return ["This still waits for your decision.", f"You can answer until {_until(row.request)}."]


def _escalated(row: Notification) -> list[str]:
    return ["Nobody answered this in time: now you are asked.", f"You can answer until {_until(row.request)}."]


def _assigned(row: Notification) -> list[str]:
    note = row.request.notes.filter(kind=RequestNote.ASSIGNED, number=row.announcement.number).first()
    by = plain(note.author_name, 80) if note is not None and note.author_name else "Somebody"
    why = [plain(note.text)] if note is not None else []
    return [f"{by} hands this to you:", *why, f"You can answer until {_until(row.request)}."]


def _changed(row: Notification) -> list[str]:
    changed = "What you have answered to has changed since, so your answer does not count."
    return [changed, f"Look at it again: you can answer until {_until(row.request)}."]


def _note(row: Notification) -> list[str]:
    note = row.request.notes.filter(number=row.announcement.number).first()
    if note is None:
        return []
    verb = {RequestNote.QUESTION: "asks", RequestNote.REPLY: "replies"}.get(note.kind, "withdrew it")
    return [f"{plain(note.author_name, 80)} {verb}:", plain(note.text, 1000)]


def _expired(row: Notification) -> list[str]:
    return ["Nobody answered what you have asked for in time."]


def _unanswerable(row: Notification) -> list[str]:
    return ["Nobody can answer this: no active person has the right, beside who asked for it."]


_SUBJECTS: Mapping[NoticeKind, str] = {
    NoticeKind.ASKED: "To decide: {}",
    NoticeKind.ASSIGNED: "Handed to you: {}",
    NoticeKind.REMINDER: "Reminder: {}",
    NoticeKind.ESCALATED: "Overdue, to decide: {}",
    NoticeKind.CHANGED: "Changed, to decide again: {}",
    NoticeKind.QUESTION: "A question about: {}",
    NoticeKind.REPLY: "A reply about: {}",
    NoticeKind.WITHDRAWN: "Withdrawn: {}",
    NoticeKind.EXPIRED: "Nobody answered: {}",
    NoticeKind.UNANSWERABLE: "Nobody can decide: {}",
}
_LINES: Mapping[NoticeKind, Callable[[Notification], list[str]]] = {
    NoticeKind.ASKED: _asks,
    NoticeKind.ASSIGNED: _assigned,
    NoticeKind.REMINDER: _reminds,
    NoticeKind.ESCALATED: _escalated,
    NoticeKind.CHANGED: _changed,
    NoticeKind.QUESTION: _note,
    NoticeKind.REPLY: _note,
    NoticeKind.WITHDRAWN: _note,
    NoticeKind.EXPIRED: _expired,
    NoticeKind.UNANSWERABLE: _unanswerable,
}
