"""Where requests stand for the person who looks: which choice of a list they are under, and the words of one.

Reads only. Each choice narrows the requests that `selectors` lets the person see, never more than these.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.timesince import timesince

from durableflows import clock
from durableflows.core.states import ApprovalState
from durableflows.explain_words import state_words
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.reading.looking import once, tenants_known
from durableflows.selectors import requests_for, waiting_for
from durableflows.transactions import database

COUNTED = 100
SOONEST_FIRST = ("expires_at", "id")
NEWEST_FIRST = ("-id",)
BY_TIME = ("mine", "open", "team", "overdue")
"""The choices of what can still be answered, where what expires first comes first."""


def now_of(request: HttpRequest) -> datetime:
    """The time of looking, read once a page."""
    return once(request, "now", clock.now)


def visible(request: HttpRequest) -> QuerySet[ApprovalRequest]:
    """The requests that the person may see; built once a page, because it asks which rights open requests need.

    Raises TenantsUnknown.
    """
    return once(request, "visible", lambda: requests_for(request.user))


def visible_one(request: HttpRequest, request_id: UUID) -> ApprovalRequest | None:
    """One of these, with its run and step. The time of looking comes with it: a page of one asks for no time."""
    rows = visible(request).select_related("run", "step").annotate(seen_at=clock.as_expression())
    asked = rows.filter(pk=request_id).first()
    if asked is not None:
        once(request, "now", lambda: asked.seen_at)
    return asked


def waiting(request: HttpRequest) -> QuerySet[ApprovalRequest]:
    """What waits for the person who asks, soonest first."""
    now = now_of(request)
    # Built once a page: it asks which rights open requests need.
    with tenants_known():
        rows = once(request, "waiting", lambda: waiting_for(request.user, now=now))
    return rows.order_by(*SOONEST_FIRST)


def waiting_count(request: HttpRequest) -> int:
    """How many wait for the person, counted no further than COUNTED."""
    return once(request, "waiting_count", waiting(request)[:COUNTED].count)


def count_words(count: int) -> str:
    """A count of `waiting_count` as it is shown."""
    return f"{count} or more" if count >= COUNTED else str(count)


def waiting_words(count: int) -> str:
    """Say how many wait for the person."""
    verb = "request waits" if count == 1 else "requests wait"
    return f"{count_words(count)} {verb} for you." if count else "Nothing waits for you."


def narrowed(request: HttpRequest, rows: QuerySet[Any], choice: str) -> QuerySet[Any]:
    """Keep of the requests that the person may see those under a choice; all of them under an unknown one."""
    me, open_ones = request.user.pk, rows.filter(state=ApprovalState.OPEN)
    match choice:
        case "mine":
            return rows.filter(pk__in=waiting(request).order_by().values("pk"))
        case "open":
            return open_ones.filter(expires_at__gt=now_of(request))
        case "team":
            return open_ones.exclude(requester_id=me)
        case "overdue":  # handed on as well: those who were asked first have not answered in time
            return open_ones.filter(Q(expires_at__lte=now_of(request)) | Q(ladder_position__gt=0))
        case "by_me":
            mine = ApprovalDecision.objects.using(database()).filter(actor_id=me)
            return rows.filter(pk__in=mine.values("request_id"))
        case "asked":
            return rows.filter(requester_id=me)
        case "decided":
            return rows.exclude(state=ApprovalState.OPEN)
    return rows


def since_words(asked: ApprovalRequest, now: datetime) -> str:
    """Say how long ago it was asked."""
    return f"{span(asked.created_at, now)} ago"


def expires_words(asked: ApprovalRequest, now: datetime) -> str:
    """Say how long there is, or since when it is too late; '' for what is closed."""
    if asked.state != ApprovalState.OPEN:
        return ""
    if asked.expires_at > now:
        return f"in {span(now, asked.expires_at)}"
    return f"{span(asked.expires_at, now)} ago"


def standing_words(asked: ApprovalRequest, now: datetime) -> str:
    """Say the state in words."""
    if asked.state != ApprovalState.OPEN:
        return state_words(asked.state, "approvalrequest")
    if asked.expires_at <= now:
        return "overdue"
    return "handed on: nobody answered in time" if asked.ladder_position else "waiting"


def span(start: datetime, end: datetime) -> str:
    """How far two moments are apart, in words."""
    return timesince(start, end) if end - start >= timedelta(minutes=1) else "less than a minute"
