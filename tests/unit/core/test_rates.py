"""Limits of a provider, and who of those that wait goes first."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from durableflows.core.rates import (
    HeldFor,
    Limits,
    Waiter,
    deciding_place,
    next_in_line,
    places_left,
    problems,
    rate_full_until,
    repeats_left,
)

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, ""),
        ({"per_second": 50, "per_minute": 1000, "at_once": 10}, ""),
        ({"failures_in_a_row": None, "repeats_always": 0, "repeats_share": 0}, ""),
        ({"cool_down_seconds": 0.5}, ""),
        ({"per_hour": 5}, "'per_hour' is no limit"),
        ({"per_second": 0}, "'per_second' is 0"),
        ({"per_second": True}, "'per_second' is True"),
        ({"at_once": 2.5}, "'at_once' is 2.5"),
        ({"cool_down_seconds": "30"}, "'cool_down_seconds' is '30'"),
        ({"repeats_share": -1}, "'repeats_share' is -1"),
        ({"repeats_always": None}, "'repeats_always' is None"),
        (5, "should be a dict of limits"),
    ],
)
def test_wrong_limits_are_said_in_words(given: object, complaint: str):
    found = problems(given)

    assert (complaint in " ".join(found)) if complaint else not found


def test_nothing_declared_counts_nothing():
    assert not Limits().is_counted
    assert Limits(at_once=1).is_counted
    assert Limits(per_second=5, per_minute=100).rates == ((5, SECOND), (100, MINUTE))


@pytest.mark.parametrize(
    ("ahead", "place", "began_seconds_ago", "waits_seconds"),
    [
        (0, 2, None, None),  # fewer than three sends so far
        (0, 2, 1.0, None),  # the third newest has left the second
        (0, 2, 0.4, 0.6),  # the third newest is inside: its place is free in 0.6 s
        (2, 0, 0.9, 0.1),  # two wait longer and take two places: the newest send decides
        (3, None, None, 1.0),  # all places of this second are taken by those ahead
        (7, None, None, 2.0),
    ],
)
def test_one_more_send_of_three_a_second(
    ahead: int, place: int | None, began_seconds_ago: float | None, waits_seconds: float | None
):
    began = None if began_seconds_ago is None else NOW - timedelta(seconds=began_seconds_ago)

    assert deciding_place(3, ahead) == place
    until = rate_full_until(3, SECOND, ahead, began, NOW)
    assert (until and (until - NOW).total_seconds()) == waits_seconds


def test_repeats_are_a_share_of_first_sends_and_a_few_in_any_case():
    limits = Limits(repeats_share=0.2, repeats_always=10)

    assert repeats_left(limits, firsts=0, repeats=0) == 10
    assert repeats_left(limits, firsts=100, repeats=25) == 5
    assert repeats_left(limits, firsts=100, repeats=40) == 0


def test_the_tightest_limit_leaves_the_places():
    limits = Limits(per_second=10, per_minute=100, at_once=4)

    assert places_left(limits, under_way=1, sent=[2, 50], most=50) == 3
    assert places_left(limits, under_way=1, sent=[9, 50], most=50) == 1
    assert places_left(limits, under_way=9, sent=[0, 0], most=50) == 0
    assert places_left(Limits(), under_way=9, sent=[], most=50) == 50


def waiter(number: int, held_for: HeldFor = HeldFor.ROOM, key: str = "", *, is_due: bool = False) -> Waiter:
    return Waiter(UUID(int=number), held_for, key, is_due)


def chosen(*waiters: Waiter, places: int = 50, repeats: int = 50, busy: set[str] | None = None) -> list[int]:
    return [one.int for one in next_in_line(waiters, places, repeats, busy or set())]


def test_who_waits_longest_goes_first():
    assert chosen(waiter(1), waiter(2), waiter(3), places=2) == [1, 2]


def test_who_is_on_the_way_takes_a_place_and_is_not_told_again():
    assert chosen(waiter(1, is_due=True), waiter(2), waiter(3), places=2) == [2]


def test_one_of_a_key_goes_and_a_busy_key_holds_up_only_its_own():
    line = [waiter(1, key="a"), waiter(2, key="b"), waiter(3, key="b"), waiter(4)]

    assert chosen(*line, busy={"a"}) == [2, 4]


def test_repeats_that_are_put_off_hold_up_no_first_sends():
    line = [waiter(1, HeldFor.REPEATS), waiter(2, HeldFor.REPEATS), waiter(3)]

    assert chosen(*line, repeats=1) == [1, 3]
    assert chosen(*line, repeats=0) == [3]
