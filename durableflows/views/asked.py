"""The requester's side of a request: how far it is, in words."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse

from durableflows import api
from durableflows.reading.facts import shown_of
from durableflows.reading.progress import progress_of
from durableflows.reading.standing import now_of, standing_words
from durableflows.views.doors import UNSENT, Door


class AskedFor(Door):
    """Says to who asked what it waits for, since when, and what comes."""

    def get(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        asked = self.asked(request_id)
        if asked.requester_id != request.user.pk:
            raise Http404("There is no such request of yours.")
        now = now_of(request)
        context = {
            "title": asked.title,
            "asked": asked,
            "facts": shown_of(asked),
            "standing": standing_words(asked, now),
            "progress": progress_of(asked, now),
            "decisions": list(asked.decisions.all()),
            "explanation": api.explain(asked.run_id),
            "is_unsent": UNSENT in request.GET,
        }
        return self.show("asked.html", context)
