"""Where links in mails lead: to the request's page, without the token. Opening one changes nothing (R24).

The token is taken out of the request before anything can write its address down: Django logs the address of what it
refuses, and error reports show it. The answer is a redirect that tells no other site where it came from.
"""

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from durableflows import clock, links

HIDDEN = "…"


# Nothing is done here whatever is sent, and a refusal would log the address: a form's token is asked for on the page.
@method_decorator([csrf_exempt, never_cache], name="dispatch")
class FollowLink(View):
    """Leads from a link in a mail to the page of its request."""

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Hide the token first of all."""
        self.token = str(kwargs.pop("token", ""))
        for text in ("path", "path_info"):
            setattr(request, text, getattr(request, text).replace(self.token, HIDDEN))
        # The raw address may spell the token in another way: it is not looked for there, all of it is replaced.
        for name in ("PATH_INFO", "REQUEST_URI", "RAW_URI"):
            if name in request.META:
                request.META[name] = request.path
        super().setup(request, *args, **kwargs)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer every method alike; only a GET or HEAD finds the request."""
        response = self._lead(request) if request.method in ("GET", "HEAD") else _to_inbox()
        response["Referrer-Policy"] = "no-referrer"
        return response

    def _lead(self, request: HttpRequest) -> HttpResponse:
        link = links.find(self.token.rstrip("/"), clock.now())
        if link is None:
            return _to_inbox("?link=over")
        page = reverse("durableflows:decision", args=[link.request_id]) + f"?link={link.pk}"
        return HttpResponseRedirect(page) if request.user.is_authenticated else redirect_to_login(page)


def _to_inbox(query: str = "") -> HttpResponse:
    return HttpResponseRedirect(reverse("durableflows:inbox") + query)
