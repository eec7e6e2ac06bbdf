"""Counters against declared limits (P7)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from durableflows.core.budget import COUNTERS, idle_at, is_over, is_used_up, pinned
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


@pytest.mark.parametrize(("total", "wanted"), [("2.00", False), ("2.000001", True)])
def test_a_sum_may_reach_the_limit_and_not_pass_it(total: str, wanted: bool):
    assert is_over(pinned(Budget(cost_usd=Decimal("2.00"))), "cost_usd", Decimal(total)) is wanted
    assert not is_over({}, "cost_usd", Decimal(total))


def test_idle_time_is_counted_from_the_last_change():
    changed_at = datetime(2026, 1, 1, tzinfo=UTC)

    assert idle_at(pinned(Budget(idle=timedelta(minutes=30))), changed_at) == changed_at + timedelta(minutes=30)
    assert idle_at(pinned(Budget()), changed_at) is None
