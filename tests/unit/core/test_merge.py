"""Changes of steps that ran side by side."""

import pytest

from durableflows.core.merge import merge

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
