"""The console: how all of it stands. Dashboard, providers and workers, for whoever may see runs of others.

What changes a provider is a POST with a reason from a page that has shown what it would do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from durableflows.errors import NotFoundError
from durableflows.reading import providers
from durableflows.reading.dashboard import dashboard, sight_for
from durableflows.reading.ends import MOST_ENDS
from durableflows.reading.standing import now_of
from durableflows.reading.stopping import VERBS, Stopping, legal
from durableflows.reading.workers import workers
from durableflows.selectors import sees_others
from durableflows.services.providers import why_not
from durableflows.views.doors import UNSENT, Door


class ConsoleDoor(Door):
    """A page about all runs that the person may see, not about one."""

    folder = "console"
    home = "durableflows:console"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer 403 to who sees the own runs alone."""
        if request.user.is_authenticated and not sees_others(request.user):
            raise PermissionDenied("The permission durableflows.view_workflowrun or operate_run is needed.")
        return super().dispatch(request, *args, **kwargs)


class Dashboard(ConsoleDoor):
    """Figures of what is under way, and charts of the last hours."""

    most = MOST_ENDS

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show("dashboard.html", dashboard(request, self.most))


class Workers(ConsoleDoor):
    """Who works, and on what."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show("workers.html", workers(sight_for(request), now_of(request)))


class Providers(ConsoleDoor):
    """How each provider stands."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show("providers.html", {"providers": providers.all_of(sight_for(request), now_of(request))})


class ProviderPage(ConsoleDoor):
    """One provider: how it stands, what waits for it, and what became of it before."""

    def get(self, request: HttpRequest, provider: str) -> HttpResponse:
        sight, now = sight_for(request), now_of(request)
        with there():
            found = providers.one_of(provider, sight, now)
        did = VERBS.get(request.GET.get("did", ""))
        context = {
            "provider": found,
            "lately": providers.sends_lately(provider, sight, now),
            "changes": providers.changes(provider),
            "verbs": legal(found.breaker),
            "why_not": why_not(request.user),
            "did": did.did if did else "",
        }
        return self.show("provider.html", context)


class StopProvider(ConsoleDoor):
    """Pause a provider, or let requests leave for it again."""

    def stopping(self, provider: str, verb: str) -> Stopping:
        """The verb on the provider. 404 for what is none, 403 for who may not do it."""
        if verb not in VERBS:
            raise Http404("There is no such verb.")
        if why := why_not(self.request.user):
            raise PermissionDenied(f"You may not {verb} a provider: {why}.")
        with there():
            return Stopping(self.request, provider, verb)

    def get(self, request: HttpRequest, provider: str, verb: str) -> HttpResponse:
        context = self.stopping(provider, verb).context({"is_unsent": UNSENT in request.GET})
        return self.show("provider_action.html", context)

    def post(self, request: HttpRequest, provider: str, verb: str) -> HttpResponse:
        stopping = self.stopping(provider, verb)
        status, said = stopping.order()
        if status == 200:
            return HttpResponseRedirect(f"{reverse('durableflows:provider', args=[provider])}?did={verb}")
        return self.show("provider_action.html", stopping.context(said), status=status)


@contextmanager
def there() -> Iterator[None]:
    """Answer 404 for a provider that nothing names."""
    try:
        yield
    except NotFoundError as error:
        raise Http404(str(error)) from error
