"""Whom a notice about a request is for. Asks for rights, so it runs code of the project: never under a lock (P11).

Of a permission only those who were given it are told; superusers, who may do everything, when nobody else could answer.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from durableflows import delegations
from durableflows.candidates import candidates
from durableflows.core.approvers import Approvers
from durableflows.core.notices import NoticeKind
from durableflows.models import Announcement, ApprovalDecision, ApprovalRequest, RequestNote
from durableflows.selectors import OPERATE, may_answer, may_operate
from durableflows.transactions import database


def recipients(announcement: Announcement, now: datetime) -> list[Any]:
    """The people whom an announcement is for, each once, in a fixed order."""
    found = _RULES[NoticeKind(announcement.kind)](announcement.request, announcement, now)
    people = {person.pk: person for person in found if getattr(person, "is_active", False)}
    return [people[pk] for pk in sorted(people)]


def answerers(request: ApprovalRequest, now: datetime) -> list[Any]:
    """Everybody who may answer a request now, and those who act for them."""
    named = [person for person in _around(request, superusers=False, now=now) if may_answer(request, person)]
    if named:
        return named
    return [person for person in _around(request, superusers=True, now=now) if may_answer(request, person)]


def _around(request: ApprovalRequest, *, superusers: bool, now: datetime) -> list[Any]:
    """The people whom a request is asked of, and those who act for them, each once."""
    by = request.asked_of
    own = [] if by is None else [*candidates(by, superusers=superusers)]
    acting = delegations.taken_from(own, now)
    return [*{person.pk: person for person in (*own, *acting)}.values()]


def _asked(request: ApprovalRequest, _: Announcement, now: datetime) -> Iterable[Any]:
    """Those who may answer and have not; of a request that is assigned, its assignee alone."""
    voted = ApprovalDecision.objects.using(database()).filter(request=request, voided_at__isnull=True)
    done = set(voted.values_list("actor_id", flat=True))
    if request.assignee is not None and request.assignee.pk not in done and may_answer(request, request.assignee):
        return [request.assignee]
    return [person for person in answerers(request, now) if person.pk not in done]


def _assignee(request: ApprovalRequest, _: Announcement, now: datetime) -> Iterable[Any]:
    """Not to who has taken it: that person knows."""
    last = request.notes.filter(kind=RequestNote.ASSIGNED).order_by("-number").first()
    taken = last is not None and last.author_id == request.assignee_id
    return [] if request.assignee is None or taken else [request.assignee]


def _voided(request: ApprovalRequest, announcement: Announcement, now: datetime) -> Iterable[Any]:
    votes = ApprovalDecision.objects.using(database()).filter(request=request, voided_at=announcement.at)
    return [vote.actor for vote in votes.select_related("actor") if vote.actor is not None]


def _requester(request: ApprovalRequest, _: Announcement, now: datetime) -> Iterable[Any]:
    return [request.requester] if request.requester is not None else []


def _asker(request: ApprovalRequest, announcement: Announcement, now: datetime) -> Iterable[Any]:
    """Who asked what this replies to."""
    note = request.notes.filter(number=announcement.number).select_related("answers__author").first()
    asked = note.answers if note is not None else None
    return [asked.author] if asked is not None and asked.author is not None else []


def _concerned(request: ApprovalRequest, announcement: Announcement, now: datetime) -> Iterable[Any]:
    """Who has been told of it before, and has therefore something to forget."""
    told = request.notifications.filter(sent_at__isnull=False).select_related("person")
    return [one.person for one in told if one.person is not None and one.person.pk != request.requester_id]


def _operators(request: ApprovalRequest, _: Announcement, now: datetime) -> Iterable[Any]:
    for superusers in (False, True):
        people = candidates(Approvers(permission=OPERATE), superusers=superusers)
        if found := [person for person in people if may_operate(request.run, person)]:
            return found
    return []


Rule = Callable[[ApprovalRequest, Announcement, datetime], Iterable[Any]]
_RULES: Mapping[NoticeKind, Rule] = {
    NoticeKind.ASKED: _asked,
    NoticeKind.ASSIGNED: _assignee,
    NoticeKind.REMINDER: _asked,
    NoticeKind.ESCALATED: _asked,
    NoticeKind.CHANGED: _voided,
    NoticeKind.QUESTION: _requester,
    NoticeKind.REPLY: _asker,
    NoticeKind.WITHDRAWN: _concerned,
    NoticeKind.EXPIRED: _requester,
    NoticeKind.UNANSWERABLE: _operators,
}
