"""Who comes in to the inbox: whoever is logged in. Strangers are sent to log in, and lose nothing but their click.

Every page of the inbox is a `Door`: never kept by a browser or a proxy, never framed, without inline scripts.
"""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.generic import View

from durableflows.core import log_lines
from durableflows.models import ApprovalRequest
from durableflows.reading.looking import refuse_unstorable, tenants_known
from durableflows.reading.standing import now_of, visible_one
from durableflows.views.guard import guarded

logger = log_lines.logger("durableflows.pages")

Context = dict[str, Any]
UNSENT = "unsent"
"""Says in an address that a form was sent by somebody who was logged out by then, so nothing was done."""

SEARCH = "q"
"""The search says at its field what it cannot look for."""


# Nobody reads by the back button after a log-out; a form needs its token whatever the project's middleware is.
@method_decorator([never_cache, csrf_protect], name="dispatch")
class Door(View):
    """Lets in who is logged in."""

    request: HttpRequest
    folder = "inbox"
    home = "durableflows:inbox"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Send strangers to log in; answer 400 and 403 for what no query takes, and where tenants are not known."""
        if not request.user.is_authenticated:
            return self.send_to_log_in()
        refuse_unstorable(one for one in request.GET.lists() if one[0] != SEARCH)
        with tenants_known():
            return super().dispatch(request, *args, **kwargs)

    def send_to_log_in(self) -> HttpResponse:
        """What a stranger has posted is not done; the page that it was posted from says so after the log-in."""
        if self.request.method != "POST":
            return redirect_to_login(self.request.get_full_path())
        return redirect_to_login(f"{self.page_of_form()}?{urlencode({UNSENT: 1})}")

    def page_of_form(self) -> str:
        """The page whose form is posted here."""
        return self.request.path

    def asked(self, request_id: UUID) -> ApprovalRequest:
        """One request that the person may see. 404 for all others, also when it is somebody else's (S2.25)."""
        asked = visible_one(self.request, request_id)
        if asked is None:
            logger.warning("%s asked for request %s: not there, or not to be seen", self.request.user, request_id)
            raise Http404("There is no such request, or none that you may see.")
        return asked

    def show(self, template: str, context: Context, *, status: int = 200) -> HttpResponse:
        """Show a page; a project may have its own template of the same name."""
        base = {"seen_at": now_of(self.request), "list_address": reverse(self.home)}
        page = render(self.request, f"durableflows/{self.folder}/{template}", {**base, **context}, status=status)
        return guarded(page)
