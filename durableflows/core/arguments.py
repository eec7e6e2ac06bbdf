"""The arguments of an effect function: read from its annotations, checked, stored and loaded.

Owns what "the same arguments" means. Used by `core.definition` alone. Never calls the function.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from durableflows.core import shape
from durableflows.core.effects import EffectCall
from durableflows.core.payload import JSON
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidDefinition, InvalidState

_REQUIRED = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_RESERVED = frozenset({"operation"})


class _Base(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        validate_default=True,
        revalidate_instances="always",
    )


@dataclass(frozen=True, slots=True)
class _Parameter:
    annotation: object
    default: object


@dataclass(frozen=True, slots=True)
class Arguments:
    """The keyword arguments that a function takes after its EffectCall, in the order of its signature."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    _adapter: TypeAdapter[_Base]

    @classmethod
    def of(cls, function: Callable[..., object], *, what: str) -> "Arguments":
        """Read a function's signature: (call: EffectCall, *, charge_id: str, amount: Money).

        Raises InvalidDefinition naming the argument that cannot be checked and stored.
        """
        parameters = _read(function, what=what)
        # Fields have names of their own: an argument may be called `json` or `copy`, which a model has already.
        fields = {_field(index): _declare(name, parameters[name]) for index, name in enumerate(parameters)}
        try:
            model: type[_Base] = create_model("Arguments", __base__=_Base, **fields)
            required = tuple(name for name, one in parameters.items() if one.default is _REQUIRED)
            return cls(tuple(parameters), required, TypeAdapter(model))
        except (PydanticUserError, TypeError) as error:
            raise InvalidDefinition(f"{what}: the type of an argument has no JSON form: {error}") from error

    def dump(self, arguments: Mapping[str, object], *, what: str) -> dict[str, JSON]:
        """Write arguments as JSON, defaults filled in. Raises InvalidState with all problems."""
        self._refuse_unknown(arguments, what=what)
        model = shape.check(self._adapter, dict(arguments), what=what)
        return shape.as_object(shape.dump(self._adapter, model, what=what))

    def load(self, data: Mapping[str, JSON], *, what: str) -> dict[str, object]:
        """Read arguments from JSON. Raises InvalidState with all problems."""
        self._refuse_unknown(data, what=what)
        model = shape.load(self._adapter, dict(data), what=what)
        return {name: getattr(model, _field(index)) for index, name in enumerate(self.names)}

    def _refuse_unknown(self, given: Mapping[str, object], *, what: str) -> None:
        unknown = [name for name in given if name not in self.names]
        if unknown:
            problems = tuple((name, f"no such argument{did_you_mean(name, self.names)}") for name in unknown)
            lines = "; ".join(f"{name}: {message}" for name, message in problems)
            takes = ", ".join(self.names) or "none"
            raise InvalidState(f"{what}: {lines} (it takes: {takes})", problems=problems)


def check_lookup(lookup: Callable[..., object], arguments: Arguments, *, what: str) -> None:
    """Refuse a lookup function that cannot be called with the same arguments. Raises InvalidDefinition."""
    try:
        inspect.signature(lookup).bind(None, **dict.fromkeys(arguments.names))
    except TypeError as error:
        takes = "".join(f", {name}" for name in arguments.names)
        raise InvalidDefinition(
            f"{what}: lookup {lookup.__name__} cannot be asked with the effect's arguments ({error}): "
            f"declare it as {lookup.__name__}(call, *{takes})"
        ) from None


def _read(function: Callable[..., object], *, what: str) -> dict[str, _Parameter]:
    first, *rest = inspect.signature(function).parameters.values() or (None,)
    hints = _hints(function, what=what)
    if first is None or first.kind not in _POSITIONAL or hints.get(first.name) is not EffectCall:
        raise InvalidDefinition(
            f"{what}: the first parameter must be the call: def {function.__name__}(call: EffectCall, *, ...)"
        )
    for parameter in rest:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise InvalidDefinition(f"{what}: argument {parameter.name} must be keyword-only: put `*,` after the call")
        if parameter.name not in hints:
            raise InvalidDefinition(
                f"{what}: argument {parameter.name} has no annotation: its type is needed to check and store it"
            )
        if parameter.name in _RESERVED:
            raise InvalidDefinition(
                f"{what}: argument {parameter.name} is taken by run.effect itself: give it another name"
            )
    return {parameter.name: _Parameter(hints[parameter.name], parameter.default) for parameter in rest}


def _hints(function: Callable[..., object], *, what: str) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidDefinition(f"{what}: {error}: import it at run time, not only under TYPE_CHECKING") from None


def _field(index: int) -> str:
    return f"argument_{index}"


def _declare(name: str, parameter: _Parameter) -> Any:
    """Write one field for create_model, which pydantic types as Any."""
    if parameter.default is _REQUIRED:
        return parameter.annotation, Field(alias=name)
    return parameter.annotation, Field(default=parameter.default, alias=name)
