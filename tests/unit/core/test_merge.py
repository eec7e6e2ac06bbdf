"""Changes of steps that ran side by side."""

from typing import Annotated, Any

import pytest
from pydantic import create_model

from durableflows import InvalidDefinition, Money, WorkflowState
from durableflows.core.merge import Merge, declared, merge
from durableflows.core.payload import JSON

BASE = {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("mine", "current", "merged", "conflicts"),
    [
        (BASE, {"a": 1, "b": 2}, {"a": 1, "b": 2}, ()),
        ({"a": 2, "b": 1}, BASE, {"a": 2, "b": 1}, ()),
        ({"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, ()),
        ({"a": 2, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 1}, ("a",)),
        ({"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 3, "b": 1}, ("a",)),
        ({"b": 1}, BASE, {"b": 1}, ()),
        ({"b": 1}, {"a": 5, "b": 1}, {"a": 5, "b": 1}, ("a",)),
        ({"a": 1, "b": 1, "c": 3}, BASE, {"a": 1, "b": 1, "c": 3}, ()),
        ({"a": 1, "b": 1, "c": 3}, {"a": 1, "b": 1, "c": 4}, {"a": 1, "b": 1, "c": 4}, ("c",)),
        ({"a": None, "b": 1}, {"a": None, "b": 1}, {"a": None, "b": 1}, ("a",)),
    ],
)
def test_different_fields_are_both_kept_and_the_same_field_is_a_conflict(mine, current, merged, conflicts):
    assert merge(BASE, mine, current) == (merged, conflicts)


def test_a_number_that_becomes_a_truth_value_is_a_change():
    merged, conflicts = merge({"a": 1, "b": 0}, {"a": True, "b": 0}, {"a": 1, "b": False})

    assert (merged["a"] is True, merged["b"] is False, conflicts) == (True, True, ())
    assert merge({"a": 1}, {"a": 2}, {"a": True})[1] == ("a",)


EUR, USD = "EUR", "USD"


def money(amount: int, currency: str = EUR) -> JSON:
    return {"amount_minor": amount, "currency": currency}


@pytest.mark.parametrize(
    ("way", "was", "mine", "other", "both"),
    [
        (Merge.ADD, 1, 3, 6, 8),
        (Merge.ADD, 5, 5 - 2, 5 + 4, 7),
        (Merge.ADD, 1, 2, 2, 3),
        (Merge.ADD, money(100), money(150), money(90), money(140)),
        (Merge.APPEND, ["a"], ["a", "b"], ["a", "c"], ["a", "c", "b"]),
        (Merge.APPEND, [], ["b"], ["b"], ["b", "b"]),
        (Merge.UPDATE, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        (Merge.UPDATE, {"a": 1, "b": 2}, {"b": 2}, {"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 3}),
    ],
)
def test_two_changes_become_one_as_declared(way: Merge, was: JSON, mine: JSON, other: JSON, both: JSON) -> None:
    merged, conflicts = merge({"field": was}, {"field": mine}, {"field": other}, {"field": way})

    assert (merged, conflicts) == ({"field": both}, ())


@pytest.mark.parametrize(
    ("way", "was", "mine", "other"),
    [
        (Merge.ADD, money(1), money(2), money(2, USD)),
        (Merge.APPEND, ["a", "b"], ["b", "c"], ["a", "b", "d"]),
        (Merge.APPEND, ["a"], ["a", "b"], []),
        (Merge.UPDATE, {"a": 1}, {"a": 2}, {"a": 3}),
        (Merge.UPDATE, {"a": 1}, {"a": 2}, {}),
    ],
)
def test_changes_that_exclude_each_other_stay_a_conflict(way: Merge, was: JSON, mine: JSON, other: JSON) -> None:
    _, conflicts = merge({"field": was}, {"field": mine}, {"field": other}, {"field": way})

    assert conflicts == ("field",)


def test_a_state_says_how_its_fields_are_merged() -> None:
    class Totals(WorkflowState):
        plain: int = 0
        paid: Annotated[Money, Merge.ADD]
        notes: Annotated[list[str], Merge.APPEND] = []
        by_name: Annotated[dict[str, int], Merge.UPDATE] = {}

    assert declared(Totals) == {"paid": Merge.ADD, "notes": Merge.APPEND, "by_name": Merge.UPDATE}


@pytest.mark.parametrize(
    "annotation", [Annotated[str, Merge.ADD], Annotated[int, Merge.APPEND], Annotated[list[int], Merge.UPDATE]]
)
def test_a_way_that_does_not_fit_its_field_is_refused(annotation: Any) -> None:
    state = create_model("Wrong", __base__=WorkflowState, field=(annotation, ...))

    with pytest.raises(InvalidDefinition, match=r"Wrong\.field: Merge\.\w+ is for"):
        declared(state)
