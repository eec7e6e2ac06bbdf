"""Approval requests in the admin: a list, and the page where one is decided.

Looking never decides: GET and HEAD show, POST with the CSRF token answers. What counts is checked by `api.answer`, the
same as for every door; this file only says its typed errors in words.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField, Model, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from durableflows import clock
from durableflows.admin.frame import guarded
from durableflows.admin.lists import Table
from durableflows.admin.many import ManyRequests
from durableflows.admin.readonly import WorkflowOfRunFilter
from durableflows.admin.runs import run_address
from durableflows.admin.standing import NOTHING, StandingFilter, standing_of
from durableflows.core import log_lines
from durableflows.errors import DurableflowsError, NotFoundError
from durableflows.models import ApprovalRequest
from durableflows.reading import deciding
from durableflows.reading.answers import DecisionForm
from durableflows.reading.facts import amount_of, whom_of
from durableflows.reading.looking import as_id, once, sees_some, tenants_known
from durableflows.reading.standing import (
    BY_TIME,
    NEWEST_FIRST,
    SOONEST_FIRST,
    expires_words,
    now_of,
    since_words,
    standing_words,
    visible,
    visible_one,
    waiting_count,
    waiting_words,
)
from durableflows.selectors import ANSWER, VIEW_REQUESTS, may_see_run

logger = log_lines.logger("durableflows.admin")

TEMPLATES = "admin/durableflows/approvalrequest"
DOOR = "admin"
RESULT = "admin:durableflows_approvalrequest_decided"


class Requests(Table):
    """Each row leads to its decision page."""

    @property
    def nothing(self) -> str:
        """What an empty list says."""
        standing = next(spec.value() for spec in self.filter_specs if isinstance(spec, StandingFilter))
        return super().nothing if self.query else NOTHING[standing]

    @property
    def several_address(self) -> str:
        """Where the chosen rows are answered at once: of what waits for the person, who may answer all of it."""
        page = "admin:durableflows_approvalrequest_several"
        is_mine = any(isinstance(spec, StandingFilter) and spec.value() == "mine" for spec in self.filter_specs)
        return reverse(page, current_app=self.model_admin.admin_site.name) if is_mine else ""

    def url_for_result(self, result: Model) -> str:
        return decision_address(result.pk, self.model_admin.admin_site.name)


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ManyRequests):
    """Requests that the person may see, and the page to decide each."""

    tenant = "tenant"
    list_display = ("what", "amount", "to_whom", "asked_by", "since", "expires", "standing")
    list_loads = ("binding", "context")
    list_filter = (StandingFilter, WorkflowOfRunFilter)
    search_fields = ("title__icontains", "requester_name__exact")
    search_help_text = "Words of the title, who asked, or the request's id"

    @admin.display(description="what")
    def what(self, asked: ApprovalRequest) -> str:
        """Show what is asked."""
        return asked.title

    @admin.display(description="amount")
    def amount(self, asked: ApprovalRequest) -> str:
        """Show the first fact that is money."""
        return amount_of(asked)

    @admin.display(description="to whom")
    def to_whom(self, asked: ApprovalRequest) -> str:
        """Show the fact that names whom it is for."""
        return whom_of(asked)

    @admin.display(description="asked by")
    def asked_by(self, asked: ApprovalRequest) -> str:
        """Show who asked, kept by name."""
        return asked.requester_name or "the system"

    @admin.display(description="since")
    def since(self, asked: ApprovalRequest) -> str:
        """Say how long ago it was asked."""
        return since_words(asked, _seen_at(asked))

    @admin.display(description="expires")
    def expires(self, asked: ApprovalRequest) -> str:
        """Say how long there is, or since when it is too late."""
        return expires_words(asked, _seen_at(asked))

    @admin.display(description="state")
    def standing(self, asked: ApprovalRequest) -> str:
        """Say the state in words."""
        return standing_words(asked, _seen_at(asked))

    def get_urls(self) -> list[URLPattern]:
        """Put the decision page before the pages that every table has."""
        view = self.admin_site.admin_view(self.decide_view)
        page = path("<uuid:request_id>/decide/", view, name="durableflows_approvalrequest_decide")
        result = self.admin_site.admin_view(self.decided_view)
        after = path("<uuid:request_id>/decided/", result, name="durableflows_approvalrequest_decided")
        return [page, after, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """List rows that lead to their decision pages."""
        return Requests

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Only what `selectors` lets the person see, with the time of looking so that no row asks for it."""
        with tenants_known():
            rows = visible(request)
        rows = rows.annotate(seen_at=Value(now_of(request), output_field=DateTimeField()))
        return rows.order_by(*self.get_ordering(request))

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """What can still be answered: soonest first. All else: newest first."""
        return SOONEST_FIRST if standing_of(request) in BY_TIME else NEWEST_FIRST

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Say on top how many wait for the person."""
        count = waiting_count(request) if self.has_view_permission(request) else 0
        said = {"said": waiting_words(count), "exports": self.tables(request)}
        return super().changelist_view(request, {**said, **(extra_context or {})})

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An id finds its request at once."""
        request_id = as_id(search_term)
        if request_id is not None:
            return queryset.filter(pk=request_id), False
        return super().get_search_results(request, queryset, search_term)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The right to see or answer requests, or a request that the person sees without one."""
        if super().has_view_permission(request, obj):
            return True
        if request.user.has_perm(VIEW_REQUESTS) or request.user.has_perm(ANSWER):
            return True
        return once(request, "requests", lambda: sees_some(lambda _person: visible(request), request.user))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the decision page. Posting here is refused: nothing of a request can be changed by hand."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        asked = self.get_object(request, object_id)
        if asked is None:
            return super().change_view(request, object_id, form_url, extra_context)  # says that it is not there
        return HttpResponseRedirect(decision_address(asked.pk, self.admin_site.name))

    def decide_view(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        """Show a request, or answer it: only a POST decides (R24)."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(("GET", "HEAD", "POST"))
        asked = self._asked(request, request_id)
        if request.method != "POST":
            return self._page(request, asked, {})
        form = DecisionForm(request.POST)
        if not form.is_valid():
            return self._page(request, asked, {"form": form}, status=400)
        try:
            is_repeat = deciding.answer(request, asked, form.cleaned_data, door=DOOR)
        except NotFoundError as error:
            raise Http404(str(error)) from error
        except DurableflowsError as error:
            asked = self._asked(request, request_id)
            refused = deciding.refused(request, asked, form, error)
            show = self._page if refused.may_try_again else self._result
            return show(request, asked, refused.context, status=refused.status)
        page = reverse(RESULT, args=[asked.pk], current_app=self.admin_site.name)
        return HttpResponseRedirect(f"{page}?again=1" if is_repeat else page)

    def _asked(self, request: HttpRequest, request_id: UUID) -> ApprovalRequest:
        with tenants_known():
            asked = visible_one(request, request_id)
        if asked is not None:
            once(request, "requests", lambda: True)
            return asked
        logger.warning("%s asked for request %s, which is not there or not to be seen", request.user, request_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        raise Http404("there is no such request, or none that you may see")

    def decided_view(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        """Say what the person has decided, what happens next, and where to go on. A reload decides nothing."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        asked = self._asked(request, request_id)
        vote = deciding.vote_of(asked, request.user)
        if vote is None:
            return HttpResponseRedirect(decision_address(asked.pk, self.admin_site.name))
        return self._result(request, asked, deciding.taken(request, asked, vote), status=200)

    def _result(
        self, request: HttpRequest, asked: ApprovalRequest, more: dict[str, Any], *, status: int
    ) -> HttpResponse:
        context = deciding.result(request, asked, more)
        following = context["following"]
        addresses = {
            "request_address": decision_address(asked.pk, self.admin_site.name),
            "run_address": self._run_address(request, asked),
            "following_address": decision_address(following.pk, self.admin_site.name) if following else "",
        }
        return self._render(request, "result.html", {**addresses, **context}, status)

    def _run_address(self, request: HttpRequest, asked: ApprovalRequest) -> str:
        return run_address(asked.run_id, self.admin_site.name) if may_see_run(asked.run, request.user) else ""

    def _page(
        self, request: HttpRequest, asked: ApprovalRequest, more: dict[str, Any], *, status: int = 200
    ) -> HttpResponse:
        context = {
            "run_address": self._run_address(request, asked),
            **deciding.decision(request, asked, more, door=DOOR),
        }
        return self._render(request, "decide.html", context, status)

    def _render(self, request: HttpRequest, page: str, context: dict[str, Any], status: int) -> HttpResponse:
        request.current_app = self.admin_site.name
        base = {**self.admin_site.each_context(request), "opts": self.opts}
        base |= {"list_address": self._list_address(), "seen_at": now_of(request)}
        return guarded(TemplateResponse(request, f"{TEMPLATES}/{page}", {**base, **context}, status=status))

    def _list_address(self) -> str:
        return reverse("admin:durableflows_approvalrequest_changelist", current_app=self.admin_site.name)


def decision_address(request_id: UUID, site: str) -> str:
    """The address of a request's decision page."""
    return reverse("admin:durableflows_approvalrequest_decide", args=[request_id], current_app=site)


def _seen_at(asked: ApprovalRequest) -> datetime:
    """The time of looking, which the list has read once for all rows."""
    return getattr(asked, "seen_at", None) or clock.now()
