"""What became of a state, as the history keeps it: the fields that differ, large values by their digest."""

from durableflows.core import changes
from durableflows.core.payload import JSON, sha256


def test_only_what_differs_is_kept_with_what_it_was_and_is():
    old: dict[str, JSON] = {"a": 1, "gone": "x", "flag": True, "same": [1]}
    new: dict[str, JSON] = {"a": 2, "flag": 1, "same": [1], "new": {"b": None}}

    assert changes.kept(changes.between(old, new)) == {
        "a": {"old": 1, "new": 2},
        "flag": {"old": True, "new": 1},
        "new": {"old": None, "new": {"b": None}},
        "gone": {"old": "x", "new": None},
    }


def test_a_large_value_is_kept_by_its_digest():
    large = "x" * changes.KEPT_BYTES

    assert changes.kept(changes.between({"a": "small"}, {"a": large})) == {
        "a": {"old": "small", "new": {"sha256": sha256(large), "bytes": changes.KEPT_BYTES + 2}}
    }
