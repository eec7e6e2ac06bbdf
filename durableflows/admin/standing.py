"""What a person comes to the admin's list of requests for, as tabs: what waits for them, what is late, what is done.

Without a choice the list shows what waits for the person; a search without a choice looks through everything.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import QuerySet
from django.http import HttpRequest

from durableflows.reading.standing import count_words, narrowed, waiting_count

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


def standing_of(request: HttpRequest) -> str:
    """Which of CHOICES the person looks at."""
    asked = request.GET.get(NAME, "")
    if asked in CHOICES:
        return asked
    return "all" if asked or request.GET.get(SEARCH_VAR, "").strip() else "mine"


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
        return narrowed(request, queryset, self.value())
