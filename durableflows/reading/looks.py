"""That a page shows a request to a person, kept for auditors. Called by every page that shows the facts of one."""

from collections.abc import Iterable

from django.http import HttpRequest

from durableflows.models import ApprovalRequest
from durableflows.reading.standing import now_of
from durableflows.services.looks import note_all_shown


def note_look(request: HttpRequest, requests: Iterable[ApprovalRequest], door: str) -> None:
    """Record that the person is shown these requests, which were read through `selectors`. A HEAD shows nothing."""
    if request.method != "HEAD":
        origin = request.META.get("REMOTE_ADDR", "")
        note_all_shown(requests, by=request.user, at=now_of(request), door=door, origin=origin)
