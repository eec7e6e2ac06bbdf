"""Runs in the admin: a list that stays fast, and one page that says what happened, what is certain and what comes."""

from collections import defaultdict
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, Model, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from durableflows import clock, explain_rows
from durableflows.admin.frame import guarded
from durableflows.admin.readonly import ReadOnly, StateFilter, WorkflowFilter
from durableflows.core.states import RunState
from durableflows.explain import explain_by
from durableflows.models import (
    ApprovalDecision,
    ApprovalRequest,
    EffectSend,
    RunEvent,
    SideEffect,
    StepAttempt,
    StepRun,
    WorkflowRun,
)
from durableflows.reading.looking import as_id, once, sees_some, tenants_known
from durableflows.reading.narrow import called, owned
from durableflows.reading.run_page import shown
from durableflows.selectors import OPERATE, VIEW, may_see_values, requests_for, runs_for
from durableflows.transactions import database

EVENTS_SHOWN = 100
ROWS_SHOWN = 200


@admin.register(WorkflowRun)
class WorkflowRunAdmin(ReadOnly):
    """Runs that the person may see: all with the right to view or operate, else the own ones."""

    states: ClassVar = RunState
    tenant = "tenant"
    list_display = ("__str__", "workflow", "version", "standing", "owner_name", "created_at", "ended_at")
    list_filter = (StateFilter, WorkflowFilter)
    search_fields = ("business_key__startswith",)  # that there is a field to search in; `get_search_results` searches
    search_help_text = "The run's id, the beginning of its business key, its subject's id or who started it"

    @admin.display(description="state")
    def standing(self, run: WorkflowRun) -> str:
        """Say the state in a manager's words."""
        return run.word

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Only what `selectors` lets the person see."""
        with tenants_known():
            return runs_for(request.user).order_by(*self.ordering)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The rights that `selectors` knows; without them, whoever has started a run sees the own ones."""
        if request.user.has_perm(VIEW) or request.user.has_perm(OPERATE):
            return True
        if isinstance(obj, WorkflowRun):
            return obj.owner_id is not None and obj.owner_id == request.user.pk
        return once(request, "runs", lambda: sees_some(runs_for, request.user))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An id finds its run at once."""
        run_id = as_id(search_term)
        if run_id is not None:
            return queryset.filter(pk=run_id), False
        if not search_term.strip():
            return queryset, False
        return queryset.filter(called(search_term) | owned(search_term.strip())), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the run. Posting here is refused: nothing of it can be changed by hand."""
        run = self.get_object(request, object_id)
        if not isinstance(run, WorkflowRun):
            return super().change_view(request, object_id, form_url, extra_context)  # says that it is not there
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request, run):
            raise PermissionDenied
        now, sees = once(request, "now", clock.now), may_see_values(run, request.user)
        requests = _requests(run, request.user)
        steps = _steps(run)
        rows = explain_rows.read_for_page(run, now, requests, [step for step, _ in steps])
        context = {
            **self.admin_site.each_context(request),
            "title": str(run),
            "opts": self.opts,
            "run": run,
            "explanation": explain_by(run, rows),
            "facts": _facts(run, sees=sees),
            "steps": steps,
            "effects": _effects(rows.effects, sees=sees),
            "requests": _answered(requests, rows.decisions, self.admin_site.name),
            "list_address": reverse("admin:durableflows_workflowrun_changelist", current_app=self.admin_site.name),
            "seen_at": now,
            "rows_shown": ROWS_SHOWN,
            **_events(run, rows.events, request.GET.get("before", ""), sees=sees),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return guarded(TemplateResponse(request, "admin/durableflows/workflowrun/detail.html", context))


def run_address(run_id: UUID, site: str) -> str:
    """The address of a run's page."""
    return reverse("admin:durableflows_workflowrun_change", args=[run_id], current_app=site)


def _facts(run: WorkflowRun, *, sees: bool) -> list[tuple[str, Any]]:
    """The fields of the state; as one where somebody has put something else in its place, which parks the run."""
    data = shown(run.data, sees=sees)
    return list(data.items()) if isinstance(data, dict) else [("state", data)]


def _steps(run: WorkflowRun) -> list[tuple[StepRun, list[StepAttempt]]]:
    """The newest steps in order, each with its tries; two queries however many there are."""
    steps = list(StepRun.objects.using(database()).filter(run=run).order_by("-id")[:ROWS_SHOWN])
    tries: dict[UUID, list[StepAttempt]] = defaultdict(list)
    rows = StepAttempt.objects.using(database()).filter(step__run=run).order_by("-id")[:ROWS_SHOWN]
    for attempt in reversed(list(rows)):
        tries[attempt.step_id].append(attempt)
    return [(step, tries[step.pk]) for step in reversed(steps)]


def _effects(effects: list[SideEffect], *, sees: bool) -> list[dict[str, Any]]:
    """The newest ledger rows in order, arguments and receipt masked, each with its sends and lookups."""
    if not effects:
        return []
    sends: dict[UUID, list[EffectSend]] = defaultdict(list)
    rows = EffectSend.objects.using(database()).filter(effect__in=[row.pk for row in effects]).order_by("-id")
    for send in reversed(list(rows[:ROWS_SHOWN])):
        sends[send.effect_id].append(send)
    return [
        {
            "row": effect,
            "arguments": shown(effect.arguments, sees=sees),
            "receipt": shown(effect.receipt, sees=sees),
            "sends": sends[effect.pk],
        }
        for effect in effects
    ]


def _requests(run: WorkflowRun, person: Any) -> list[ApprovalRequest]:
    """The newest requests of the run, each with whether the person may open it (`is_visible`)."""
    visible = Exists(requests_for(person).filter(pk=OuterRef("pk")).order_by())
    rows = ApprovalRequest.objects.using(database()).filter(run=run).annotate(is_visible=visible)
    return list(rows[:ROWS_SHOWN])


def _answered(
    requests: list[ApprovalRequest], decisions: list[ApprovalDecision], site: str
) -> list[tuple[ApprovalRequest, list[ApprovalDecision], str]]:
    """Each request with who decided, and where it is opened; '' where the person may not."""
    votes: dict[UUID, list[ApprovalDecision]] = defaultdict(list)
    for decision in reversed(decisions):
        votes[decision.request_id].append(decision)
    page = "admin:durableflows_approvalrequest_decide"
    opened = {row.pk: reverse(page, args=[row.pk], current_app=site) for row in requests if row.is_visible}  # type: ignore[attr-defined]
    return [(row, votes[row.pk], opened.get(row.pk, "")) for row in requests]


def _events(run: WorkflowRun, newest: list[RunEvent], before: str, *, sees: bool) -> dict[str, Any]:
    """One page of the history, newest first, and where the next one begins."""
    if before.isdecimal() and len(before) < 10:
        rows = RunEvent.objects.using(database()).filter(run=run, sequence__lt=int(before)).select_related("step")
        events = list(rows.order_by("-sequence")[:EVENTS_SHOWN])
    else:
        events = newest[::-1][:EVENTS_SHOWN]
    is_more = len(events) == EVENTS_SHOWN and events[-1].sequence > 1
    told = [(event, shown(event.data, sees=sees)) for event in events]
    return {"events": told, "older": events[-1].sequence if is_more else None, "is_paged": bool(before)}
