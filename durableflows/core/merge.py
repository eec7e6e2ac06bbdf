"""State of steps that ran side by side: changes of different fields are both kept; of the same field neither wins,
unless the state declares how the two are brought together.

    class Totals(WorkflowState):
        paid: Annotated[Money, Merge.ADD]
        notes: Annotated[list[str], Merge.APPEND] = []
        by_parcel: Annotated[dict[str, str], Merge.UPDATE] = {}

Pure. Source: design, section 4 (settle: field-wise merge against the branch's base).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import cast, get_origin

from durableflows.core.money import Money
from durableflows.core.payload import JSON, same
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidDefinition


class Merge(StrEnum):
    """How two changes of one field become one. ADD: both differences; APPEND: both tails; UPDATE: both sets of keys."""

    ADD = "add"
    APPEND = "append"
    UPDATE = "update"


_MISSING = object()
_NEEDS: Mapping[Merge, tuple[type, ...]] = {
    Merge.ADD: (int, Money),
    Merge.APPEND: (list,),
    Merge.UPDATE: (dict,),
}


class _CannotMerge(Exception):
    """The two changes exclude each other."""


def declared(state_type: type[WorkflowState]) -> dict[str, Merge]:
    """Read which fields say how they are merged. Raises InvalidDefinition for a field that cannot be merged so."""
    found: dict[str, Merge] = {}
    for name, field in state_type.model_fields.items():
        ways = [way for way in field.metadata if isinstance(way, Merge)]
        if not ways:
            continue
        kind = get_origin(field.annotation) or field.annotation
        if len(ways) > 1 or kind not in _NEEDS[ways[0]]:
            names = " or ".join(one.__name__ for one in _NEEDS[ways[0]])
            raise InvalidDefinition(
                f"{state_type.__name__}.{name}: Merge.{ways[0].name} is for {names}, one way a field"
            )
        found[name] = ways[0]
    return found


def merge(
    base: Mapping[str, JSON],
    mine: Mapping[str, JSON],
    current: Mapping[str, JSON],
    how: Mapping[str, Merge] | None = None,
) -> tuple[dict[str, JSON], tuple[str, ...]]:
    """Bring one step's changes into the state as it is now.

    base, mine   the state that the step began with, and the one it left
    how          fields whose two changes can both be kept
    Returns      the merged state, and the fields that somebody else has changed meanwhile too
    """
    merged, conflicts = dict(current), []
    for name in sorted({*base, *mine}):
        was, is_, other = (state.get(name, _MISSING) for state in (base, mine, current))
        if same(is_, was):
            continue
        if not same(other, was):  # also to the same value: of two that counted one up, one would be lost
            try:
                merged[name] = _together((how or {}).get(name), was, is_, other)
            except _CannotMerge:
                conflicts.append(name)
        elif name in mine:
            merged[name] = mine[name]
        else:
            merged.pop(name, None)
    return merged, tuple(conflicts)


def _together(way: Merge | None, was: object, mine: object, other: object) -> JSON:
    if way is None or _MISSING in (was, mine, other):
        raise _CannotMerge
    return _WAYS[way](cast(JSON, was), cast(JSON, mine), cast(JSON, other))


def _add(was: JSON, mine: JSON, other: JSON) -> JSON:
    if isinstance(was, dict) and isinstance(mine, dict) and isinstance(other, dict):
        if not was["currency"] == mine["currency"] == other["currency"]:
            raise _CannotMerge
        amount = _add(was["amount_minor"], mine["amount_minor"], other["amount_minor"])
        return {"amount_minor": amount, "currency": was["currency"]}
    return cast(int, other) + cast(int, mine) - cast(int, was)


def _append(was: JSON, mine: JSON, other: JSON) -> JSON:
    before, ours, theirs = cast(list[JSON], was), cast(list[JSON], mine), cast(list[JSON], other)
    if not (same(ours[: len(before)], before) and same(theirs[: len(before)], before)):
        raise _CannotMerge  # something in the middle was changed or taken out
    return [*theirs, *ours[len(before) :]]


def _update(was: JSON, mine: JSON, other: JSON) -> JSON:
    both, conflicts = merge(cast(dict[str, JSON], was), cast(dict[str, JSON], mine), cast(dict[str, JSON], other))
    if conflicts:
        raise _CannotMerge
    return both


_WAYS: Mapping[Merge, Callable[[JSON, JSON, JSON], JSON]] = {
    Merge.ADD: _add,
    Merge.APPEND: _append,
    Merge.UPDATE: _update,
}
