"""The list: what waits for the person, what is open in the team, what is late, what was decided and asked for."""

from django.http import HttpRequest, HttpResponse

from durableflows.reading import inbox, tables
from durableflows.reading.standing import waiting_count, waiting_words
from durableflows.views.doors import Door


class Inbox(Door):
    """Requests under a choice, found by a search, sorted, a page at a time."""

    def get(self, request: HttpRequest) -> HttpResponse:
        choice = inbox.chosen(request)
        window = inbox.page(request, choice)
        context = {
            "choice": choice,
            "rows": inbox.listed(window.rows, request),
            "tabs": list(inbox.tabs(request, choice)),
            "sorts": inbox.SORTS,
            "workflows": inbox.workflows(),
            "questions": inbox.questions(request),
            "said": waiting_words(waiting_count(request)),
            "exports": tables.links(request, "durableflows:export", choice.address()),
            "nothing": inbox.NOTHING[choice.show],
            "earlier": choice.address(before=window.earlier) if window.earlier else "",
            "later": choice.address(after=window.later) if window.later else "",
            "is_link_over": request.GET.get("link") == "over",
            "first": choice.address() if choice.after or choice.before else "",
        }
        return self.show("list.html", context)
