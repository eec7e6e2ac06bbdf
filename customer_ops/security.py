"""The headers that keep foreign text inert in browsers. Named in MIDDLEWARE; changes nothing but headers."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# Neither inline scripts nor javascript: addresses run, whatever a customer wrote.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class ContentSecurityPolicy:
    """Gives each answer the policy, unless the page brought its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
