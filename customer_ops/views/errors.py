"""The page for what is no readable request. Named as `handler400`; reads nothing of the request."""

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Say that nothing was done. Django's own view reads the form once more, and fails on it as the first time."""
    return HttpResponse(render_to_string("400.html"), status=400)
