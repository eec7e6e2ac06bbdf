"""What an approval sets free: the effects that may follow it, read from the declaration. Runs none of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from durableflows.core import registry
from durableflows.core.definition import StepDefinition, WorkflowDefinition
from durableflows.errors import InvalidDefinition
from durableflows.models import ApprovalRequest


@dataclass(frozen=True, slots=True)
class Freed:
    """One effect. `is_certain`: each way from the approval leads to it; `can_be_undone`: it declares how."""

    effect: str
    provider: str
    step: str
    is_certain: bool
    can_be_undone: bool


def freed_by(asked: ApprovalRequest) -> list[Freed]:
    """Name the effects behind an approval, nearest first; none where this process does not know the workflow."""
    try:
        definition = registry.get(asked.run.workflow, asked.run.version)
        spec = definition.step(asked.step.name).approval
    except InvalidDefinition:
        return []
    return [*_effects(definition, spec.approved)] if spec is not None else []


def _effects(definition: WorkflowDefinition, first: str) -> Iterator[Freed]:
    certain = _straight_on(definition, first)
    told = set()
    for step in _in_order(definition, first):
        for effect in step.effects:
            if effect.name not in told:
                told.add(effect.name)
                is_certain = step.name in certain
                yield Freed(effect.name, effect.provider, step.name, is_certain, effect.undo is not None)


def _straight_on(definition: WorkflowDefinition, first: str) -> set[str]:
    """The steps that follow while there is only one way."""
    names, step = {first}, definition.step(first)
    while len(step.to) == 1 and step.to[0] not in names:
        step = definition.step(step.to[0])
        names.add(step.name)
    return names


def _in_order(definition: WorkflowDefinition, first: str) -> Iterator[StepDefinition]:
    """The steps that may follow, by the way that each step goes when all is well; the next question stops it."""
    ahead, seen = [first], {first}
    while ahead:
        step = definition.step(ahead.pop(0))
        yield step
        if step.approval is not None:
            continue
        for name in step.to:
            if name not in seen:
                seen.add(name)
                ahead.append(name)
