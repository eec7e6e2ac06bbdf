"""How an effect is undone: by another effect, in a step that the engine adds for each step that acts.

Owns the names and declarations of these steps, what a run pins of them, and what an undo is called with. Pure.
Source: design, sections 2 and 5 (P6, P15); docs/decisions/009.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from durableflows.core.definition import SEND_BY_SECONDS, EffectDefinition, StepDefinition, StepKind
from durableflows.core.payload import JSON
from durableflows.core.states import EndingReason

DEFAULT_WITHIN = timedelta(days=1)
SUFFIX = ".undo"
UNDOES = "undoes"
"""The key of the undone effect's id in the input of the step that undoes it."""
RECEIPT = "receipt"
"""The argument in which an undo is given the receipt of what it undoes."""


@dataclass(frozen=True, slots=True)
class Undo:
    """What a run's manifest keeps: effect -> the one that undoes it; for which ends; how long all of it may take.

    steps   effect -> the steps that do it
    """

    effects: Mapping[str, str]
    on: frozenset[str]
    within: timedelta
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def starts(self, reason: str) -> bool:
        """Is what the run did undone when it ends for this reason?"""
        return reason == EndingReason.COMPENSATE or reason in self.on

    def step_for(self, effect: str, step: str) -> str:
        """The step that undoes an effect that `step` did; after a migration another one may do such things."""
        doers = self.steps.get(effect, ())
        return step_name(step if step in doers or not doers else doers[0])


def step_name(step: str) -> str:
    """The step that undoes what a step did. No declared step can have this name."""
    return f"{step}{SUFFIX}"


def steps_of(steps: Iterable[StepDefinition]) -> Iterator[StepDefinition]:
    """For each step that acts in a way that can be undone, the one that undoes it: same queue, tries, exceptions."""
    for step in steps:
        undos = tuple(dict.fromkeys(effect.undo for effect in step.effects if effect.undo is not None))
        if undos:
            yield _step_of(step, undos)


def _step_of(step: StepDefinition, undos: tuple[EffectDefinition[object], ...]) -> StepDefinition:
    least_seconds = max(SEND_BY_SECONDS + undo.timeout_seconds for undo in undos)
    windows = [undo.resend_window for undo in undos if undo.resend_window is not None]
    within = step.retry.within and min(step.retry.within, *windows) if windows else step.retry.within
    return StepDefinition(
        name=step_name(step.name),
        kind=StepKind.UNDO,
        end=True,
        effects=undos,
        queue=step.queue,
        retry=replace(step.retry, within=within),
        timeout_seconds=max(step.timeout_seconds, least_seconds),
        permanent=step.permanent,
        transient=step.transient,
    )


def pinned(steps: Iterable[StepDefinition], *, on_failure: bool, on_cancel: bool, within: timedelta) -> dict[str, JSON]:
    """What a run's manifest keeps of it: any process can begin an undo, also one without the workflow's code."""
    undone: dict[str, JSON] = {}
    doers: dict[str, list[JSON]] = {}
    for step in steps:
        for effect in step.effects:
            if effect.undo is not None:
                undone[effect.name] = effect.undo.name
                doers.setdefault(effect.name, []).append(step.name)
    if not undone:
        return {}
    asked: dict[str, JSON] = {str(EndingReason.FAILURE): on_failure, str(EndingReason.CANCEL): on_cancel}
    return {"undo": {"effects": undone, "steps": {**doers}, **asked, "seconds": within.total_seconds()}}


def undo_of(manifest: object) -> Undo:
    """What was pinned. Nothing can be undone in a run of before there were undos."""
    kept = manifest.get("undo") if isinstance(manifest, Mapping) else None  # somebody may have put anything there
    if not isinstance(kept, Mapping):
        return Undo({}, frozenset(), DEFAULT_WITHIN)
    effects, seconds, steps = kept.get("effects"), kept.get("seconds"), kept.get("steps")
    return Undo(
        {str(one): str(undo) for one, undo in effects.items()} if isinstance(effects, Mapping) else {},
        frozenset(str(reason) for reason in EndingReason if kept.get(str(reason)) is True),
        timedelta(seconds=seconds) if isinstance(seconds, int | float) else DEFAULT_WITHIN,
        {str(one): _names(doers) for one, doers in steps.items()} if isinstance(steps, Mapping) else {},
    )


def _names(kept: object) -> tuple[str, ...]:
    return tuple(str(name) for name in kept) if isinstance(kept, list) else ()


def arguments_of(effect: EffectDefinition[object], arguments: Mapping[str, JSON], receipt: JSON) -> dict[str, object]:
    """What the undo of an effect is called with: of the effect's arguments and its receipt those that it names.

    Raises   InvalidState when what is stored does not fit the declarations
    """
    assert effect.undo is not None
    given = {**effect.load_arguments(arguments), RECEIPT: effect.load_receipt(receipt)}
    return {name: given[name] for name in effect.undo.arguments.names if name in given}


def problems(effect: EffectDefinition[object], undo: object) -> Iterator[str]:
    """What is wrong with `undo=` of an effect."""
    if undo is None:
        return
    if not isinstance(undo, EffectDefinition):
        yield f"undo={undo!r}: this is not an effect, put @effect(...) on the function that undoes it"
        return
    if undo.name == effect.name:
        yield f"undo is an effect of the same name, {effect.name!r}: keys are made from the name, give one another"
    if undo.undo is not None:
        yield f"undo={undo.name} can itself be undone: declare it without undo="
    if RECEIPT in effect.arguments.names:
        yield f"it has an argument {RECEIPT!r}, which is the name in which its undo is given the receipt: rename it"
    known = (*effect.arguments.names, RECEIPT)
    strangers = [name for name in undo.arguments.required if name not in known]
    if strangers:
        yield (
            f"undo={undo.name} asks for {', '.join(strangers)}, which nobody can give it: it may ask for the effect's "
            f"own arguments ({', '.join(effect.arguments.names) or 'none'}) and its {RECEIPT!r}"
        )
