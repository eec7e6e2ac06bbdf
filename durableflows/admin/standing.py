"""What a person comes to the list of requests for: what waits for them, what is late, what they decided, what is done.

Without a choice the list shows what waits for the person; a search without a choice looks through everything.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from durableflows import clock
from durableflows.admin.readonly import once, tenants_known
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.selectors import waiting_for
from durableflows.transactions import database

COUNTED = 100
NAME = "standing"
CHOICES = {
    "mine": "Waiting for me",
    "open": "Open",
    "overdue": "Overdue",
    "by_me": "Decided by me",
    "decided": "Decided or closed",
    "all": "All",
}
NOTHING = {
    "mine": "Nothing waits for you.",
    "open": "No request is open.",
    "overdue": "No request is overdue.",
    "by_me": "You have decided nothing yet.",
    "decided": "No request has been decided or closed yet.",
    "all": "There are no requests that you may see.",
}
SOONEST_FIRST = ("expires_at", "id")
NEWEST_FIRST = ("-id",)


def standing_of(request: HttpRequest) -> str:
    """Which of CHOICES the person looks at."""
    asked = request.GET.get(NAME, "")
    if asked in CHOICES:
        return asked
    return "all" if asked or request.GET.get(SEARCH_VAR, "").strip() else "mine"


def waiting(request: HttpRequest) -> QuerySet[ApprovalRequest]:
    """What waits for the person who asks, soonest first."""
    now = once(request, "now", clock.now)
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


class StandingFilter(admin.SimpleListFilter):
    """The tabs over the list."""

    title = "where it stands"
    parameter_name = NAME
    as_tabs = True

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.request = request

    def value(self) -> str:
        """The choice, or what is shown without one."""
        return standing_of(self.request)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return CHOICES.items()

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The tabs; the first says how many wait."""
        for name, text in CHOICES.items():
            count = waiting_count(self.request) if name == "mine" else 0
            yield {
                "selected": self.value() == name,
                "query_string": changelist.get_query_string({NAME: name}),
                "display": f"{text} ({count_words(count)})" if count else text,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        now = once(request, "now", clock.now)
        match self.value():
            case "mine":
                return queryset.filter(pk__in=waiting(request).order_by().values("pk"))
            case "open":
                return queryset.filter(state=ApprovalState.OPEN, expires_at__gt=now)
            case "overdue":  # handed on as well: those who were asked first have not answered in time
                late = Q(expires_at__lte=now) | Q(ladder_position__gt=0)
                return queryset.filter(late, state=ApprovalState.OPEN)
            case "by_me":
                mine = ApprovalDecision.objects.using(database()).filter(actor_id=request.user.pk)
                return queryset.filter(pk__in=mine.values("request_id"))
            case "decided":
                return queryset.exclude(state=ApprovalState.OPEN)
        return queryset
