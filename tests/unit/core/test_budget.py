"""Counters against declared limits (P7)."""

from decimal import Decimal

import pytest

from durableflows.core.budget import COUNTERS, is_used_up, pinned
from durableflows.core.definition import Budget


@pytest.mark.parametrize(
    ("limits", "used", "wanted"),
    [
        ({}, 10**9, False),
        ({"tool_calls": None}, 10**9, False),
        ({"tool_calls": 0}, 0, True),
        ({"tool_calls": 3}, 2, False),
        ({"tool_calls": 3}, 3, True),
        ({"tool_calls": 3}, 4, True),
        ({"tool_calls": "3"}, 3, True),
        ({"attempts": 1}, 5, False),
    ],
)
def test_one_more_would_exceed_the_limit(limits, used: int, wanted: bool):
    assert is_used_up(limits, "tool_calls", used) is wanted


@pytest.mark.parametrize(("used", "wanted"), [("1.999999", False), ("2.00", True), ("2.000001", True)])
def test_a_cost_is_compared_exactly(used: str, wanted: bool):
    assert is_used_up(pinned(Budget(cost_usd=Decimal("2.00"))), "cost_usd", Decimal(used)) is wanted


def test_a_run_keeps_its_limits_as_json():
    budget = Budget(attempts=3, tool_calls=0, cost_usd=Decimal("2.00"))

    assert pinned(budget) == {"attempts": 3, "tool_calls": 0, "cost_usd": "2.00"}
    assert pinned(Budget()) == {}


def test_each_limit_has_its_counter():
    assert set(COUNTERS) == {"attempts", "tool_calls", "model_calls", "iterations", "cost_usd"}
