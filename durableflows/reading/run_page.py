"""What the pages of one run show, each by a few queries however long the run is (R39). Reads only.

Who sees a run only because of having started it sees how it stands, and not the values that it works with: whoever
may view or operate runs in its tenant does. What looks secret is masked for everybody.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse

from durableflows.conf import settings
from durableflows.core.payload import JSON, redact
from durableflows.core.run_links import links
from durableflows.doctor.chains import wrong_in_chains
from durableflows.explain import standing_of
from durableflows.integrity import Seal, state_seal
from durableflows.models import (
    ApprovalRequest,
    Artifact,
    RunEvent,
    Signal,
    StepAttempt,
    StepRun,
    WorkflowRun,
)
from durableflows.reading.diagram import diagram
from durableflows.reading.gantt import chart
from durableflows.reading.runs import subject_words
from durableflows.reading.standing import now_of
from durableflows.selectors import OPERATE, VIEW_REQUESTS, may_see_values
from durableflows.transactions import database

Context = dict[str, Any]
STEPS_SHOWN, ROWS_SHOWN, EVENTS_SHOWN, CHECKPOINTS_SHOWN = 100, 200, 100, 50
CHECKED_AT_ONCE = 500
"""A history of so many events is checked whenever it is shown; a longer one when somebody asks."""
HIDDEN = "hidden"

PAGES = {
    "run": "Overview",
    "run-ledger": "Ledger",
    "run-people": "Answers and signals",
    "run-state": "What it knows",
    "run-history": "History",
}


def frame(request: HttpRequest, run: WorkflowRun, page: str) -> Context:
    """What stands on top of each page: how the run stands, and where its other pages are."""
    tabs = [(words, reverse(f"durableflows:{name}", args=[run.pk]), name == page) for name, words in PAGES.items()]
    return {
        "run": run,
        "subject": subject_words(run),
        "tabs": tabs,
        "explanation": standing_of(run, now_of(request)),
        "sees_values": (sees := sees_values(request, run)),
        "links": _links(run) if sees else [],
    }


def _links(run: WorkflowRun) -> list[tuple[str, str]]:
    """Where others keep its trace, its errors, its logs: as the project says by RUN_LINKS."""
    context = run.trace_context if isinstance(run.trace_context, dict) else {}
    traceparent = context.get("traceparent")
    return links(settings().RUN_LINKS, run=str(run.pk), workflow=run.workflow, traceparent=traceparent)


def sees_values(request: HttpRequest, run: WorkflowRun) -> bool:
    """May the person see what the run works with, and not only how it stands? Raises TenantsUnknown."""
    return may_see_values(run, request.user)


def shown(value: JSON, *, sees: bool) -> JSON:
    """A stored value as this person may see it."""
    if sees:
        return redact(value)
    if isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    return HIDDEN if value is not None else None


def overview(request: HttpRequest, run: WorkflowRun) -> Context:
    """The newest steps on a line of time, the diagram with the way it has come, and the newest runs it has started."""
    steps = list(_steps(run).defer("input", "output", "stood", "joined").order_by("-created_at", "-id")[:STEPS_SHOWN])
    steps.reverse()
    rows = StepAttempt.objects.using(database()).filter(step__in=[step.pk for step in steps]).order_by("-id")
    tries: dict[UUID, list[StepAttempt]] = defaultdict(list)
    for one in reversed(list(rows[:ROWS_SHOWN])):
        tries[one.step_id].append(one)
    children = WorkflowRun.objects.using(database()).filter(parent=run).order_by("-created_at", "-id")
    return {
        "chart": chart(run, steps, tries, now_of(request)),
        "diagram": diagram(run, steps),
        "steps": [(step, tries[step.pk]) for step in steps],
        "rows_shown": STEPS_SHOWN,
        "children": list(children.defer("data", "manifest")[:ROWS_SHOWN])[::-1],
        "children_shown": ROWS_SHOWN,
    }


def _steps(run: WorkflowRun) -> Any:
    return StepRun.objects.using(database()).filter(run=run)


def people(request: HttpRequest, run: WorkflowRun, *, sees: bool) -> Context:
    """The run's newest requests with who decided, and the newest signals that came for it, both in order."""
    rows = ApprovalRequest.objects.using(database()).filter(run=run).select_related("step").order_by("-id")
    requests = list(rows.defer("step__input", "step__output").prefetch_related("decisions")[:ROWS_SHOWN])[::-1]
    came = Signal.objects.using(database()).filter(run=run).select_related("used_by").order_by("-arrived_at", "-id")
    signals = list(came.defer("used_by__input", "used_by__output")[:ROWS_SHOWN])[::-1]
    sees_all = sees and (request.user.has_perm(OPERATE) or request.user.has_perm(VIEW_REQUESTS))
    opened = {one.pk: _decision(one) for one in requests if sees_all or one.requester_id == request.user.pk}
    return {
        "requests": [(one, one.decisions.all(), opened.get(one.pk, "")) for one in requests],
        "signals": [(one, shown(one.payload, sees=sees)) for one in signals],
        "rows_shown": ROWS_SHOWN,
    }


def _decision(asked: ApprovalRequest) -> str:
    return reverse("durableflows:decision", args=[asked.pk])


SEALS = {
    Seal.HOLDS: ("good", "The seal on this checkpoint holds: it is as the engine wrote it."),
    Seal.KEY_GONE: ("look", "The seal cannot be proved: its key is no longer in STATE_KEYS."),
    Seal.BROKEN: (
        "bad",
        "The seal does not match: this checkpoint was changed from outside, and no step begins with it.",
    ),
}


def state(run: WorkflowRun, *, sees: bool) -> Context:
    """What the run remembers at its checkpoint, how it has come to that, its result and its artifacts."""
    masked = shown(run.data, sees=sees)
    artifacts = Artifact.objects.using(database()).filter(run=run).order_by("-id")[:ROWS_SHOWN]
    return {
        "facts": list(masked.items()) if isinstance(masked, dict) else [("state", masked)],
        "seal": SEALS[state_seal(run)],
        "result": shown(run.result, sees=sees),
        "checkpoints": list(_checkpoints(run, sees=sees)),
        "checkpoints_shown": CHECKPOINTS_SHOWN,
        "artifacts": list(artifacts),
        "labels": list(run.labels.items()) if isinstance(run.labels, dict) else [],
        "limits": list(_limits(run)),
    }


def _checkpoints(run: WorkflowRun, *, sees: bool) -> Iterator[tuple[RunEvent, list[tuple[str, JSON, JSON]]]]:
    """The newest checkpoints, each with the event that made it, and what became of which field."""
    events = RunEvent.objects.using(database()).filter(run=run, data__has_key="changes").select_related("step")
    for event in events.defer("step__input", "step__output").order_by("-sequence")[:CHECKPOINTS_SHOWN]:
        masked = shown({name: value for name, value, _ in _changes(event)}, sees=sees)
        now_is = shown({name: value for name, _, value in _changes(event)}, sees=sees)
        assert isinstance(masked, dict)
        assert isinstance(now_is, dict)
        yield event, [(name, old, now_is[name]) for name, old in masked.items()]


def _changes(event: RunEvent) -> Iterator[tuple[str, JSON, JSON]]:
    changes = event.data.get("changes") if isinstance(event.data, dict) else None
    for name, change in changes.items() if isinstance(changes, dict) else ():
        if isinstance(change, dict):
            yield name, change.get("old"), change.get("new")


def _limits(run: WorkflowRun) -> Iterator[tuple[str, object, object]]:
    """Each counter, and the limit that it may come to: "" for none."""
    limits = run.budget if isinstance(run.budget, dict) else {}
    counted = {
        "attempts": run.attempts_count,
        "tool_calls": run.tool_calls_count,
        "model_calls": run.model_calls_count,
        "iterations": run.iterations_count,
        "cost_usd": run.cost_usd.normalize() if run.cost_usd else 0,
    }
    for name, count in counted.items():
        limit = limits.get(name)
        if count or limit is not None:
            yield name, count, "" if limit is None else limit


def history(request: HttpRequest, run: WorkflowRun, *, sees: bool) -> Context:
    """One page of the events, newest first, where the next one begins, and whether the chain holds."""
    rows = RunEvent.objects.using(database()).filter(run=run).select_related("step").order_by("-sequence")
    before = request.GET.get("before", "")
    if before.isdecimal() and len(before) < 10:
        rows = rows.filter(sequence__lt=int(before))
    events = list(rows.defer("step__input", "step__output")[:EVENTS_SHOWN])
    is_more = len(events) == EVENTS_SHOWN and events[-1].sequence > 1
    is_checked = run.event_sequence <= CHECKED_AT_ONCE or "check" in request.GET
    return {
        "events": [(event, shown(event.data, sees=sees)) for event in events],
        "older": events[-1].sequence if is_more else None,
        "is_paged": bool(before),
        "is_checked": is_checked,
        "wrong": [text for _code, _run, text in wrong_in_chains([run])] if is_checked else [],
    }
