"""What operators' verbs compute: later deadlines, larger limits, sums of money."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from durableflows import InvalidState, Money
from durableflows.core.operate import larger, later, money_in, sums

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("deadline", "asked", "expected"),
    [
        (NOW + DAY, DAY, NOW + 2 * DAY),
        (NOW - DAY, DAY, NOW + DAY),
        (NOW - DAY, NOW + DAY, NOW + DAY),
        (NOW + DAY, NOW + 2 * DAY, NOW + 2 * DAY),
    ],
)
def test_more_time_counts_from_what_is_later(deadline: datetime, asked: object, expected: datetime):
    assert later(deadline, asked, NOW) == expected


FAR = datetime(9999, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "asked", [NOW, NOW - DAY, NOW + DAY, timedelta(0), -DAY, timedelta.max, FAR, FAR - NOW, "x", 5, True]
)
def test_no_deadline_is_moved_forward_or_to_the_past(asked: object):
    with pytest.raises(InvalidState):
        later(NOW + DAY, asked, NOW)


def test_sums_are_shown_however_large_and_less_than_nothing():
    most = Money(2**63 - 1, "JPY")

    assert sums([most, most, Money(3, "JPY"), -most]) == (most, Money(3, "JPY"))
    assert sums([-most, -most]) == (-most, -most)
    assert sums([Money(0, "EUR")]) == (Money(0, "EUR"),)


@pytest.mark.parametrize(
    ("limits", "used", "more", "expected"),
    [
        ({"tool_calls": 5}, {"tool_calls": 2}, {"tool_calls": 3}, {"tool_calls": 8}),
        ({"tool_calls": 5}, {"tool_calls": 7}, {"tool_calls": 3}, {"tool_calls": 10}),
        ({"iterations": 2}, {"iterations": 3}, {"iterations": 1}, {"iterations": 3}),
        ({"cost_usd": "1.00"}, {"cost_usd": Decimal("1.25")}, {"cost_usd": "0.50"}, {"cost_usd": "1.75"}),
        ({"cost_usd": "1.00"}, {"cost_usd": Decimal(0)}, {"cost_usd": Decimal("0.5")}, {"cost_usd": "1.50"}),
        ({"idle_seconds": 60.0}, {}, {"idle": timedelta(hours=1)}, {"idle_seconds": 3660.0}),
        ({"idle_seconds": 60.0}, {}, {"idle": 30}, {"idle_seconds": 90.0}),
        ({"attempts": 1, "tool_calls": 1}, {}, {}, {"attempts": 1, "tool_calls": 1}),
    ],
)
def test_more_counts_from_the_limit_or_from_what_is_used(limits, used, more, expected):
    assert larger(limits, used, more) == expected


def test_an_extension_must_hold_the_visits_that_were_come_to():
    with pytest.raises(InvalidState, match="3 more iterations at least"):
        larger({"iterations": 2}, {"iterations": 5}, {"iterations": 2})


@pytest.mark.parametrize(
    "more",
    [{"calls": 1}, {"attempts": 1}, {"tool_calls": 0}, {"tool_calls": "3"}, {"cost_usd": "NaN"}, {"cost_usd": True}],
)
def test_what_is_no_more_is_refused(more: dict[str, object]):
    with pytest.raises(InvalidState):
        larger({"tool_calls": 1, "cost_usd": "1"}, {}, more)


def test_money_is_found_however_deep_and_summed_by_currency():
    euro = {"amount_minor": 1250, "currency": "EUR"}
    arguments = {"a": euro, "b": [{"c": euro}, {"amount_minor": 5, "currency": "USD"}], "d": {"amount_minor": "x"}}

    assert sums(money_in(arguments)) == (Money(2500, "EUR"), Money(5, "USD"))
    assert sums(money_in({"amount_minor": "x", "currency": "EUR"})) == ()
