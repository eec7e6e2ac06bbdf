"""The state of a run: a typed, strict, JSON-able model that users derive from.

Owns what may be in it and its two directions, `dump` and `load`. Called by the engine around each step and
by `api.start`. Never holds a secret, an ORM row or a big artifact: references to them only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Secret, SecretBytes, SecretStr, TypeAdapter

from durableflows.core import shape
from durableflows.core.payload import JSON
from durableflows.errors import InvalidDefinition

S = TypeVar("S", bound="WorkflowState")

_SECRETS = (SecretStr, SecretBytes, Secret)


class WorkflowState(BaseModel):
    """Base of each workflow's state. Strict: nothing converted, nothing unknown kept, no NaN, checked when assigned.

    Raise `schema_version` when stored states of an older release no longer fit.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        validate_assignment=True,
        validate_default=True,
        revalidate_instances="always",
    )

    schema_version: ClassVar[int] = 1

    @classmethod
    def __pydantic_init_subclass__(cls, **options: object) -> None:
        """Refuse secrets when the class is written, not when the first one lies in the database."""
        super().__pydantic_init_subclass__(**options)
        for name, field in cls.model_fields.items():
            if any(issubclass(part, _SECRETS) for part in _classes_in(field.annotation, set())):
                raise InvalidDefinition(
                    f"{cls.__qualname__}.{name} is a secret, and state is stored: keep a reference in the state "
                    "and let the step read the secret where it is kept"
                )


def dump(state: WorkflowState) -> dict[str, JSON]:
    """Write a state as JSON, having checked all of it again (lists may have been changed in place).

    Raises InvalidState with all problems: (path, message).
    """
    return shape.as_object(shape.dump(TypeAdapter(type(state)), state, what=type(state).__name__))


def build(cls: type[S], values: Mapping[str, object]) -> S:
    """Make a state from Python values, strictly. Raises InvalidState with all problems: (path, message)."""
    return shape.check(TypeAdapter(cls), dict(values), what=cls.__name__)


def load(cls: type[S], data: Mapping[str, JSON]) -> S:
    """Read a state from JSON and check all of it. Raises InvalidState with all problems: (path, message)."""
    return shape.load(TypeAdapter(cls), dict(data), what=cls.__name__)


def _classes_in(annotation: object, seen: set[object]) -> Iterator[type]:
    """Walk through unions, containers, models and dataclasses to each class that a value may have."""
    if isinstance(annotation, type) and annotation not in seen:
        seen.add(annotation)
        yield annotation
        for part in _parts(annotation):
            yield from _classes_in(part, seen)
    for argument in get_args(annotation):
        yield from _classes_in(argument, seen)


def _parts(cls: type) -> list[object]:
    if issubclass(cls, BaseModel):
        return [field.annotation for field in cls.model_fields.values()]
    return [field.type for field in dataclass_fields(cls)] if is_dataclass(cls) else []
