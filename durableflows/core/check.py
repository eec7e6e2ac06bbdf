"""What a declaration must fulfil: each mistake is refused at import, naming class, step and cure.

Owns the rules. Called by `core.declare` with what it has read. Never changes a declaration and never
reaches outside: what needs settings or a database is a system check elsewhere.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TypeAlias

from durableflows.core import pins
from durableflows.core import undo as undoing
from durableflows.core.arguments import check_lookup
from durableflows.core.check_approval import approval_problems
from durableflows.core.definition import (
    SEND_BY_SECONDS,
    Budget,
    EffectDefinition,
    StepDefinition,
)
from durableflows.core.ending import DEFAULT_WITHIN
from durableflows.core.named import effects_named
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition

_SLUG = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DOTTED = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_HEADER = ("name", "version", "deadline", "budget")
_CLEANUP = ("on_failure", "on_cancel")
_UNDO = ("undo_on_failure", "undo_on_cancel", "undo_within")
_RESERVED = frozenset({*_HEADER, *_CLEANUP, *_UNDO, *pins.OPTIONS, "cleanup_within", "definition"})

Steps: TypeAlias = Mapping[str, StepDefinition]
Problem: TypeAlias = tuple[str, str]
"""(name of the step, or '' for the whole class; what is wrong and the cure)."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a class says of itself, of the right types."""

    name: str
    version: int
    deadline: timedelta
    budget: Budget
    on_failure: str | None
    on_cancel: str | None
    cleanup_within: timedelta
    undo_on_failure: bool
    undo_on_cancel: bool
    undo_within: timedelta

    @property
    def cleanup(self) -> Mapping[str, str]:
        """Option -> the step that it names, where one is named."""
        named = {"on_failure": self.on_failure, "on_cancel": self.on_cancel}
        return {option: step for option, step in named.items() if step is not None}


def check_header(where: str, body: Mapping[str, object]) -> Header:
    """Take what a class says of itself as a whole. Raises InvalidDefinition for all mistakes."""
    name, version, deadline, budget = (body.get(option) for option in _HEADER)
    on_failure, on_cancel = (body.get(option) for option in _CLEANUP)
    undo_on_failure, undo_on_cancel, undo_within = (body.get(option) for option in _UNDO)
    within = body.get("cleanup_within")
    _refuse(where, (("", problem) for problem in _header_problems(body)))
    if (
        isinstance(name, str)
        and isinstance(version, int)
        and isinstance(deadline, timedelta)
        and isinstance(budget, Budget)
        and isinstance(on_failure, str | None)
        and isinstance(on_cancel, str | None)
        and isinstance(within, timedelta)
        and isinstance(undo_within, timedelta)
    ):
        undo = (bool(undo_on_failure), bool(undo_on_cancel), undo_within)
        return Header(name, version, deadline, budget, on_failure, on_cancel, within, *undo)
    raise InvalidDefinition(f"{where}: name, version, deadline or budget is of a wrong type")


def check_steps(
    where: str,
    steps: Steps,
    methods: Collection[str],
    cleanup: Mapping[str, str] = MappingProxyType({}),
    *,
    undoes: bool = False,
) -> None:
    """Refuse steps that are wrong in themselves, then a graph that cannot work.

    methods   those without @step; cleanup: `on_failure` and `on_cancel` with the steps that they name; undoes: what
              was done is undone by declaration
    """
    _refuse(where, ((step.name, problem) for step in steps.values() for problem in _step_problems(step)))
    _refuse(where, _effect_name_problems(steps))
    # By turns: a name that is spelled wrongly would be reported as unreachable steps too.
    _refuse(where, _target_problems(steps, methods))
    _refuse(where, (("", problem) for problem in _cleanup_names(steps, cleanup)))
    _refuse(where, _start_problems(steps))
    _refuse(where, (("", problem) for problem in _undo_problems(steps, undoes=undoes)))
    _refuse(where, _graph_problems(steps, cleanup.values()))
    _refuse(where, _cleanup_problems(steps, cleanup.values()))


def check_effect(effect: EffectDefinition[object], *, undo: object) -> None:
    """Refuse an effect whose name, numbers or functions cannot keep the promises."""
    _refuse(f"effect {effect.name}", (("", problem) for problem in _effect_problems(effect, undo)))
    if effect.lookup is not None:
        check_lookup(effect.lookup, effect.arguments, what=f"effect {effect.name}")


def _refuse(where: str, problems: Iterable[Problem]) -> None:
    found = [f"{where}.{step}: {problem}" if step else f"{where}: {problem}" for step, problem in problems]
    if found:
        raise InvalidDefinition("\n".join(found))


def _header_problems(body: Mapping[str, object]) -> Iterator[str]:
    name, version, deadline, budget = (body.get(option) for option in _HEADER)
    if not isinstance(name, str) or not _SLUG.fullmatch(name):
        yield f"name {name!r} is not a slug: small letters, digits and _, a letter first, like 'refund'"
    if type(version) is not int or version < 1:
        yield f"version {version!r} is not a whole number from 1"
    if deadline is None:
        near = did_you_mean("deadline", [given for given in body if given not in _HEADER])
        yield f"a deadline is missing{near or ': no run may be open for ever,'} write deadline = timedelta(days=14)"
    elif not isinstance(deadline, timedelta) or deadline <= timedelta(0):
        yield f"deadline {deadline!r} is not a time span, write deadline = timedelta(days=14)"
    if not isinstance(budget, Budget):
        yield f"budget {budget!r} is not a Budget, write budget = Budget(tool_calls=20)"
    yield from _cleanup_header_problems(body)
    yield from _undo_header_problems(body)


def _cleanup_header_problems(body: Mapping[str, object]) -> Iterator[str]:
    named = [body.get(option) for option in _CLEANUP]
    for option, step in zip(_CLEANUP, named, strict=True):
        if step is not None and (not isinstance(step, str) or not step):
            yield f"{option} is {step!r}: name the step that cleans up, {option} = 'give_back'"
    within = body.get("cleanup_within")
    if not isinstance(within, timedelta) or within <= timedelta(0):
        yield f"cleanup_within {within!r} is not a time span, write cleanup_within = timedelta(hours=1)"
    elif within != DEFAULT_WITHIN and not any(named):
        yield "cleanup_within without on_failure or on_cancel: nothing is cleaned up, leave it out"


def _undo_header_problems(body: Mapping[str, object]) -> Iterator[str]:
    for option in _UNDO[:2]:
        if not isinstance(body.get(option), bool):
            yield f"{option} is {body.get(option)!r}: write True, or leave it out"
    within = body.get("undo_within")
    if not isinstance(within, timedelta) or within <= timedelta(0):
        yield f"undo_within {within!r} is not a time span, write undo_within = timedelta(days=1)"


def _step_problems(step: StepDefinition) -> Iterator[str]:
    if not _SLUG.fullmatch(step.name) or step.name in _RESERVED:
        yield "this name cannot be a step: small letters, digits and _, and not " + ", ".join(sorted(_RESERVED))
    if step.timeout_seconds <= 0:
        yield f"timeout_seconds={step.timeout_seconds}: it must be more than 0"
    if step.queue is not None and not step.queue:
        yield "queue='' is no queue: leave it out for the app's default queue"
    if step.on_refused is not None and step.recheck is None:
        yield "on_refused without recheck: nothing can refuse, give recheck=<function> or leave on_refused out"
    yield from _failure_problems(step)
    if step.approval is not None:
        yield from approval_problems(step.approval)
    elif not step.to and not step.end:
        yield "it leads nowhere: give to='<step>', or end=True when the run may end here"
    yield from _step_effect_problems(step)


def _failure_problems(step: StepDefinition) -> Iterator[str]:
    for option in ("permanent", "transient"):
        given: tuple[object, ...] = getattr(step, option)
        for cls in given:
            if not isinstance(cls, type) or not issubclass(cls, Exception):
                yield f"{option}={cls!r}: exception classes are needed"
    for both in set(step.permanent) & set(step.transient):
        yield f"{both.__name__} is permanent and transient: it can only be one"


def _step_effect_problems(step: StepDefinition) -> Iterator[str]:
    given: tuple[object, ...] = step.effects
    strangers = [stranger for stranger in given if not isinstance(stranger, EffectDefinition)]
    if strangers:
        yield f"effects={strangers[0]!r}: this is not an effect, put @effect(...) on the function"
        return
    if step.atomic and step.effects:
        yield (
            "atomic=True with effects: what is done outside cannot be rolled back with the transaction, "
            "do the effect in a step of its own before this one"
        )
    for effect in step.effects:
        yield from _timing_problems(step, effect)
    for effect in effects_named(step.function):
        if effect not in step.effects:
            yield f"it uses effect {effect.name} without declaring it: add effects=({effect.function.__name__},)"


def _timing_problems(step: StepDefinition, effect: EffectDefinition[object]) -> Iterator[str]:
    window, within = effect.resend_window, step.retry.within
    if window is not None and within is not None and within > window:
        yield (
            f"retry.within={within} is longer than effect {effect.name} can be sent again under its key "
            f"({window}: key_window less settle_seconds): make it shorter"
        )
    if SEND_BY_SECONDS + effect.timeout_seconds > step.timeout_seconds:
        yield (
            f"timeout_seconds={step.timeout_seconds:g} ends the step inside a call of effect {effect.name} "
            f"({SEND_BY_SECONDS:g} s to leave and {effect.timeout_seconds:g} s to answer): make it longer"
        )


def _effect_name_problems(steps: Steps) -> Iterator[Problem]:
    known: dict[str, EffectDefinition[object]] = {}
    for step in steps.values():
        undos = [effect.undo for effect in step.effects if effect.undo is not None]
        for effect in (*step.effects, *undos):
            if known.setdefault(effect.name, effect) is not effect:
                yield step.name, f"two effects are named {effect.name!r}: keys are made from the name, give one another"


def _target_problems(steps: Steps, methods: Collection[str]) -> Iterator[Problem]:
    for step in steps.values():
        for option, targets in _targets(step):
            for target in targets:
                if target in methods:
                    yield step.name, f"{option} names {target!r}, which is a method without @step(...): put it on"
                elif target not in steps:
                    listed = ", ".join(steps)
                    yield (
                        step.name,
                        f"{option} names {target!r}, which is no step{did_you_mean(target, steps)} (steps: {listed})",
                    )


def _targets(step: StepDefinition) -> Iterator[tuple[str, tuple[str, ...]]]:
    if step.approval is not None:
        yield "approved", (step.approval.approved,)
        yield "rejected", (step.approval.rejected,)
        yield "on_expiry", (step.approval.fallback,) if step.approval.fallback else ()
    else:
        yield "to", step.to
    for option, target in (("on_refused", step.on_refused), ("on_failure", step.on_failure)):
        if target is not None:
            yield option, (target,)


def _start_problems(steps: Steps) -> Iterator[Problem]:
    starts = [step.name for step in steps.values() if step.start]
    if not steps:
        yield "", "it has no steps: write methods with @step(...)"
    elif not starts:
        yield "", f"no step has start=True: give it to the first one, perhaps {next(iter(steps))!r}"
    elif len(starts) > 1:
        yield "", f"several steps have start=True ({', '.join(starts)}): a run starts at one"


def _undo_problems(steps: Steps, *, undoes: bool) -> Iterator[str]:
    if undoes and not any(effect.undo for step in steps.values() for effect in step.effects):
        yield "undo_on_failure or undo_on_cancel, and no effect has an undo=: give one, or leave these out"


def _cleanup_names(steps: Steps, cleanup: Mapping[str, str]) -> Iterator[str]:
    for option, name in cleanup.items():
        if name not in steps:
            yield f"{option} names {name!r}, which is no step{did_you_mean(name, steps)} (steps: {', '.join(steps)})"


def _cleanup_problems(steps: Steps, cleanup: Collection[str]) -> Iterator[Problem]:
    """A clean-up has steps of its own: only they may send anything once a run is known to end."""
    forward = {name: set(step.leads_to) for name, step in steps.items()}
    main = _closure((name for name, step in steps.items() if step.start), forward)
    for name in _closure(cleanup, forward):
        step = steps[name]
        if name in main:
            yield (
                name,
                (
                    "it belongs to the clean-up and to the way from the start: a clean-up has steps of its own, "
                    "give it another one that does the same"
                ),
            )
        if step.approval is not None:
            yield name, "an approval in a clean-up: the run ends whatever anybody answers, ask before it fails"
        if step.join and name in cleanup:
            yield name, "join=True where a clean-up begins: nothing leads here that it could wait for"


def _graph_problems(steps: Steps, cleanup: Iterable[str]) -> Iterator[Problem]:
    forward = {name: set(step.leads_to) for name, step in steps.items()}
    backward = {name: {other for other in steps if name in forward[other]} for name in steps}
    reachable = _closure([*(name for name, step in steps.items() if step.start), *cleanup], forward)
    ending = _closure((name for name, step in steps.items() if step.end), backward)
    for name, step in steps.items():
        if name not in reachable:
            yield name, "no way leads here from the start: name it in the `to` of a step, or delete it"
        if name not in ending:
            yield name, "no way leads from here to a step with end=True: the run could never succeed"
        if step.join and step.start:
            yield name, "join=True at the start: nothing leads here that it could wait for"


def _closure(begin: Iterable[str], ways: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(begin)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(ways[name])
    return found


def _effect_problems(effect: EffectDefinition[object], undo: object) -> Iterator[str]:
    yield from undoing.problems(effect, undo)
    yield from _together_problems(effect)
    if not _DOTTED.fullmatch(effect.name) or len(effect.name) > 100:
        yield f"name {effect.name!r} is not of the form 'payments.refund' (small letters, digits, _, at most 100)"
    if not _SLUG.fullmatch(effect.provider):
        yield f"provider {effect.provider!r} is not a slug: small letters, digits and _, like 'payments'"
    if type(effect.version) is not int or effect.version < 1:
        yield f"version {effect.version!r} is not a whole number from 1"
    yield from _effect_time_problems(effect)
    if effect.resend_when_absent and effect.lookup is None:
        yield "resend_when_absent=True without lookup: nobody can say that it is absent, give lookup=<function>"
    if effect.left_to_person and (effect.lookup is not None or effect.key_window is not None):
        yield "left_to_person=True with lookup or key_window: what is in doubt can be settled without one, leave it out"
    reader: object = effect.event
    if reader is not None and not callable(reader):
        yield f"event={reader!r}: a function of an event's body is needed, it returns an EventReading or None"
    if effect.accepted_within is not None and effect.accepted is None:
        yield "accepted_within without accepted: no receipt can be pending, give accepted=<function of the receipt>"


def _together_problems(effect: EffectDefinition[object]) -> Iterator[str]:
    if not effect.transactional:
        return
    for option in (
        "lookup",
        "key_window",
        "left_to_person",
        "accepted",
        "resend_when_absent",
        "one_at_a_time",
        "event",
    ):
        if getattr(effect, option):
            yield f"transactional=True with {option}: it commits or has not happened, so nothing is asked; leave it out"


def _effect_time_problems(effect: EffectDefinition[object]) -> Iterator[str]:
    if effect.timeout_seconds <= 0:
        yield f"timeout_seconds={effect.timeout_seconds:g}: it must be more than 0"
    least_seconds = SEND_BY_SECONDS + effect.timeout_seconds
    if effect.settle_seconds < least_seconds:
        yield (
            f"settle_seconds={effect.settle_seconds:g} is less than {least_seconds:g}: a request may leave up to "
            f"{SEND_BY_SECONDS:g} s after the intent is stored and take timeout_seconds={effect.timeout_seconds:g}; "
            "add what the provider needs to show it"
        )
    for option, span in (
        ("key_window less settle_seconds", effect.resend_window),
        ("accepted_within", effect.accepted_within),
    ):
        if span is not None and span <= timedelta(0):
            yield f"{option} leaves no time: make it longer"
