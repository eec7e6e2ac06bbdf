"""Pages over many requests: several are answered at once, and tables for auditors. See `bulk` and `exports`."""

from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from durableflows.admin import bulk
from durableflows.admin.frame import guarded
from durableflows.admin.readonly import ReadOnly
from durableflows.reading import tables
from durableflows.reading.looking import refuse_unstorable
from durableflows.reading.looks import note_look
from durableflows.reading.standing import now_of

TEMPLATES = "admin/durableflows/approvalrequest"


class ManyRequests(ReadOnly):
    """What the list of requests leads to, beside the page of each."""

    def get_urls(self) -> list[URLPattern]:
        """Put these pages before those that every table has."""
        several = self.admin_site.admin_view(self.several_view)
        export = self.admin_site.admin_view(self.export_view)
        return [
            path("several/", several, name="durableflows_approvalrequest_several"),
            path("export/<str:what>.csv", export, name="durableflows_approvalrequest_export"),
            *super().get_urls(),
        ]

    def several_view(self, request: HttpRequest) -> HttpResponse:
        """Show the chosen requests, or give one answer to each of them: only a POST decides (R24)."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(("GET", "HEAD", "POST"))
        if not self.has_view_permission(request):
            raise PermissionDenied
        refuse_unstorable(request.GET.lists())
        if request.method != "POST":
            return self._several(request, request.GET.getlist("request"), bulk.AnswerToSeveral(), 200)
        form = bulk.AnswerToSeveral(request.POST)
        fields = request.POST.getlist("request")
        if not form.is_valid() or not fields:
            return self._several(request, [field.partition(":")[0] for field in fields], form, 400)
        done = bulk.answer_all(
            self.get_queryset(request), fields, form, request.user, request.META.get("REMOTE_ADDR", "")
        )
        return self._show(request, "several_done.html", {"title": _summary(done), "done": done}, 200)

    def _several(self, request: HttpRequest, ids: list[str], form: bulk.AnswerToSeveral, status: int) -> HttpResponse:
        now = now_of(request)
        rows = bulk.chosen(self.get_queryset(request), ids, request.user, now)
        note_look(request, [row.asked for row in rows], bulk.DOOR)
        ready = [row for row in rows if not row.reason]
        context = {
            "title": f"Answer {len(ready)} request{'' if len(ready) == 1 else 's'} at once",
            "rows": rows,
            "ready": ready,
            "left_out": max(0, len(ids) - len(rows)),
            "form": form,
        }
        return self._show(request, "several.html", context, status)

    def _show(self, request: HttpRequest, page: str, context: dict[str, Any], status: int) -> HttpResponse:
        request.current_app = self.admin_site.name
        list_address = reverse("admin:durableflows_approvalrequest_changelist", current_app=self.admin_site.name)
        base = {**self.admin_site.each_context(request), "opts": self.opts, "list_address": list_address}
        base["site"] = self.admin_site.name
        return guarded(TemplateResponse(request, f"{TEMPLATES}/{page}", {**base, **context}, status=status))

    def tables(self, request: HttpRequest) -> list[tuple[str, str]]:
        """The tables that the person may take along, with the filters of this list; none without the right."""
        page = "admin:durableflows_approvalrequest_export"
        return tables.links(request, page, f"?{request.GET.urlencode()}", site=self.admin_site.name)

    def export_view(self, request: HttpRequest, what: str) -> HttpResponseBase:
        """Send a table of what the list shows: the same filters and search, all pages of it."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        if not self.has_view_permission(request):
            raise PermissionDenied
        refuse_unstorable(request.GET.lists())
        try:
            among = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters as error:  # not all rows instead: that is not what was asked for
            raise BadRequest("there is no such filter, or no such value of one") from error
        return tables.as_file(request, what, among)


def _summary(done: list[bulk.Done]) -> str:
    taken = sum(1 for row in done if row.outcome in ("taken", "again"))
    return f"{taken} of {len(done)} answered"
