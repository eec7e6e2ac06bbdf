"""The structural fingerprint of a workflow: equal when two releases can go on with each other's runs.

Owns what counts as structure: steps, edges, effects with versions, clean-up, and the shape of the state. Not
the order of anything, names of classes, texts, queues, time-outs or retries. Called when a workflow is declared.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from durableflows.core.definition import EffectDefinition, StepDefinition
from durableflows.core.payload import JSON, canonical, sha256
from durableflows.core.state import WorkflowState


def structure_of(
    steps: Iterable[StepDefinition],
    state_type: type[WorkflowState],
    *,
    on_failure: str | None = None,
    on_cancel: str | None = None,
) -> str:
    """Digest steps, state type and where a clean-up begins: hex of SHA-256, the same in every process and Python.

    Written out by ourselves, not by pydantic's JSON schema: that one changes with docstrings and with pydantic's
    releases, and each change would park all runs as incompatible.
    """
    described: dict[str, JSON] = {
        "steps": {step.name: _describe_step(step) for step in steps},
        "state": _describe(state_type, ()),
        "schema_version": state_type.schema_version,
    }
    if on_failure or on_cancel:
        described["cleanup"] = [on_failure, on_cancel]
    return sha256(described)


def _describe_step(step: StepDefinition) -> JSON:
    answers: JSON = [step.approval.approved, step.approval.rejected] if step.approval else None
    return {
        "kind": step.kind.value,
        "to": _sorted(step.to),
        "on_refused": step.on_refused,
        "on_failure": step.on_failure,
        "flags": [step.start, step.end, step.join],
        "effects": _sorted(_describe_effect(effect) for effect in step.effects),
        "answers": answers,
    }


def _describe_effect(effect: EffectDefinition[object]) -> JSON:
    undone: list[JSON] = [] if effect.undo is None else [effect.undo.name, effect.undo.version]
    how: list[JSON] = ["transactional"] if effect.transactional else []
    return [effect.name, effect.version, *undone, *how]


def _describe(annotation: object, above: tuple[object, ...]) -> JSON:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe(arguments[0], above)
    if origin is Literal:
        return {"one of": _sorted(repr(argument) for argument in arguments)}
    if origin in (Union, UnionType):  # Optional[int], Union[int, None] and int | None say the same
        return {"any of": _sorted(_describe(argument, above) for argument in arguments)}
    if origin is not None:
        return {"type": _name(origin), "of": [_describe(argument, above) for argument in arguments]}
    return _describe_class(annotation, above) if isinstance(annotation, type) else _name(annotation)


def _describe_class(cls: type, above: tuple[object, ...]) -> JSON:
    if cls in above:  # a tree of itself
        return {"again": len(above) - above.index(cls)}
    inside = (*above, cls)
    if issubclass(cls, BaseModel):
        return {
            name: [_describe(field.annotation, inside), field.is_required()] for name, field in cls.model_fields.items()
        }
    if issubclass(cls, Enum):
        return {"one of": _sorted(repr(member.value) for member in cls)}
    if is_dataclass(cls):
        return {field.name: _describe(field.type, inside) for field in fields(cls)}
    return cls.__qualname__


def _name(annotation: object) -> str:
    name = getattr(annotation, "__qualname__", None) or getattr(annotation, "__name__", None)
    return str(name or annotation)


def _sorted(values: Iterable[JSON]) -> list[JSON]:
    return sorted(values, key=canonical)
