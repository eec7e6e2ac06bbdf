"""Approval requests in the admin: a list, and the page where one is decided.

Looking never decides: GET and HEAD show, POST with the CSRF token answers. What counts is checked by `api.answer`, the
same as for every door; this file only says its typed errors in words.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField, Model, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.timesince import timesince, timeuntil

from durableflows import api, clock
from durableflows.admin.answers import DecisionForm, consequences, rules, shown_before, why_not
from durableflows.admin.readonly import (
    ReadOnly,
    WorkflowOfRunFilter,
    as_id,
    guarded,
    once,
    sees_some,
    tenants_known,
    words,
)
from durableflows.admin.runs import run_address
from durableflows.core.states import ApprovalState
from durableflows.errors import DurableflowsError, FactsChanged, NotAllowed, NotFoundError, TooLate
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.selectors import ANSWER, VIEW_REQUESTS, requests_for, runs_for, waiting_for
from durableflows.templatetags.durableflows import money_of

logger = logging.getLogger("durableflows.admin")

TEMPLATES = "admin/durableflows/approvalrequest"
Changes = Mapping[str, tuple[object, object]]


class StandingFilter(admin.SimpleListFilter):
    """What a person comes for: what waits for them, what is late, what is done."""

    title = "where it stands"
    parameter_name = "standing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("mine", "waiting for me"), ("open", "open"), ("overdue", "overdue"), ("decided", "decided or closed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        now = clock.now()
        match self.value():
            case "mine":
                return queryset.filter(pk__in=waiting_for(request.user, now=now).values("pk"))
            case "open":
                return queryset.filter(state=ApprovalState.OPEN, expires_at__gt=now)
            case "overdue":
                return queryset.filter(state=ApprovalState.OPEN, expires_at__lte=now)
            case "decided":
                return queryset.exclude(state=ApprovalState.OPEN)
        return queryset


class Requests(ChangeList):
    """Each row leads to its decision page."""

    def url_for_result(self, result: Model) -> str:
        return decision_address(result.pk, self.model_admin.admin_site.name)


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ReadOnly):
    """Requests that the person may see, and the page to decide each."""

    tenant = "tenant"
    list_display = ("title", "amount", "asked_by", "expires", "standing")
    list_filter = (StandingFilter, WorkflowOfRunFilter)
    search_fields = ("title__icontains", "requester_name__exact")
    search_help_text = "Words of the title, who asked, or the request's id"

    @admin.display(description="amount")
    def amount(self, asked: ApprovalRequest) -> str:
        """Show the first fact that is money, as what is bound before what is context."""
        facts = [*asked.binding.values(), *asked.context.values()]
        return next((str(amount) for amount in map(money_of, facts) if amount), "–")

    @admin.display(description="asked by")
    def asked_by(self, asked: ApprovalRequest) -> str:
        """Show who asked, kept by name."""
        return asked.requester_name or "the system"

    @admin.display(description="expires")
    def expires(self, asked: ApprovalRequest) -> str:
        """Say how long there is, or since when it is too late."""
        now: datetime = getattr(asked, "seen_at", None) or clock.now()
        if asked.state != ApprovalState.OPEN:
            return "–"
        if asked.expires_at > now:
            return f"in {timeuntil(asked.expires_at, now)}"
        return f"{timesince(asked.expires_at, now)} ago"

    @admin.display(description="state")
    def standing(self, asked: ApprovalRequest) -> str:
        """Say the state in words."""
        return "waiting" if asked.state == ApprovalState.OPEN else words(asked.state)

    def get_urls(self) -> list[URLPattern]:
        """Put the decision page before the pages that every table has."""
        view = self.admin_site.admin_view(self.decide_view)
        page = path("<uuid:request_id>/decide/", view, name="durableflows_approvalrequest_decide")
        return [page, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """List rows that lead to their decision pages."""
        return Requests

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Only what `selectors` lets the person see, with the time of looking so that no row asks for it."""
        now = once(request, "now", clock.now)
        with tenants_known():
            rows = requests_for(request.user)
        rows = rows.annotate(seen_at=Value(now, output_field=DateTimeField()))
        return rows.order_by(*self.ordering)

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
        return once(request, "requests", lambda: sees_some(requests_for, request.user))

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
        answered = api.answer(
            asked.pk,
            given["verdict"],
            by=request.user,
            facts_digest=given["facts_digest"],
            comment=given["comment"],
            door="admin",
            origin=request.META.get("REMOTE_ADDR", ""),
        )
        level = messages.INFO if before and before.verdict == given["verdict"] else messages.SUCCESS
        self.message_user(request, _said(answered, before, given["verdict"]), level=level)
        return HttpResponseRedirect(self._list_address())

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
        title = "You may not decide this" if isinstance(error, NotAllowed) else "Your answer was not taken"
        context = {"title": title, "error": error, "decisions": list(asked.decisions.all())}
        return self._render(request, asked, "outcome.html", context, status)

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
        may_see_run = runs_for(request.user).filter(pk=asked.run_id).exists()
        context = {
            "title": asked.title,
            "form": form or DecisionForm(),
            "error": error,
            "changes": [(name, *pair) for name, pair in sorted((changes or {}).items())],
            "binding": list(asked.binding.items()),
            "facts": list(asked.context.items()),
            "shown": json.dumps(asked.binding),
            "consequences": consequences(asked),
            "rules": rules(asked),
            "reason": why_not(asked, request.user, now),
            "vote": next((one for one in decisions if one.actor_id == request.user.pk and not one.voided_at), None),
            "decisions": decisions,
            # Whoever may see the question may see why it is asked.
            "explanation": api.explain(asked.run_id),
            "run_address": run_address(asked.run_id, self.admin_site.name) if may_see_run else "",
            "now": now,
        }
        return self._render(request, asked, "decide.html", context, status)

    def _render(
        self, request: HttpRequest, asked: ApprovalRequest, page: str, context: dict[str, Any], status: int
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        base = {**self.admin_site.each_context(request), "opts": self.opts, "asked": asked}
        base["list_address"] = self._list_address()
        return guarded(TemplateResponse(request, f"{TEMPLATES}/{page}", {**base, **context}, status=status))

    def _list_address(self) -> str:
        return reverse("admin:durableflows_approvalrequest_changelist", current_app=self.admin_site.name)


def decision_address(request_id: UUID, site: str) -> str:
    """The address of a request's decision page."""
    return reverse("admin:durableflows_approvalrequest_decide", args=[request_id], current_app=site)


def _vote_of(asked: ApprovalRequest, person: Any) -> ApprovalDecision | None:
    """The answer of this person that counts, if there is one."""
    return asked.decisions.filter(actor_id=person.pk, voided_at__isnull=True).first()


def _said(asked: ApprovalRequest, before: ApprovalDecision | None, verdict: str) -> str:
    """What the person is told after an answer was taken."""
    word = {"approve": "approved", "reject": "rejected"}[verdict]
    if before is not None and before.verdict == verdict:
        return f"You had already {word} “{asked.title}” at {before.at:%Y-%m-%d %H:%M} (UTC). Nothing was done again."
    if asked.state == ApprovalState.OPEN:
        yes = asked.decisions.filter(verdict="approve", voided_at__isnull=True).count()
        return f"Your approval of “{asked.title}” is recorded: {yes} of {asked.quorum} that are needed."
    return f"You {word} “{asked.title}”. The run goes on."
