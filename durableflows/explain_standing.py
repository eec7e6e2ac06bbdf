"""The sentence on top of an explanation: why the run stands where it stands, or how it ended. Pure, from its rows."""

from collections.abc import Callable, Iterable, Mapping

from durableflows.core.breaker import Breaker, BreakerState
from durableflows.core.states import EFFECT_OPEN, EffectState, ParkedReason, RunState, StepState, WaitsOn
from durableflows.core.undo import undo_of
from durableflows.explain_rows import Rows
from durableflows.explain_words import full_stop, moment, plain, when
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun


def sentence(run: WorkflowRun, rows: Rows) -> str:
    """Say in a sentence why the run stands where it stands, or how it ended; an alert is said too."""
    sentence = _end(run, rows) if run.ended_at else _standing(run, rows)
    alert = plain(run.alert)
    return f"{full_stop(sentence)} Look at this: {alert}" if alert and alert not in sentence else sentence


def _end(run: WorkflowRun, rows: Rows) -> str:
    assert run.ended_at is not None
    by = f" by {plain(run.cancel_asked_by)}" if run.state == RunState.CANCELLED and run.cancel_asked_by else ""
    why = f": {plain(run.error_text)}" if run.error_text else ""
    inherited = [row for row in rows.effects if row.state in EFFECT_OPEN]
    left = f"; still open: {names(inherited)}" if inherited else ""
    left += f", inherited by {plain(run.heir_name)}" if inherited and run.heir_name else ""
    return f"{run.word.capitalize()}{by} {when(run.ended_at, rows.now)}{why}{left}{_stays(run, rows)}"


def _stays(run: WorkflowRun, rows: Rows) -> str:
    """What a run that was undone could not undo."""
    if run.state not in (RunState.COMPENSATED, RunState.COMPENSATION_FAILED):
        return ""
    main = [row for row in rows.effects if row.undoes_id is None and not row.step.of_cleanup]
    undoable = undo_of(run.manifest).effects
    done = [row for row in main if row.state == EffectState.CONFIRMED]
    left = [row for row in done if row.effect in undoable]
    left += [row for row in main if row.state in (EffectState.UNDOING, EffectState.UNDO_FAILED)]
    stays = [row for row in done if row.effect not in undoable]
    told = f"; not undone: {names(left)}" if left else ""
    return told + (f"; not reversible: {names(stays)}" if stays else "")


def _standing(run: WorkflowRun, rows: Rows) -> str:
    if run.ending_reason:
        return _ending(run, rows)
    if run.parked_reason == ParkedReason.PAUSED:
        return f"Paused {plain(run.parked_detail)}"
    if run.parked_reason:
        return f"Needs attention, {plain(run.parked_reason)}: {plain(run.parked_detail)}"
    return _at_work(rows) or run.word.capitalize()


def _at_work(rows: Rows) -> str:
    """What the step does that decides for the run; '' when none is open."""
    for state, tell in _TELLERS.items():
        step = next((step for step in rows.steps if step.state == state), None)
        if step is not None:
            return tell(step, rows)
    return ""


def _ending(run: WorkflowRun, rows: Rows) -> str:
    by = f" by {plain(run.cancel_asked_by)}" if run.cancel_asked_by else ""
    head = f"Ending ({plain(run.ending_reason)}{by}): {plain(run.error_text)}"
    if run.is_undoing:
        under_way = [row for row in rows.effects if row.state == EffectState.UNDOING]
        told = _at_work(rows) or "nothing of it is open"
        return f"{full_stop(head)} What it did is undone first, now {names(under_way) or 'nothing'}: {told}"
    if run.is_cleaning_up:
        return f"{full_stop(head)} It cleans up first: {_at_work(rows) or 'nothing of it is open'}"
    open_effects = [row for row in rows.effects if row.state in EFFECT_OPEN]
    flying = [row for row in rows.effects if row.settles_at is not None and row.settles_at > rows.now]
    waits = f"; first {names(open_effects or flying)} must be settled" if open_effects or flying else ""
    return f"{head}{waits}"


def names(effects: Iterable[SideEffect]) -> str:
    """Name effects, each once."""
    return plain(", ".join(sorted({str(row) for row in effects})))


def _checking(step: StepRun, rows: Rows) -> str:
    doubtful = [row for row in rows.effects if row.step_id == step.pk and row.is_in_doubt]
    what = f"{names(doubtful)} may have happened" if doubtful else f"{plain(step)} is not settled"
    why = f": {plain(step.waits_for)}" if step.waits_for else ""
    resting = [rows.breakers[row.provider] for row in doubtful if _is_left_alone(row.provider, rows)]
    if resting and not step.needs_person:
        return f"Checking what happened: {what}; it {_paused(resting[0], rows)}"
    return f"A person must find out: {what}{why}" if step.needs_person else f"Checking what happened: {what}{why}"


def _working(step: StepRun, rows: Rows) -> str:
    since = f" since {moment(step.started_at, rows.now)}" if step.started_at and step.attempts == 1 else ""
    return f"Working on {plain(step)}{since}" + (f", attempt {step.attempts}" if step.attempts > 1 else "")


def _ready(step: StepRun, rows: Rows) -> str:
    if step.held_by:
        return f"{plain(step)} {_held(step, rows)}"
    if step.wake_at is not None and step.wake_at > rows.now:
        return f"{plain(step)} goes on {when(step.wake_at, rows.now)}: {plain(step.retry_reason)}"
    if step.send_error:
        return f"{plain(step)} could not be sent to a worker: {plain(step.send_error)}"
    if step.retry_reason and not step.sent_at:
        return f"{plain(step)} is next: {plain(step.retry_reason)}"
    if rows.release_unknown:
        return f"{plain(step)} waits for a worker that has {rows.release_unknown}: start those that run with this code"
    return f"{plain(step)} waits for a worker since {moment(step.sent_at or step.created_at, rows.now)}"


def _held(step: StepRun, rows: Rows) -> str:
    """What it waits for: as the provider stands now, not as it stood when the wait began."""
    if _is_left_alone(step.held_by, rows):
        return _paused(rows.breakers[step.held_by], rows)
    return plain(step.retry_reason)


def _is_left_alone(provider: str, rows: Rows) -> bool:
    breaker = rows.breakers.get(provider)
    return breaker is not None and breaker.state is not BreakerState.CLOSED


def _paused(breaker: Breaker, rows: Rows) -> str:
    since = f" since {moment(breaker.since, rows.now)}" if breaker.since else ""
    is_paused = breaker.state is BreakerState.PAUSED
    by = f" by {plain(breaker.changed_by)}:" if breaker.changed_by else "," if is_paused else ""
    then = {
        BreakerState.PAUSED: "until a person lets requests go to it again",
        BreakerState.HALF_OPEN: "one request tries now whether it is back",
    }
    tries = f"one request tries it {when(breaker.open_until, rows.now)}" if breaker.open_until else ""
    end = then.get(breaker.state, tries)
    word = "paused" if is_paused else "left alone"
    text = f"waits for {plain(breaker.provider)}: {word}{since}{by} {plain(breaker.reason)}"
    return f"{text}; {end}" if end else text


def _retrying(step: StepRun, rows: Rows) -> str:
    at = f" {when(step.wake_at, rows.now)}" if step.wake_at else ""
    return f"{plain(step)} did not work ({plain(step.retry_reason)}); it is tried again{at}"


def _asking(step: StepRun, rows: Rows) -> str:
    request = next((request for request in rows.requests if request.step_id == step.pk), None)
    if request is None:
        return "Waiting for a decision"
    at = when(request.expires_at, rows.now)
    expiry = f"then {after_expiry(request)}, {at}" if _goes_on(request) else f"rejected by itself {at}"
    nobody = ", and there is nobody who could give it" if request.unanswerable_at else ""
    return f"Waiting for a decision since {moment(request.created_at, rows.now)}{nobody}; {expiry}"


def after_expiry(request: ApprovalRequest) -> str:
    """What happens when nobody answers in time."""
    if has_rung(request):
        return "others are asked"
    if request.fallback:
        return f"the run goes on with {plain(request.fallback)}"
    return "the request expires and is rejected"


def _goes_on(request: ApprovalRequest) -> bool:
    return has_rung(request) or bool(request.fallback)


def has_rung(request: ApprovalRequest) -> bool:
    """Are others asked when nobody answers in time?"""
    return request.ladder_position < len(request.ladder)


def _waiting(step: StepRun, rows: Rows) -> str:
    if step.waits_on:
        at = f", {when(step.wake_at, rows.now)}" if step.wake_at else ""
        then = after_wait(step)
        return f"Waiting for {plain(step.waits_for)}" + (f"{at}: {then}" if at else f"; then {then}")
    start = "A person is needed" if step.needs_person else "Waiting"
    return f"{start}: {plain(step.waits_for)}" if step.waits_for else f"{start} at {plain(step)}"


def after_wait(step: StepRun) -> str:
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
