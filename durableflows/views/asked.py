"""The requester's side of a request: how far it is, in words."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from durableflows import api
from durableflows.models import ApprovalRequest
from durableflows.reading.facts import shown_of
from durableflows.reading.progress import progress_of
from durableflows.reading.standing import now_of, standing_words
from durableflows.reading.words import open_question
from durableflows.views.doors import UNSENT, Context, Door


def asked_address(request_id: UUID) -> str:
    """The address of the requester's side of a request."""
    return reverse("durableflows:asked", args=[request_id])


class AskedFor(Door):
    """Says to who asked what it waits for, since when, and what comes."""

    def get(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        return show_asked(self, self.asked(request_id), {"is_unsent": UNSENT in request.GET})


def show_asked(door: Door, asked: ApprovalRequest, more: Context, *, status: int = 200) -> HttpResponse:
    """The page as it is now; `more`: forms that were posted, and what became of them. 404 for everybody else."""
    if asked.requester_id != door.request.user.pk:
        raise Http404("There is no such request of yours.")
    now, notes = now_of(door.request), list(asked.notes.all())
    context = {
        "title": asked.title,
        "asked": asked,
        "facts": shown_of(asked),
        "standing": standing_words(asked, now),
        "progress": progress_of(asked, notes, now),
        "decisions": list(asked.decisions.all()),
        "explanation": api.explain(asked.run_id),
        "notes": notes,
        "question": open_question(notes),
        "done": door.request.GET.get("done", ""),
    }
    return door.show("asked.html", {**context, **more}, status=status)
