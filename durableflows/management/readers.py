"""Verbs that show runs: in a list, with their rows, in plain sentences. They change nothing."""

import json
from argparse import Namespace
from datetime import datetime
from typing import Any

from durableflows import api
from durableflows.explain_words import plain
from durableflows.management import tables
from durableflows.management.tables import Report, local, section, table
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.selectors import runs_for
from durableflows.transactions import database

ROWS_SHOWN = 200
RUN_COLUMNS = ("id", "workflow", "version", "state", "key", "owner", "created_at", "ended_at")
STEP_COLUMNS = ("step", "item", "visit", "state", "attempts", "wake_at", "must_end_by", "why")
EFFECT_COLUMNS = ("id", "effect", "issue", "state", "row_version", "in_doubt_since", "reason", "contradiction", "key")
CHILD_COLUMNS = ("id", "workflow", "version", "state", "created_at", "ended_at")
REQUEST_COLUMNS = ("id", "title", "state", "permission", "expires_at", "closed_reason")
EVENT_COLUMNS = ("sequence", "at", "kind", "actor")


def list_runs(options: Namespace) -> Report:
    """Runs, newest first."""
    runs = runs_for(None)
    if options.workflow:
        runs = runs.filter(workflow=options.workflow)
    if options.state:
        runs = runs.filter(state=options.state)
    rows = [tables.of_run(run) for run in runs.defer("data", "result", "manifest")[: options.limit]]
    return Report(rows, table(rows, RUN_COLUMNS) or ["no runs"])


def show(options: Namespace) -> Report:
    """One run with its rows: newest steps, effects, requests, children and events."""
    run = api.get(options.run)
    whole = tables.of_run_alone(run)
    alias = database()
    parts: dict[str, list[tables.Row]] = {
        "steps": [tables.of_step(row) for row in _newest(StepRun.objects.using(alias).filter(run=run))],
        "effects": [tables.of_effect(row) for row in _newest(SideEffect.objects.using(alias).filter(run=run))],
        "requests": [tables.of_request(row) for row in _newest(ApprovalRequest.objects.using(alias).filter(run=run))],
        "children": [
            tables.of_run(row) for row in _newest(WorkflowRun.objects.using(alias).filter(parent_step__run=run))
        ],
        "events": [tables.of_event(row) for row in _newest(RunEvent.objects.using(alias).filter(run=run), "sequence")],
    }
    columns = {
        "steps": STEP_COLUMNS, "effects": EFFECT_COLUMNS, "requests": REQUEST_COLUMNS,
        "children": CHILD_COLUMNS, "events": EVENT_COLUMNS,
    }  # fmt: skip
    lines = [f"{name}: {_shown(value)}" for name, value in whole.items() if value not in (None, "")]
    for title, rows in parts.items():
        lines += section(title, table(rows, columns[title]))
    return Report(whole | parts, lines)


def _shown(value: object) -> str:
    """A value of the run; what is stored as JSON is shown as JSON, as `edit --set` wants it."""
    if isinstance(value, dict | list):
        return plain(json.dumps(value, ensure_ascii=False, default=str))
    return local(value) if isinstance(value, datetime) else plain(value)


def _newest(rows: Any, order: str = "created_at") -> list[Any]:
    return list(rows.order_by(f"-{order}", "-id")[:ROWS_SHOWN])[::-1]


def explain(options: Namespace) -> Report:
    """One run in plain sentences."""
    story = api.explain(options.run)
    data = {
        "sentence": story.sentence,
        "lines": [{"at": line.at, "kind": line.kind, "text": line.text} for line in story.lines],
        "next": story.next,
        "next_at": story.next_at,
        "safe": list(story.safe),
        "ended": story.ended,
    }
    lines = [story.sentence]
    lines += section("what happened", [f"{local(line.at)}  {line.kind:8}{line.text}" for line in story.lines])
    if story.next:
        lines += ["", f"next: {story.next}" + (f", {local(story.next_at)}" if story.next_at else "")]
    lines += [f"safe now: {', '.join(story.safe) or 'nothing to do'}"]
    return Report(data, lines)
