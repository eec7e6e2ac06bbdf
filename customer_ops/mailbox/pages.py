"""The mail page: a list, one mail, its source. Reads only; whatever a mail holds is shown as text."""

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from customer_ops.mailbox.letter import Letter
from customer_ops.mailbox.settings import MAILBOX_DESK, MAILBOX_FOLDER
from customer_ops.mailbox.store import Store, count_arrivals

PAGE_SIZE = 50
LONGEST_SEARCH = 200


@never_cache
@require_safe
def letters(request: HttpRequest) -> HttpResponse:
    """Show the list, newest first; `to` picks recipients."""
    search = request.GET.get("to", "").strip()[:LONGEST_SEARCH]
    found = Store(MAILBOX_FOLDER).letters(recipient=search)
    arrivals = count_arrivals(found)
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = [(letter, arrivals[letter.message_id]) for letter in page]
    return render(request, "mailbox/letters.html", {"rows": rows, "page": page, "search": search, "desk": MAILBOX_DESK})


@never_cache
@require_safe
def letter(request: HttpRequest, key: str) -> HttpResponse:
    """Show one mail, and the others that came with the same Message-ID."""
    shown = _find(key)
    others = [other for other in Store(MAILBOX_FOLDER).arrivals(shown.message_id) if other.key != key]
    return render(request, "mailbox/letter.html", {"letter": shown, "others": others, "desk": MAILBOX_DESK})


@never_cache
@require_safe
def source(_request: HttpRequest, key: str) -> HttpResponse:
    """Give the kept file, byte by byte, as text that no browser takes for a page."""
    return HttpResponse(_find(key).source, content_type="text/plain; charset=utf-8")


def _find(key: str) -> Letter:
    found = Store(MAILBOX_FOLDER).letter(key)
    if found is None:
        raise Http404
    return found
