"""Approval requests in the admin: a list, and the page where one is decided.

Looking never decides: GET and HEAD show, POST with the CSRF token answers. What counts is checked by `api.answer`, the
same as for every door; this file only says its typed errors in words.
"""

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField, Model, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.timesince import timesince

from durableflows import api, clock
from durableflows.admin.answers import DecisionForm, consequences, rules, shown_before, why_not
from durableflows.admin.facts import amount_of, shown_of, whom_of
from durableflows.admin.frame import guarded
from durableflows.admin.lists import Table
from durableflows.admin.readonly import ReadOnly, WorkflowOfRunFilter, as_id, once, sees_some, tenants_known
from durableflows.admin.runs import run_address
from durableflows.admin.standing import (
    NEWEST_FIRST,
    NOTHING,
    SOONEST_FIRST,
    StandingFilter,
    count_words,
    standing_of,
    waiting,
    waiting_count,
)
from durableflows.core.states import ApprovalState
from durableflows.errors import DurableflowsError, FactsChanged, NotAllowed, NotFoundError, TooLate
from durableflows.explain_words import state_words
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.selectors import ANSWER, VIEW_REQUESTS, requests_for, runs_for

logger = logging.getLogger("durableflows.admin")

TEMPLATES = "admin/durableflows/approvalrequest"
RESULT = "admin:durableflows_approvalrequest_decided"
WORD = {"approve": "approved", "reject": "rejected"}
Changes = Mapping[str, tuple[object, object]]


class Requests(Table):
    """Each row leads to its decision page."""

    @property
    def nothing(self) -> str:
        """What an empty list says."""
        standing = next(spec.value() for spec in self.filter_specs if isinstance(spec, StandingFilter))
        return super().nothing if self.query else NOTHING[standing]

    def url_for_result(self, result: Model) -> str:
        return decision_address(result.pk, self.model_admin.admin_site.name)


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ReadOnly):
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
        return f"{_span(asked.created_at, _now_of(asked))} ago"

    @admin.display(description="expires")
    def expires(self, asked: ApprovalRequest) -> str:
        """Say how long there is, or since when it is too late."""
        now = _now_of(asked)
        if asked.state != ApprovalState.OPEN:
            return ""
        if asked.expires_at > now:
            return f"in {_span(now, asked.expires_at)}"
        return f"{_span(asked.expires_at, now)} ago"

    @admin.display(description="state")
    def standing(self, asked: ApprovalRequest) -> str:
        """Say the state in words."""
        if asked.state != ApprovalState.OPEN:
            return state_words(asked.state, "approvalrequest")
        if asked.expires_at <= _now_of(asked):
            return "overdue"
        return "handed on: nobody answered in time" if asked.ladder_position else "waiting"

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
        now = once(request, "now", clock.now)
        with tenants_known():
            rows = _visible(request)
        rows = rows.annotate(seen_at=Value(now, output_field=DateTimeField()))
        return rows.order_by(*self.get_ordering(request))

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """What can still be answered: soonest first. All else: newest first."""
        return SOONEST_FIRST if standing_of(request) in ("mine", "open", "overdue") else NEWEST_FIRST

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Say on top how many wait for the person."""
        count = waiting_count(request) if self.has_view_permission(request) else 0
        verb = "request waits" if count == 1 else "requests wait"
        said = f"{count_words(count)} {verb} for you." if count else "Nothing waits for you."
        return super().changelist_view(request, {"said": said, **(extra_context or {})})

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
        return once(request, "requests", lambda: sees_some(lambda _person: _visible(request), request.user))

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
            return self._page(request, asked)
        form = DecisionForm(request.POST)
        if not form.is_valid():
            return self._page(request, asked, form=form, status=400)
        try:
            return self._answer(request, asked, form.cleaned_data)
        except DurableflowsError as error:
            logger.warning("%s could not answer request %s: %s", request.user, request_id, error)
            return self._say(request, self._asked(request, request_id), form, error)

    def _asked(self, request: HttpRequest, request_id: UUID) -> ApprovalRequest:
        asked: ApprovalRequest | None = self.get_queryset(request).select_related("step").filter(pk=request_id).first()
        if asked is not None:
            once(request, "requests", lambda: True)
            return asked
        logger.warning("%s asked for request %s, which is not there or not to be seen", request.user, request_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        raise Http404("there is no such request, or none that you may see")

    def _answer(self, request: HttpRequest, asked: ApprovalRequest, given: Mapping[str, str]) -> HttpResponse:
        before = _vote_of(asked, request.user)
        api.answer(
            asked.pk,
            given["verdict"],
            by=request.user,
            facts_digest=given["facts_digest"],
            comment=given["comment"],
            door="admin",
            origin=request.META.get("REMOTE_ADDR", ""),
        )
        is_repeat = before is not None and before.verdict == given["verdict"]
        page = reverse(RESULT, args=[asked.pk], current_app=self.admin_site.name)
        return HttpResponseRedirect(f"{page}?again=1" if is_repeat else page)

    def decided_view(self, request: HttpRequest, request_id: UUID) -> HttpResponse:
        """Say what the person has decided, what happens next, and where to go on. A reload decides nothing."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        asked = self._asked(request, request_id)
        vote = _vote_of(asked, request.user)
        if vote is None:
            return HttpResponseRedirect(decision_address(asked.pk, self.admin_site.name))
        context = {
            "title": f"You {WORD[vote.verdict]} this",
            "vote": vote,
            "is_repeat": "again" in request.GET,
            "yes_count": asked.decisions.filter(verdict="approve", voided_at__isnull=True).count(),
            "explanation": api.explain(asked.run_id),
        }
        return self._result(request, asked, context, 200)

    def _say(
        self, request: HttpRequest, asked: ApprovalRequest, form: DecisionForm, error: DurableflowsError
    ) -> HttpResponse:
        """Turn each typed error into a page that says what it means for the person."""
        match error:
            case NotAllowed():
                return self._outcome(request, asked, error, status=403)
            case NotFoundError():
                raise Http404(str(error))
            case FactsChanged():
                changes = shown_before(form.cleaned_data, asked) or error.changes
                return self._page(request, asked, form=form, error=error, changes=changes, status=409)
            case TooLate():
                return self._outcome(request, asked, error, status=409)
        return self._page(request, asked, form=form, error=error, status=409)

    def _outcome(
        self, request: HttpRequest, asked: ApprovalRequest, error: DurableflowsError, *, status: int
    ) -> HttpResponse:
        title = "You may not decide this" if isinstance(error, NotAllowed) else "Your answer came too late"
        context = {"title": title, "error": error, "explanation": api.explain(asked.run_id)}
        return self._result(request, asked, context, status)

    def _result(
        self, request: HttpRequest, asked: ApprovalRequest, context: dict[str, Any], status: int
    ) -> HttpResponse:
        """The page after an answer, taken or not: what happened, what is next, and the next request."""
        following = waiting(request).exclude(pk=asked.pk).first()
        after = {
            "decisions": list(asked.decisions.all()),
            "request_address": decision_address(asked.pk, self.admin_site.name),
            "run_address": self._run_address(request, asked),
            "following": following,
            "following_address": decision_address(following.pk, self.admin_site.name) if following else "",
        }
        return self._render(request, asked, "result.html", {**after, **context}, status)

    def _run_address(self, request: HttpRequest, asked: ApprovalRequest) -> str:
        may_see = runs_for(request.user).filter(pk=asked.run_id).exists()
        return run_address(asked.run_id, self.admin_site.name) if may_see else ""

    def _page(
        self,
        request: HttpRequest,
        asked: ApprovalRequest,
        *,
        form: DecisionForm | None = None,
        error: DurableflowsError | None = None,
        changes: Changes | None = None,
        status: int = 200,
    ) -> HttpResponse:
        now, decisions = once(request, "now", clock.now), list(asked.decisions.all())
        context = {
            "title": asked.title,
            "form": form or DecisionForm(),
            "error": error,
            "changes": [(name, *pair) for name, pair in sorted((changes or {}).items())],
            "facts": shown_of(asked),
            "shown": json.dumps(asked.binding),
            "consequences": consequences(asked),
            "rules": rules(asked),
            "reason": why_not(asked, request.user, now),
            "standing": self.standing(asked),
            "expires": self.expires(asked),
            "vote": next((one for one in decisions if one.actor_id == request.user.pk and not one.voided_at), None),
            "decisions": decisions,
            # Whoever may see the question may see why it is asked.
            "explanation": api.explain(asked.run_id),
            "run_address": self._run_address(request, asked),
            "now": now,
        }
        return self._render(request, asked, "decide.html", context, status)

    def _render(
        self, request: HttpRequest, asked: ApprovalRequest, page: str, context: dict[str, Any], status: int
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        base = {**self.admin_site.each_context(request), "opts": self.opts, "asked": asked}
        base |= {"list_address": self._list_address(), "seen_at": once(request, "now", clock.now)}
        return guarded(TemplateResponse(request, f"{TEMPLATES}/{page}", {**base, **context}, status=status))

    def _list_address(self) -> str:
        return reverse("admin:durableflows_approvalrequest_changelist", current_app=self.admin_site.name)


def decision_address(request_id: UUID, site: str) -> str:
    """The address of a request's decision page."""
    return reverse("admin:durableflows_approvalrequest_decide", args=[request_id], current_app=site)


def _vote_of(asked: ApprovalRequest, person: Any) -> ApprovalDecision | None:
    """The answer of this person that counts, if there is one."""
    return asked.decisions.filter(actor_id=person.pk, voided_at__isnull=True).first()


def _visible(request: HttpRequest) -> QuerySet[ApprovalRequest]:
    """The requests that the person may see; built once a page, because it asks which rights open requests need."""
    return once(request, "visible", lambda: requests_for(request.user))


def _now_of(asked: ApprovalRequest) -> datetime:
    """The time of looking, which the list has read once for all rows."""
    return getattr(asked, "seen_at", None) or clock.now()


def _span(start: datetime, end: datetime) -> str:
    return timesince(start, end) if end - start >= timedelta(minutes=1) else "less than a minute"
