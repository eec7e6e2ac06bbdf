"""Typed values to JSON and back, strictly, with every problem named by its path.

Owns the one way in which state, arguments and receipts are written and read. Called by `core.state` and
`core.definition`. Never lets a value through that would come back as something else.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from durableflows.core.payload import JSON, canonical, storable, unstorable_in
from durableflows.errors import InvalidState

T = TypeVar("T")

# NaN is written as NaN, and so refused, not turned into null.
_ANYTHING: TypeAdapter[object] = TypeAdapter(object, config=ConfigDict(ser_json_inf_nan="constants"))


def dump(adapter: TypeAdapter[T], value: T, *, what: str) -> JSON:
    """Write a value as JSON, having checked that reading gives the same value, and that it can be stored.

    The value is checked as a whole again: lists and dicts inside it may have been changed since it was made.
    Raises InvalidState with all problems.
    """

    def refused(data: JSON) -> JSON:
        refuse_unstorable(data, what=what)
        return data

    data = _written(adapter, value, what=what, change=refused)
    if load(adapter, data, what=what) != value:
        raise InvalidState(
            f"{what}: comes back from JSON as another value: give each field its exact type, "
            "not `object` or `Any`, and values that compare equal by content",
        )
    return data


def write(adapter: TypeAdapter[T], value: T, *, what: str) -> JSON:
    """Write a value as JSON without reading it back. Raises InvalidState with all problems."""
    return _written(adapter, value, what=what, change=_as_it_is)


def write_marked(adapter: TypeAdapter[T], value: T, *, what: str) -> JSON:
    """Write a fact that must not be lost: text that cannot be stored is marked, not refused.

    Raises InvalidState only for a value that is not of its type or has no JSON form.
    """
    return _written(adapter, value, what=what, change=storable)


def plain(value: object, *, what: str) -> JSON:
    """Write a value of any type that has a JSON form. Raises InvalidState for one that has none."""
    return write(_ANYTHING, value, what=what)


def plain_marked(value: object, *, what: str) -> JSON:
    """Write a fact of any type that has a JSON form: text that cannot be stored is marked. Raises as `plain`."""
    # Marked before it is written too, for pydantic refuses a lone surrogate in a key. One that is no text is refused.
    with suppress(TypeError):
        value = storable(cast(JSON, value))
    return write_marked(_ANYTHING, value, what=what)


def as_object(data: JSON) -> dict[str, JSON]:
    """Say that this JSON is an object, as models and mappings give."""
    if not isinstance(data, dict):
        raise InvalidState(f"a JSON object is needed, not {type(data).__name__}")
    return data


def load(adapter: TypeAdapter[T], data: JSON, *, what: str) -> T:
    """Read a value from JSON and check all of it. Raises InvalidState with all problems."""
    try:
        return adapter.validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise invalid(error, what=what) from None


def check(adapter: TypeAdapter[T], value: object, *, what: str) -> T:
    """Check a Python value strictly: exact types, nothing converted. Raises InvalidState with all problems."""
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError as error:
        raise invalid(error, what=what) from None


def invalid(error: ValidationError, *, what: str) -> InvalidState:
    """Turn pydantic's findings into our error. Never shows the values: they may be secret."""
    problems = tuple(
        (".".join(str(part) for part in found["loc"]), found["msg"])
        for found in error.errors(include_url=False, include_input=False, include_context=False)
    )
    lines = "; ".join(f"{path}: {message}" if path else message for path, message in problems)
    return InvalidState(f"{what}: {lines}", problems=problems)


def refuse_unstorable(data: JSON, *, what: str) -> None:
    """Refuse text that PostgreSQL cannot store, before a row is written. Raises InvalidState."""
    problems = tuple(
        (path, f"contains {code}, which cannot be stored: remove it, or make it visible with payload.storable")
        for path, text in _texts(data, "")
        if (code := unstorable_in(text))
    )
    if problems:
        raise InvalidState(
            f"{what}: " + "; ".join(f"{path}: {message}" for path, message in problems), problems=problems
        )


def _written(adapter: TypeAdapter[T], value: T, *, what: str, change: Callable[[JSON], JSON]) -> JSON:
    try:
        plainly = adapter.dump_python(value, mode="json", by_alias=True, warnings="error", include=_stored(value))
        data = change(plainly)
        canonical(data)
    except (PydanticSerializationError, UnicodeError, InvalidState) as error:
        if isinstance(error, InvalidState) and error.problems:
            raise
        raise _cannot_write(adapter, value, error, what=what) from None
    return data


def _stored(value: object) -> set[str] | None:
    """Leave out what a model computes: it is made again when the model is read, and would be an unknown field."""
    return set(type(value).model_fields) if isinstance(value, BaseModel) else None


def _as_it_is(data: JSON) -> JSON:
    return data


def _cannot_write(adapter: TypeAdapter[T], value: T, error: Exception, *, what: str) -> InvalidState:
    """Say what is wrong field by field where pydantic can, else what the writer said."""
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError as found:
        return invalid(found, what=what)
    return InvalidState(f"{what}: {error}", problems=(("", str(error)),))


def _texts(data: JSON, path: str) -> list[tuple[str, str]]:
    """List all texts, keys included, with where they are."""
    if isinstance(data, str):
        return [(path, data)]
    if isinstance(data, list):
        return [found for index, item in enumerate(data) for found in _texts(item, f"{path}.{index}".lstrip("."))]
    if isinstance(data, dict):
        inside = [found for name, item in data.items() for found in _texts(item, f"{path}.{name}".lstrip("."))]
        return [(path, name) for name in data] + inside
    return []
