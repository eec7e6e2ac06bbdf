"""The retry matrix of one workflow: what `core` decides for each of its steps and effects. Runs nothing, reads no row.

Called by `manage.py durableflows matrix`.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

from durableflows.core.decide import Decision, unparked
from durableflows.core.definition import EffectDefinition, StepDefinition, StepKind, WorkflowDefinition
from durableflows.core.outcomes import Asked, InDoubt, Outcome, Refused, Waits
from durableflows.core.reconcile import MAX_LOOKUPS, EffectFacts
from durableflows.core.states import RUN_MOVES, STEP_MOVES, EffectState, EndingReason
from durableflows.management.matrix import FIRST, IN_DOUBT, NOW, Telling, decided, losses, nexts, outcomes, said
from durableflows.management.tables import Row, section, table

STEP_COLUMNS = ("attempt", "tries_left", "none_left")
EFFECT_COLUMNS = ("effect", "run_goes_on", "no_try_left", "run_halted")
MOMENT = timedelta(microseconds=1)


def as_data(workflow: WorkflowDefinition) -> dict[str, object]:
    """The matrix for programs."""
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "steps": {step.name: of_step(workflow, step) for step in workflow.all_steps},
        "effects": {effect.name: of_effect(effect) for effect in _outside(workflow)},
    }


def as_lines(workflow: WorkflowDefinition) -> list[str]:
    """The matrix for people."""
    lines = [f"{workflow.name}, version {workflow.version}"]
    for step in workflow.all_steps:
        lines += section(f"step {step.name}", table(of_step(workflow, step), STEP_COLUMNS))
    for effect in _outside(workflow):
        lines += section(f"effect {effect.name}", table(of_effect(effect), EFFECT_COLUMNS))
    return lines


def _outside(workflow: WorkflowDefinition) -> list[EffectDefinition[object]]:
    return [effect for effect in workflow.effects.values() if _may_be_in_doubt(effect)]


def _may_be_in_doubt(effect: EffectDefinition[object]) -> bool:
    """What commits with its row never is."""
    return not effect.transactional


def of_step(workflow: WorkflowDefinition, step: StepDefinition) -> list[Row]:
    """What becomes of the step after each way in which an attempt of it may end."""
    first, told = replace(FIRST, step=step), _telling(workflow, step)
    last = replace(first, attempts=step.retry.attempts)
    rows = [
        (name, decided(first, one, told=told), decided(last, one, told=told))
        for name, one in outcomes()
        if _may(step, one)
    ]
    lost = [(_death(when), then, then) for when, then in losses(first, told=told)[: _deaths(step)]]
    return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in [*rows, *lost]]


def _telling(workflow: WorkflowDefinition, step: StepDefinition) -> Telling:
    """How a decision about this step is told: what it means for the run differs from the main path."""
    if step.kind is StepKind.UNDO:
        return _of_undo
    return _of_cleanup if step.name in workflow.cleanup_steps else partial(_of_main_path, workflow)


def _of_undo(decision: Decision) -> str:
    """A step that undoes ends no run and parks none: what it could not undo is left, and the next undo begins."""
    is_over = unparked(decision).end is not None
    return "its effect is UNDO_FAILED, and the next undo begins" if is_over else said(decision)


def _of_cleanup(decision: Decision) -> str:
    """Nor does a step that cleans up: how the run ends is known."""
    is_over = unparked(decision).end is not None
    return "the clean-up ends here, and the run as it was going to" if is_over else said(decision)


def _of_main_path(workflow: WorkflowDefinition, decision: Decision) -> str:
    """What a failure for good begins before the run ends."""
    if decision.end is None or decision.end.reason is not EndingReason.FAILURE or decision.verb is None:
        return said(decision)
    is_undone = workflow.undo_on_failure and bool(workflow.undo_steps)
    ways = [f"step {STEP_MOVES[decision.verb][1]}"]
    ways += ["what was done is undone"] if is_undone else []
    ways += [f"`{workflow.on_failure}` cleans up"] if workflow.on_failure else []
    end = RUN_MOVES["finish_compensation" if is_undone else decision.end.verb][1]
    return ", ".join([*ways, f"run ends as {end}"])


def _deaths(step: StepDefinition) -> int:
    """How many of the ways to lose a worker there are: without an effect outside nothing is under way."""
    if not any(_may_be_in_doubt(effect) for effect in step.effects):
        return 2
    return 4 if any(effect.accepted is not None for effect in step.effects) else 3


def _death(when: str) -> str:
    return f"its worker died {when.replace('the same', 'before anything was sent')}"


def _may(step: StepDefinition, outcome: Outcome) -> bool:
    """Can an attempt of this step end so?"""
    if isinstance(outcome, Asked):
        return step.kind is StepKind.APPROVAL
    if isinstance(outcome, Refused):
        return step.recheck is not None
    if isinstance(outcome, Waits):
        return any(effect.accepted is not None for effect in step.effects)
    return not isinstance(outcome, InDoubt) or any(_may_be_in_doubt(effect) for effect in step.effects)


def of_effect(effect: EffectDefinition[object]) -> list[Row]:
    """What an effect needs next, in each state that is not settled."""
    return [dict(zip(EFFECT_COLUMNS, (name, *nexts(facts)), strict=True)) for name, facts in _cases(effect)]


def _cases(effect: EffectDefinition[object]) -> Iterator[tuple[str, EffectFacts]]:
    doubt = _facts(effect)
    late = doubt
    if effect.key_window is not None:
        late = replace(doubt, first_dispatched_at=NOW - effect.key_window)
        yield "in doubt, within the key's time", replace(doubt, first_dispatched_at=NOW - MOMENT)
    over = ", the key's time is over" if effect.key_window is not None else ", no key"
    yield f"in doubt{over}, a request may still arrive", replace(late, settles_at=NOW + MOMENT)
    yield f"in doubt{over}", late
    if effect.lookup is not None:
        yield f"in doubt{over}, {MAX_LOOKUPS} lookups could not tell", replace(late, lookup_count=MAX_LOOKUPS)
    if effect.accepted is not None:
        pending = replace(doubt, state=EffectState.ACCEPTED, accepted_at=NOW - MOMENT)
        yield "accepted, not done", pending
        if effect.accepted_within is not None:
            yield "accepted, for too long", replace(pending, accepted_at=NOW - effect.accepted_within)
    absent = replace(doubt, state=EffectState.ABSENT)
    if effect.lookup is not None:
        yield "a lookup did not find it", absent
    yield "a person said that it did not happen", replace(absent, person_said_absent=True)


def _facts(effect: EffectDefinition[object]) -> EffectFacts:
    """An effect of this declaration in doubt, whose requests have all arrived or are lost."""
    return replace(
        IN_DOUBT,
        name=effect.name,
        key_window=effect.key_window,
        settle_seconds=effect.settle_seconds,
        has_lookup=effect.lookup is not None,
        resend_when_absent=effect.resend_when_absent,
        accepted_within=effect.accepted_within,
        has_event=effect.event is not None,
    )
