"""A receipt for an effect that no scenario describes: made from the declared type, as plain as it can be."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import EffectCall
from durableflows.core.money import Money
from durableflows.errors import InvalidState

_PLAIN: Mapping[Any, object] = {
    int: 1,
    float: 1.0,
    bool: True,
    Decimal: Decimal(1),
    bytes: b"",
    UUID: UUID(int=1),
    datetime: datetime(2026, 1, 5, 9, 0, tzinfo=UTC),
    date: date(2026, 1, 5),
    Money: Money(100, "USD"),
    type(None): None,
    dict: {},
    list: [],
    tuple: (),
    object: "",
    Any: "",
}


class Receipts:
    """Makes receipts that are told apart by a number; the same run of a simulation gives the same ones."""

    def __init__(self) -> None:
        self._made = 0

    def plain(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> object:
        """A receipt of the declared type; fields that are called as an argument get its value.

        Raises InvalidState naming the field for which a scenario must say the value.
        """
        self._made += 1
        text = f"{effect.provider}-{self._made}"
        try:
            receipt = _value(effect.receipt, text, dict(arguments))
            effect.dump_receipt(receipt)
        except (InvalidState, TypeError, ValueError) as error:
            raise InvalidState(_how(effect, str(error).splitlines()[0])) from error
        if effect.accepted is not None and effect.accepted(receipt):
            raise InvalidState(_how(effect, "the one that is made up says that the provider is not done"))
        return receipt


def _how(effect: EffectDefinition[Any], why: str) -> str:
    return (
        f"no receipt of {effect.name} can be made up ({why}): give the scenario "
        f'receipts={{"{effect.name}": lambda call, **arguments: ...}}'
    )


def _value(kind: Any, text: str, known: Mapping[str, object]) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return inner[0]
    if origin is Union or type(kind).__name__ == "UnionType":
        return None if type(None) in inner else _value(inner[0], text, known)
    if str(origin) == "typing.Annotated":
        return _value(inner[0], text, known)
    if kind is str:
        return text
    plain = origin or kind
    if plain in _PLAIN:
        return _PLAIN[plain]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return _model(kind, text, known)


def _model(kind: Any, text: str, known: Mapping[str, object]) -> object:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        wanted: dict[str, Any] = {
            name: field.annotation for name, field in kind.model_fields.items() if field.is_required()
        }
    elif dataclasses.is_dataclass(kind):
        wanted = {field.name: field.type for field in dataclasses.fields(kind) if _is_needed(field)}
    else:
        raise TypeError(f"{kind!r} is not a type that can be filled in")
    make: Any = kind
    return make(**{name: known[name] if name in known else _value(one, text, {}) for name, one in wanted.items()})


def _is_needed(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
