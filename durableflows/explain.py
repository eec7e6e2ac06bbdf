"""A run in plain sentences: what happened, what is certain, what is unknown, what comes next. Reads only.

Called by `api`, the pages and the command. Runs no user code, takes no locks, and asks the same few queries however
long the run is; what it says is text, never markup.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from durableflows import clock
from durableflows.core.payload import JSON
from durableflows.core.states import (
    EFFECT_OPEN,
    STEP_OPEN,
    ApprovalState,
    EffectState,
    EndingReason,
    ParkedReason,
    RunState,
    StepState,
    WaitsOn,
)
from durableflows.explain_words import Fact, full_stop, moment, plain, reference_of, say, state_words, when
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.transactions import database

EVENTS_SHOWN = 200
ROWS_READ = 200
RESOLVABLE = (EffectState.UNKNOWN, EffectState.ACCEPTED)


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


@dataclass(frozen=True, slots=True)
class Rows:
    """All that is read: bounded, newest first where there is more."""

    now: datetime
    events: list[RunEvent]
    steps: list[StepRun]
    effects: list[SideEffect]
    requests: list[ApprovalRequest]
    decisions: list[ApprovalDecision]


def explain_run(run: WorkflowRun) -> Explanation:
    """Explain one run from its rows, for a person who may see it. Five queries and the clock's, however long it is."""
    rows = _read(run)
    coming, at = _next(run, rows)
    return Explanation(
        sentence=_sentence(run, rows),
        lines=tuple(_lines(run, rows)),
        next=coming,
        next_at=at,
        safe=_safe(run, rows),
        ended=run.is_ended,
        certain=_certain(rows),
        unknown=tuple(_known(row) for row in rows.effects if row.state in EFFECT_OPEN),
    )


def _read(run: WorkflowRun) -> Rows:
    alias = database()
    events = RunEvent.objects.using(alias).filter(run=run).select_related("step").order_by("-sequence")
    effects = SideEffect.objects.using(alias).filter(run=run).order_by("-created_at", "-id")
    decisions = ApprovalDecision.objects.using(alias).filter(request__run=run).order_by("-at", "-id")
    return Rows(
        now=clock.now(),
        events=list(events.defer("step__input", "step__output")[:EVENTS_SHOWN])[::-1],
        steps=list(StepRun.objects.using(alias).filter(run=run, state__in=_texts(STEP_OPEN))[:ROWS_READ]),
        effects=list(effects.defer("arguments")[:ROWS_READ])[::-1],
        requests=list(ApprovalRequest.objects.using(alias).filter(run=run, state=ApprovalState.OPEN)[:ROWS_READ]),
        decisions=list(decisions[:ROWS_READ]),
    )


def _texts(states: Iterable[StrEnum]) -> list[str]:
    return [str(state) for state in states]


# --- the sentence on top


def _sentence(run: WorkflowRun, rows: Rows) -> str:
    sentence = _end(run, rows) if run.ended_at else _standing(run, rows)
    alert = plain(run.alert)
    return f"{full_stop(sentence)} Look at this: {alert}" if alert and alert not in sentence else sentence


def _end(run: WorkflowRun, rows: Rows) -> str:
    assert run.ended_at is not None
    by = f" by {plain(run.cancel_asked_by)}" if run.state == RunState.CANCELLED and run.cancel_asked_by else ""
    why = f": {plain(run.error_text)}" if run.error_text else ""
    inherited = [row for row in rows.effects if row.state in EFFECT_OPEN]
    left = f"; still open: {_names(inherited)}" if inherited else ""
    left += f", inherited by {plain(run.heir_name)}" if inherited and run.heir_name else ""
    return f"{run.word.capitalize()}{by} {when(run.ended_at, rows.now)}{why}{left}"


def _standing(run: WorkflowRun, rows: Rows) -> str:
    if run.ending_reason:
        return _ending(run, rows)
    if run.parked_reason == ParkedReason.PAUSED:
        return f"Paused {plain(run.parked_detail)}"
    if run.parked_reason:
        return f"Needs attention, {plain(run.parked_reason)}: {plain(run.parked_detail)}"
    for state, tell in _TELLERS.items():
        step = next((step for step in rows.steps if step.state == state), None)
        if step is not None:
            return tell(step, rows)
    return run.word.capitalize()


def _ending(run: WorkflowRun, rows: Rows) -> str:
    by = f" by {plain(run.cancel_asked_by)}" if run.cancel_asked_by else ""
    open_effects = [row for row in rows.effects if row.state in EFFECT_OPEN]
    flying = [row for row in rows.effects if row.settles_at is not None and row.settles_at > rows.now]
    waits = f"; first {_names(open_effects or flying)} must be settled" if open_effects or flying else ""
    return f"Ending ({plain(run.ending_reason)}{by}): {plain(run.error_text)}{waits}"


def _names(effects: Iterable[SideEffect]) -> str:
    return plain(", ".join(sorted({str(row) for row in effects})))


def _checking(step: StepRun, rows: Rows) -> str:
    doubtful = [row for row in rows.effects if row.step_id == step.pk and row.is_in_doubt]
    what = f"{_names(doubtful)} may have happened" if doubtful else f"{plain(step)} is not settled"
    why = f": {plain(step.waits_for)}" if step.waits_for else ""
    return f"A person must find out: {what}{why}" if step.needs_person else f"Checking what happened: {what}{why}"


def _working(step: StepRun, rows: Rows) -> str:
    since = f" since {moment(step.started_at, rows.now)}" if step.started_at and step.attempts == 1 else ""
    return f"Working on {plain(step)}{since}" + (f", attempt {step.attempts}" if step.attempts > 1 else "")


def _ready(step: StepRun, rows: Rows) -> str:
    if step.wake_at is not None and step.wake_at > rows.now:
        return f"{plain(step)} goes on {when(step.wake_at, rows.now)}: {plain(step.retry_reason)}"
    if step.send_error:
        return f"{plain(step)} could not be sent to a worker: {plain(step.send_error)}"
    if step.retry_reason and not step.sent_at:
        return f"{plain(step)} is next: {plain(step.retry_reason)}"
    return f"{plain(step)} waits for a worker since {moment(step.sent_at or step.created_at, rows.now)}"


def _retrying(step: StepRun, rows: Rows) -> str:
    at = f" {when(step.wake_at, rows.now)}" if step.wake_at else ""
    return f"{plain(step)} did not work ({plain(step.retry_reason)}); it is tried again{at}"


def _asking(step: StepRun, rows: Rows) -> str:
    request = next((request for request in rows.requests if request.step_id == step.pk), None)
    if request is None:
        return "Waiting for a decision"
    then = "then others are asked" if _has_rung(request) else "rejected by itself"
    at = when(request.expires_at, rows.now)
    expiry = f"{then}, {at}" if _has_rung(request) else f"{then} {at}"
    return f"Waiting for a decision since {moment(request.created_at, rows.now)}; {expiry}"


def _has_rung(request: ApprovalRequest) -> bool:
    return request.ladder_position < len(request.ladder)


def _waiting(step: StepRun, rows: Rows) -> str:
    if step.waits_on:
        at = f", {when(step.wake_at, rows.now)}" if step.wake_at else ""
        then = _after_wait(step)
        return f"Waiting for {plain(step.waits_for)}" + (f"{at}: {then}" if at else f"; then {then}")
    start = "A person is needed" if step.needs_person else "Waiting"
    return f"{start}: {plain(step.waits_for)}" if step.waits_for else f"{start} at {plain(step)}"


def _after_wait(step: StepRun) -> str:
    """What a waiting step leads to when its time is over, or when what it waits for is here."""
    if step.waits_on == WaitsOn.SIGNAL and step.wake_at is not None:
        given = step.input if isinstance(step.input, dict) else {}
        return f"without it {plain(given.get('on_timeout') or '')} goes on"
    return f"{plain(step)} goes on"


# In the order in which `core.plan` lets a step's state decide for the run.
_TELLERS: Mapping[StepState, Callable[[StepRun, Rows], str]] = {
    StepState.NEEDS_RECONCILIATION: _checking,
    StepState.RUNNING: _working,
    StepState.READY: _ready,
    StepState.RETRY_SCHEDULED: _retrying,
    StepState.WAITING_HUMAN: _asking,
    StepState.WAITING: _waiting,
}


# --- what happened, oldest first


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


# --- what is certain, and what is not


def _certain(rows: Rows) -> tuple[str, ...]:
    if not any(row.send_count for row in rows.effects):
        return ("Nothing has been sent to the outside world",)
    return tuple(_known(row) for row in rows.effects if row.state not in EFFECT_OPEN)


def _known(row: SideEffect) -> str:
    reference = reference_of(row.receipt) if row.state == EffectState.CONFIRMED else ""
    calls_it = f"; {plain(row.provider)} calls it {reference}" if reference else ""
    return f"{plain(row)}: {state_words(row.state, 'sideeffect')}{calls_it}"


# --- what comes, and what a person may do


def _next(run: WorkflowRun, rows: Rows) -> tuple[str, datetime | None]:
    if run.ended_at is not None:
        return _next_after_end(run, rows)
    moving = [step for step in rows.steps if not run.parked_reason or _goes_on_parked(step)]
    # What waits for a signal, a child or other branches has no time of its own: the deadline is the limit.
    things = [_next_of(step, rows) for step in moving if not step.waits_on or step.wake_at is not None]
    if not run.ending_reason:
        things.append((run.deadline_at, "the deadline ends the run"))
    else:
        things += [(row.settles_at, _SETTLES.format(plain(row))) for row in rows.effects if _is_flying(row, rows)]
    timed = [(at, text) for at, text in things if at is not None]
    untimed = [text for at, text in things if at is None]
    if untimed:
        return untimed[0], None
    if run.parked_reason and not moving:
        return "a person lets it go on; else the deadline ends the run", run.deadline_at
    return _first(timed) if timed else ("the run ends", rows.now)


def _next_after_end(run: WorkflowRun, rows: Rows) -> tuple[str, datetime | None]:
    """Lookups go on after the end: of what was found absent, and of what an abandoned run left open."""
    things = [(row.audit_at, f"{plain(row)} is looked up once more") for row in rows.effects if row.audit_at]
    left = [row for row in rows.effects if row.state in EFFECT_OPEN]
    things += [(row.next_lookup_at, f"the provider is asked about {plain(row)}") for row in left if row.next_lookup_at]
    if not things and left:
        return f"{plain(run.heir_name) or 'a person'} finds out what happened with {_names(left)}", None
    return _first(things) if things else ("", None)


def _goes_on_parked(step: StepRun) -> bool:
    """Does something of the step go on in a parked run? Its timers, signals' times and children's ends wait."""
    return step.state in _GOES_ON_PARKED and not step.waits_on


_GOES_ON_PARKED = (StepState.RUNNING, StepState.NEEDS_RECONCILIATION, StepState.WAITING, StepState.WAITING_HUMAN)
_SETTLES = "after that no request of {} can arrive any more"


def _first(timed: list[tuple[datetime, str]]) -> tuple[str, datetime]:
    at, text = min(timed)
    return text, at


def _is_flying(row: SideEffect, rows: Rows) -> bool:
    return row.settles_at is not None and row.settles_at > rows.now


def _next_of(step: StepRun, rows: Rows) -> tuple[datetime | None, str]:
    """When a step's next thing is due. No time: only a person moves it."""
    if step.needs_person:
        return None, f"a person decides: {plain(step.waits_for)}"
    if step.state == StepState.RUNNING:
        return step.must_end_by, f"the worker must end {plain(step)} by then"
    if step.state == StepState.WAITING_HUMAN:
        request = next((request for request in rows.requests if request.step_id == step.pk), None)
        expires = request.expires_at if request else None
        return expires, "others are asked" if request and _has_rung(request) else "the request expires and is rejected"
    if step.state == StepState.RETRY_SCHEDULED:
        return step.wake_at, f"{plain(step)} is tried again"
    if step.state == StepState.READY:
        if step.wake_at is not None and step.wake_at > rows.now:
            return step.wake_at, f"{plain(step)} goes on"
        return step.resend_at, f"{plain(step)} is sent again if no worker has taken it"
    if step.waits_on:
        return step.wake_at, _after_wait(step)
    lookups = [row.next_lookup_at for row in rows.effects if row.step_id == step.pk and row.next_lookup_at]
    return step.wake_at, f"{plain(step)}: the provider is asked" if lookups else f"{plain(step)} is looked at again"


_LIMITS = (EndingReason.BUDGET, EndingReason.DEADLINE)


def _safe(run: WorkflowRun, rows: Rows) -> tuple[str, ...]:
    """Verbs that are accepted now and can do no harm to what is under way."""
    goes_on = run.ended_at is None and not run.ending_reason
    is_paused = run.parked_reason == ParkedReason.PAUSED
    retries = (bool(run.parked_reason) and not is_paused) or any(
        step.state == StepState.RETRY_SCHEDULED for step in rows.steps
    )
    answers = any(rows.now < request.expires_at for request in rows.requests) and rows.now < run.deadline_at
    verbs = {
        "answer": goes_on and answers,
        "cancel": run.ended_at is None and run.cancel_asked_at is None,
        "pause": goes_on and not run.parked_reason,
        "resume": goes_on and is_paused,
        "retry": goes_on and retries and not is_paused,
        "extend": run.ending_reason in _LIMITS and run.state != RunState.ABANDONED and _may_reopen(run),
        "redrive": run.state == RunState.FAILED and _may_reopen(run) and rows.now < run.deadline_at,
        "resolve": any(_is_resolvable(row, rows) for row in rows.effects),
    }
    return tuple(verb for verb, is_safe in verbs.items() if is_safe)


def _may_reopen(run: WorkflowRun) -> bool:
    """A cancel is final, and so is the end of a child: the run that started it is told within seconds."""
    return run.cancel_asked_at is None and (run.ended_at is None or run.parent_id is None)


def _is_resolvable(row: SideEffect, rows: Rows) -> bool:
    if row.state in RESOLVABLE:
        return True
    asks = any(step.pk == row.step_id and step.needs_person for step in rows.steps)
    return row.state == EffectState.ABSENT and not row.verdict and asks
