"""A run in plain sentences: what happened, what is certain, what is unknown, what comes next. Reads only.

Called by `api`, the pages and the command. Runs no user code, takes no locks, and asks the same few queries however
long the run is; what it says is text, never markup.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from durableflows import clock, explain_next, explain_rows, explain_standing
from durableflows.core.payload import JSON
from durableflows.core.states import (
    EFFECT_OPEN,
    EffectState,
)
from durableflows.explain_events import say
from durableflows.explain_rows import Rows
from durableflows.explain_words import Fact, plain, reference_of, state_words
from durableflows.models import RunEvent, SideEffect, WorkflowRun


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened or stands open. `kind`: done, waiting, problem, certain, unknown, note.

    `about`: the event behind it, for a project that says it in its own words; None when no event is.
    """

    at: datetime
    text: str
    kind: str
    about: Fact | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`sentence`: why the run stands where it stands; `next`, `next_at`: what comes; `safe`: what a person may do.

    `certain`, `unknown`: what is known of the effects, and what is not.
    """

    sentence: str
    lines: tuple[Line, ...]
    next: str
    next_at: datetime | None
    safe: tuple[str, ...]
    ended: bool
    certain: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def explain_run(run: WorkflowRun) -> Explanation:
    """Explain one run from its rows, for a person who may see it. A query and the clock's, however long it is;
    one more while a step waits for a worker or a provider.
    """
    return explain_by(run, explain_rows.read(run, clock.now()))


def explain_by(run: WorkflowRun, rows: Rows) -> Explanation:
    """Explain it from rows that were read, by `explain_rows.read` or with the arguments. Asks nothing."""
    return _explained(run, rows, tuple(_lines(run, rows)))


def standing_of(run: WorkflowRun, now: datetime) -> Explanation:
    """The same without what happened before: `lines` are empty. As many queries."""
    return _explained(run, explain_rows.read_standing(run, now), ())


def _explained(run: WorkflowRun, rows: Rows, lines: tuple[Line, ...]) -> Explanation:
    coming, at = explain_next.what_comes(run, rows)
    return Explanation(
        sentence=explain_standing.sentence(run, rows),
        lines=lines,
        next=coming,
        next_at=at,
        safe=explain_next.safe_verbs(run, rows),
        ended=run.is_ended,
        certain=_certain(rows),
        unknown=tuple(_known(row) for row in rows.effects if row.state in EFFECT_OPEN),
    )


def _lines(run: WorkflowRun, rows: Rows) -> list[Line]:
    lines = [line for event in rows.events if (line := _line(event, rows)) is not None]
    told = {line.at for line in lines if line.kind == "unknown"}
    lines += [line for row in rows.effects if (line := _doubt(row, rows)) is not None and line.at not in told]
    lines.sort(key=lambda line: line.at)  # stable: what one commit wrote stays in its order
    hidden = run.event_sequence - len(rows.events)
    if hidden > 0 and rows.events:
        lines.insert(0, Line(rows.events[0].at, f"{hidden} earlier events are not shown", "note"))
    return lines


def _line(event: RunEvent, rows: Rows) -> Line | None:
    data = event.data if isinstance(event.data, dict) else {}
    step = plain(event.step or data.get("step") or "")
    fact = Fact(event.kind, step, event.actor_name, data, rows.now)
    if event.kind.startswith("effect."):
        fact = _about_effect(fact, event, rows)
    if event.kind == "approval.answered":
        said = [one for one in rows.decisions if one.at == event.at and str(one.request_id) == data.get("request")]
        fact = replace(fact, comment=said[0].comment if said else "")
    sentence = say(fact)
    return None if sentence is None else Line(event.at, *sentence, fact)


def _about_effect(fact: Fact, event: RunEvent, rows: Rows) -> Fact:
    name = fact.data.get("operation") or fact.data.get("effect")
    for row in reversed(rows.effects):
        if row.step_id == event.step_id and name in (row.operation, row.effect):
            is_open = row.state == EffectState.DISPATCHED and row.send_count == fact.data.get("send")
            return replace(fact, provider=row.provider, is_open=is_open)
    return fact


def _doubt(row: SideEffect, rows: Rows) -> Line | None:
    """A freed lease leaves doubt without an event of the effect's own."""
    if row.in_doubt_since is None or not row.is_in_doubt:
        return None
    why = f": {plain(row.reason)}" if row.reason else ""
    data: Mapping[str, JSON] = {"effect": row.effect, "operation": row.operation, "reason": row.reason}
    fact = Fact("effect.in_doubt", row.step_name, "", data, rows.now, provider=row.provider)
    return Line(row.in_doubt_since, f"{plain(row)} is in doubt, it may have happened{why}", "unknown", fact)


def _certain(rows: Rows) -> tuple[str, ...]:
    if not any(row.send_count for row in rows.effects):
        return ("Nothing has been sent to the outside world",)
    return tuple(_known(row) for row in rows.effects if row.state not in EFFECT_OPEN)


def _known(row: SideEffect) -> str:
    reference = reference_of(row.receipt) if row.state == EffectState.CONFIRMED else ""
    calls_it = f"; {plain(row.provider)} calls it {reference}" if reference else ""
    return f"{plain(row)}: {state_words(row.state, 'sideeffect')}{calls_it}"
