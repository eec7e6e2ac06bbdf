"""What a workflow would do, read from its declaration: steps, edges, effects, approvals, limits. Runs nothing.

Called by `manage.py durableflows plan`. Texts of the project go to the terminal by way of `plain`.
"""

import dis
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from types import ModuleType

from durableflows.core import until, ways
from durableflows.core.approval import ApprovalSpec
from durableflows.core.approvers import Approvers, band_words
from durableflows.core.budget import pinned
from durableflows.core.definition import (
    EffectDefinition,
    Retry,
    StepDefinition,
    StepKind,
    WorkflowDefinition,
)
from durableflows.core.layout import edges
from durableflows.core.payload import JSON
from durableflows.core.until import Expires
from durableflows.explain_words import plain
from durableflows.management.tables import section

Data = dict[str, JSON]
WAYS = (ways.sleep, ways.wait_for, ways.child, ways.each)


def as_data(workflow: WorkflowDefinition) -> Data:
    """The whole plan, for programs. Spans of time are in seconds."""
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "doc": workflow.doc,
        "structure": workflow.structure,
        "start": workflow.start,
        "deadline_seconds": workflow.deadline.total_seconds(),
        "budget": dict(pinned(workflow.budget)),
        "cleanup": {"on_failure": workflow.on_failure, "on_cancel": workflow.on_cancel},
        "cleanup_seconds": workflow.cleanup_within.total_seconds(),
        "undo": {"on_failure": workflow.undo_on_failure, "on_cancel": workflow.undo_on_cancel},
        "undo_seconds": workflow.undo_within.total_seconds(),
        "undo_steps": [_step(workflow, step) for step in workflow.undo_steps.values()],
        "steps": [_step(workflow, step) for step in workflow.steps.values()],
        "effects": [_effect(workflow, effect) for effect in workflow.effects.values()],
        "merges": {name: str(merge) for name, merge in workflow.merges.items()},
        "migrations_from": [*sorted(workflow.migrations)],
        "pins": dict(workflow.pins.manifest),
    }


def _step(workflow: WorkflowDefinition, step: StepDefinition) -> Data:
    approval = step.approval
    return {
        "name": step.name,
        "kind": str(step.kind),
        "task": workflow.run_step_task_name(step.name),
        "edges": [{"to": to, "when": when} for to, when in edges(step)],
        **{name: getattr(step, name) for name in ("start", "end", "join", "atomic", "queue", "timeout_seconds")},
        "retry": _retry(step.retry),
        "recheck": _name(step.recheck),
        "effects": [effect.name for effect in step.effects],
        "waits": [*waits(step)],
        "approval": None if approval is None else _approval(approval),
    }


def _retry(retry: Retry) -> Data:
    within = _seconds(retry.within)
    return {
        "attempts": retry.attempts,
        "base_seconds": retry.base_seconds,
        "cap_seconds": retry.cap_seconds,
        "within_seconds": within,
    }


def _approval(spec: ApprovalSpec) -> Data:
    least = spec.asked_anew_of(None)
    rungs: list[JSON] = [rung.dump() for rung in spec.rungs(spec.most_needed)]
    bands: list[JSON] = [
        {"amounts": band_words(spec.bands, band, ""), "by": None if band.by is None else band.by.dump()}
        for band in spec.bands
    ]
    remind: list[JSON] = [span.total_seconds() for span in spec.remind]
    return {
        "title": spec.title,
        **least.dump(),
        "bands": bands,
        "exclude_requester": spec.exclude_requester,
        "exclude_delegate": spec.exclude_delegate,
        "edits": None if spec.edits is None else [*spec.edits.model_fields],
        "remind_seconds": remind,
        **until.dump(spec.expires),
        "then_asks": rungs,
        "fallback": spec.fallback or None,
    }


def _effect(workflow: WorkflowDefinition, effect: EffectDefinition[object]) -> Data:
    return {
        "name": effect.name,
        "version": effect.version,
        "provider": effect.provider,
        "used_by": [step.name for step in workflow.all_steps if effect in step.effects],
        "undo": None if effect.undo is None else effect.undo.name,
        "transactional": effect.transactional,
        "key_window_seconds": _seconds(effect.key_window),
        "lookup": _name(effect.lookup),
        "resend_when_absent": effect.resend_when_absent,
        "settle_seconds": effect.settle_seconds,
        "timeout_seconds": effect.timeout_seconds,
        "may_be_pending": effect.accepted is not None,
        "accepted_within_seconds": _seconds(effect.accepted_within),
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _name(function: object) -> str | None:
    return None if function is None else str(getattr(function, "__name__", type(function).__name__))


def waits(step: StepDefinition) -> tuple[str, ...]:
    """The ways to wait that a body names: they are returned, not declared, so the body's names are all there is."""
    if not inspect.isfunction(step.function):
        return ()
    used = inspect.getclosurevars(step.function)
    # Python lists attributes among the globals too: `run.child` is no `child(...)`.
    loaded = {one.argval for one in dis.get_instructions(step.function) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    values = [value for name, value in used.globals.items() if name in loaded] + [*used.nonlocals.values()]
    # `durableflows.sleep(...)`: the module is a global, and what is taken from it is among the names without a value.
    values += [getattr(one, name, None) for one in values if isinstance(one, ModuleType) for name in used.unbound]
    return tuple(way.__name__ for way in WAYS if any(value is way for value in values))


def as_lines(workflow: WorkflowDefinition) -> list[str]:
    """The whole plan, for people."""
    budget = [f"{one.name} {value}" for one in fields(workflow.budget) if (value := _limit(workflow, one.name))]
    return [
        plain(f"{workflow.name}, version {workflow.version}: {workflow.doc or 'without a description'}"),
        f"ends after {span(workflow.deadline)} at the latest"
        + (f"; a run may use {', '.join(budget)}" if budget else "; without a budget"),
        *_undo_lines(workflow),
        *(
            f"before it ends as {end}: {step}, within {span(workflow.cleanup_within)}"
            for end, step in _cleanups(workflow)
        ),
        *section("steps", [line for step in workflow.steps.values() for line in _step_lines(step)]),
        *section("effects", [line for effect in workflow.effects.values() for line in _effect_lines(effect)]),
    ]


def _undo_lines(workflow: WorkflowDefinition) -> Iterator[str]:
    if not workflow.undo_steps:
        return
    asked = (("FAILED", workflow.undo_on_failure), ("CANCELLED", workflow.undo_on_cancel))
    ends = [end for end, is_asked in asked if is_asked]
    when = f"before it would end as {' or '.join(ends)}, and when" if ends else "when"
    yield (
        f"{when} a step returns compensate(...) or a person says so: what it did is undone, newest first, "
        f"within {span(workflow.undo_within)}"
    )


def _cleanups(workflow: WorkflowDefinition) -> list[tuple[str, str]]:
    """How a run ends -> the step that cleans up before."""
    named = (("FAILED", workflow.on_failure), ("CANCELLED", workflow.on_cancel))
    return [(end, step) for end, step in named if step is not None]


def _limit(workflow: WorkflowDefinition, name: str) -> str:
    limit = getattr(workflow.budget, name)
    return "" if limit is None else span(limit) if isinstance(limit, timedelta) else str(limit)


def _step_lines(step: StepDefinition) -> Iterator[str]:
    marks = ["begins here"] if step.start else []
    marks += [word for word in ("join", "atomic") if getattr(step, word)]
    marks += [f"queue {step.queue}"] if step.queue else []
    marks += ["may end the run"] if step.end else []
    yield f"{step.name}{': ' if marks else ''}{', '.join(marks)}"
    for to, when in edges(step):
        yield f"  {f'{when}: ' if when else ''}-> {to}"
    if step.approval is not None:
        yield from (f"  {line}" for line in _approval_lines(step.approval))
    if step.effects:
        yield f"  does {', '.join(effect.name for effect in step.effects)}"
    if (named := waits(step)) != ():
        yield f"  may return {', '.join(named)}"
    if step.recheck is not None:
        yield f"  before the first send: {_name(step.recheck)}"
    if step.kind is StepKind.TASK:
        yield f"  {_tries(step.retry)}, each within {step.timeout_seconds:g} s"


def _approval_lines(spec: ApprovalSpec) -> Iterator[str]:
    yield plain(f"asks {spec.title!r}")
    other = ", but not who started the run" if spec.exclude_requester else ""
    for band in spec.bands:
        who = "nobody is asked" if band.by is None else _who(band.by)
        yield f"{band_words(spec.bands, band, '')}: {who}"
    if spec.bands:
        yield f"{within(spec.expires)}{other}"
    else:
        yield f"{_who(spec.asked_anew_of(None))}{other}, {within(spec.expires)}"
    for rung in spec.rungs(spec.most_needed):
        yield f"then {_then(rung.by)}, {within(rung.expires)}"
    yield f"then {spec.fallback}" if spec.fallback else "then rejected by itself"
    if spec.edits is not None:
        yield f"may change {', '.join(spec.edits.model_fields)}"


def _who(by: Approvers) -> str:
    votes = f"{by.quorum} people" if by.quorum > 1 else "one person"
    if _is_bare(by):
        return f"{votes} with {by.permission}"
    return f"{by.quorum if by.quorum > 1 else 'one'} of {by.words()}"


def _then(by: Approvers) -> str:
    return f"people with {by.permission}" if _is_bare(by) else _who(by)


def _is_bare(by: Approvers) -> bool:
    return not (by.groups or by.people)


def within(expires: Expires) -> str:
    """How long people have, in words."""
    return f"within {span(expires)}" if isinstance(expires, timedelta) else until.words(expires)


def _tries(retry: Retry) -> str:
    if retry.attempts == 1:
        return "one try"
    within = f", within {span(retry.within)}" if retry.within is not None else ""
    return f"{retry.attempts} tries, {retry.base_seconds:g} s to {retry.cap_seconds:g} s apart{within}"


def _effect_lines(effect: EffectDefinition[object]) -> Iterator[str]:
    yield plain(f"{effect.name}, version {effect.version}, at {effect.provider}")
    if effect.undo is not None:
        yield f"  undone by {effect.undo.name}"
    if effect.transactional:
        yield f"  commits with its row and its receipt, within {effect.timeout_seconds:g} s; never in doubt"
        return
    yield f"  one call ends within {effect.timeout_seconds:g} s, and may arrive until {effect.settle_seconds:g} s later"
    window = effect.resend_window
    if window is not None:
        yield f"  an answer that is lost: sent again under its key, within {span(window)} of the first send"
    later = "then " if window is not None else "an answer that is lost: "
    if effect.lookup is None:
        yield f"  {later}a person finds out"
    else:
        yield f"  {later}looked up by {_name(effect.lookup)}"
        absent = "sent again under a new key" if effect.resend_when_absent else "a person decides"
        yield f"  not found: {absent}"
    if effect.accepted is not None:
        limit = f", after {span(effect.accepted_within)} a person looks" if effect.accepted_within is not None else ""
        yield f"  an answer that says pending: {_awaited(effect)}{limit}"


def _awaited(effect: EffectDefinition[object]) -> str:
    """Who says that what a provider has accepted is done; its word alone is waited for only within a time."""
    if effect.lookup is not None:
        return "looked up" + (", or told by the provider," if effect.event is not None else "") + " until it is done"
    if effect.event is not None and effect.accepted_within is not None:
        return "the provider tells when it is done"
    return "a person looks until it is done"


UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def span(delta: timedelta) -> str:
    """A span of time in words, at most two units: "14 d", "1 h 30 min"."""
    left, parts = delta.total_seconds(), list[str]()
    for unit, size in UNITS:
        count, left = divmod(left, size)
        parts += [f"{count:g} {unit}"] if count else []
    return " ".join(parts[:2]) or f"{delta.total_seconds():g} s"


def as_mermaid(workflow: WorkflowDefinition) -> str:
    """The graph as a Mermaid flowchart: approvals are diamonds, effects hang at their steps."""
    lines = ["flowchart TD", f"    begin((begin)) --> step_{workflow.start}"]
    for step in workflow.steps.values():
        shape = '{{"%s"}}' if step.kind is StepKind.APPROVAL else '["%s"]'
        lines.append(f"    step_{step.name}{shape % step.name}")
        lines += [f"    step_{step.name} -->{f'|{when}|' if when else ''} step_{to}" for to, when in edges(step)]
        lines += [f"    step_{step.name} --> done((end))"] if step.end else []
    lines += [f"    {end.lower()}(({end.lower()})) --> step_{step}" for end, step in _cleanups(workflow)]
    effects = list(workflow.effects.values())
    lines += _effect_nodes(effects, list(workflow.steps.values()))
    lines += [
        f"    effect_{number} -. undone by .-> effect_{effects.index(effect.undo)}"
        for number, effect in enumerate(effects)
        if effect.undo is not None
    ]
    return "\n".join(lines)


def _effect_nodes(effects: Sequence[EffectDefinition[object]], steps: Sequence[StepDefinition]) -> list[str]:
    lines = []
    for number, effect in enumerate(effects):
        lines.append(f'    effect_{number}[("{effect.name}")]')
        lines += [f"    step_{step.name} -.-> effect_{number}" for step in steps if effect in step.effects]
    return lines
