"""The verbs of `manage.py durableflows`: one function each, options in, a `Report` out. They print nothing.

Rows change only through `api` and the sweeps. Errors of the engine pass; the command turns them into messages.
"""

import dataclasses
import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import durableflows
from durableflows import api, clock, doctor, gate
from durableflows.doctor import Finding, Severity
from durableflows.errors import DurableflowsError, InvalidState, NotFoundError
from durableflows.explain_words import plain
from durableflows.management import faulttests, graph, operators, pages, tables
from durableflows.management.operators import person, reason
from durableflows.management.tables import Report, local, section, table
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun
from durableflows.selectors import runs_for
from durableflows.services import sweeps
from durableflows.transactions import database, is_away

logger = logging.getLogger("durableflows")

ROWS_SHOWN = 200
RUN_COLUMNS = ("id", "workflow", "version", "state", "key", "owner", "created_at", "ended_at")
STEP_COLUMNS = ("step", "visit", "state", "attempts", "wake_at", "must_end_by", "why")
EFFECT_COLUMNS = ("id", "effect", "issue", "state", "row_version", "in_doubt_since", "reason", "contradiction")
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
    """One run with its rows: newest steps, effects, requests and events."""
    run = api.get(options.run)
    whole = tables.of_run_alone(run)
    alias = database()
    parts: dict[str, list[tables.Row]] = {
        "steps": [tables.of_step(row) for row in _newest(StepRun.objects.using(alias).filter(run=run))],
        "effects": [tables.of_effect(row) for row in _newest(SideEffect.objects.using(alias).filter(run=run))],
        "requests": [tables.of_request(row) for row in _newest(ApprovalRequest.objects.using(alias).filter(run=run))],
        "events": [tables.of_event(row) for row in _newest(RunEvent.objects.using(alias).filter(run=run), "sequence")],
    }
    columns = {
        "steps": STEP_COLUMNS, "effects": EFFECT_COLUMNS, "requests": REQUEST_COLUMNS, "events": EVENT_COLUMNS,
    }  # fmt: skip
    lines = [
        f"{name}: {local(value) if isinstance(value, datetime) else plain(value)}"
        for name, value in whole.items()
        if value not in (None, "")
    ]
    for title, rows in parts.items():
        lines += section(title, table(rows, columns[title]))
    return Report(whole | parts, lines)


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


def signal(options: Namespace) -> Report:
    """Send a message to a run."""
    sent = api.signal(options.run, options.name, options.payload, dedup_key=options.key, by=person(options.by))
    used = "a step goes on with it" if sent.used_by_id else "it is kept until a step waits for it"
    data = {"id": sent.pk, "run": sent.run_id, "name": sent.name, "used": bool(sent.used_by_id)}
    return Report(data, [f"run {sent.run_id}: signal {plain(sent.name)} is stored; {used}"])


def migrate(options: Namespace) -> Report:
    """Let one run, or all of a workflow that can, go on under a newer version. Fails when one was not taken."""
    if bool(options.run) == bool(options.workflow):
        raise InvalidState("say which: the id of a run, or --workflow NAME for all of its runs that can be migrated")
    if options.run:
        run = api.migrate(options.run, by=person(options.by), reason=reason(options), version=options.target)
        return operators.changed(run, f"goes on under version {run.version}")
    done: list[tables.Row] = []
    failed: list[tables.Row] = []
    runs = runs_for(person(options.by)).filter(workflow=options.workflow, ended_at__isnull=True)
    for run in runs.order_by("pk").iterator(chunk_size=ROWS_SHOWN):
        if options.target == run.version or (options.target is None and gate.way_forward(run) is None):
            continue
        try:
            moved = api.migrate(run.pk, by=person(options.by), reason=reason(options), version=options.target)
            done.append({"run": moved.pk, "version": moved.version})
        except DurableflowsError as error:  # the others are migrated all the same, and the exit code tells
            failed.append({"run": run.pk, "code": error.code, "message": str(error)})
    lines = [f"{len(done)} migrated, {len(failed)} not"]
    lines += [f"run {row['run']}: {row['code']}: {plain(row['message'])}" for row in failed]
    return Report({"migrated": done, "failed": failed}, lines, 1 if failed else 0)


def look_through_gate(options: Namespace) -> Report:
    """Could every live run go on under this code? Fails when one could not."""
    verdict = gate.examine()
    rows = [dataclasses.asdict(obstacle) for obstacle in verdict.obstacles]
    lines = [f"{verdict.runs} runs are under way; " + ("all can go on" if verdict.is_open else "some could not go on")]
    for one in verdict.obstacles:
        word = "STOPS" if one.stops else "note"
        lines += [
            f"{word}: {one.runs} of {one.workflow} version {one.version}: {plain(one.text)} (such as {one.example})",
            f"    {one.cure}",
        ]
    return Report(
        {"runs": verdict.runs, "open": verdict.is_open, "obstacles": rows}, lines, 0 if verdict.is_open else 1
    )


def resolve(options: Namespace) -> Report:
    """Say what happened with an effect in doubt."""
    effect_id = _id(options.effect, "an effect")
    row = api.resolve_effect(
        effect_id,
        options.verdict,
        by=person(options.by),
        reason=reason(options),
        row_version=options.row_version,
        receipt=options.receipt,
    )
    row = SideEffect.objects.using(database()).get(pk=row.pk)  # the step was looked at after the verdict
    return Report(tables.of_effect(row), [f"effect {row.pk}: {plain(row.effect)} is {row.state}"])


def sweep(options: Namespace) -> Report:
    """Do once what is due. Never calls other workers dead: one look cannot tell. Fails when a sweep failed."""
    done: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, job in sweeps.JOBS.items():
        if name == "stale workers":
            continue
        try:
            done[name] = job(clock.now())
        except Exception as error:  # the other sweeps still run; the exit code says that one did not
            if is_away(error):
                raise
            logger.exception("the sweep of %s failed", name)
            failed[name] = plain(f"{type(error).__name__}: {error}")
    lines = [f"{name}: {count}" for name, count in done.items()]
    lines += [f"{name}: failed, {text}" for name, text in failed.items()]
    return Report({"moved": done, "failed": failed}, lines, 1 if failed else 0)


def ticker(options: Namespace) -> Report:
    """Sweep until TERM or Ctrl-C."""
    from durableflows import ticker as ticking

    ticking.run_forever()
    return Report({}, [])


def examine(options: Namespace) -> Report:
    """Prove the promises from the rows."""
    found = doctor.examine(api.get(options.run).pk if options.run else None)
    is_ill = any(one.severity is Severity.BROKEN for one in found) or (options.strict and bool(found))
    data = [
        {"severity": one.severity, "code": one.code, "run": one.run_id, "text": one.text, "cure": one.cure}
        for one in found
    ]
    counts = {severity: sum(one.severity is severity for one in found) for severity in Severity}
    total = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    return Report(
        data, [*_findings(found), total if found else "nothing is broken, due or needs attention"], int(is_ill)
    )


def _findings(found: tuple[Finding, ...]) -> list[str]:
    lines: list[str] = []
    for one in found:
        run = f" run {one.run_id}" if one.run_id else ""
        lines += [f"{one.severity} [{one.code}]{run}: {plain(one.text)}", f"  {one.cure}"]
    return lines


def show_graph(options: Namespace) -> Report:
    """States and legal moves; or write the pages of docs/reference that are printed from the code."""
    if not options.write_docs:
        return Report(graph.as_data(), graph.page().splitlines())
    root = Path(durableflows.__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        raise NotFoundError(f"{root} is not durableflows' own repository, which these pages belong to")
    written = [str(root / path) for path in pages.PAGES]
    for path, text in pages.PAGES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text(), encoding="utf-8")
    return Report({"written": written}, [f"written: {path}" for path in written])


def _id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError(f"{plain(text, 60)!r} is not the id of {what}") from None


VERBS: Mapping[str, Callable[[Namespace], Report]] = {
    "list": list_runs,
    "show": show,
    "explain": explain,
    **dict.fromkeys(operators.VERBS, operators.with_preview),
    "signal": signal,
    "migrate": migrate,
    "gate": look_through_gate,
    "resolve": resolve,
    "sweep": sweep,
    "ticker": ticker,
    "doctor": examine,
    "faulttest": faulttests.play,
    "graph": show_graph,
}
