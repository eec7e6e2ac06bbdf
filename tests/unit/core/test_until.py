"""Until when people may answer: by the clock on a wall, over week-ends and changes of summer time."""

from datetime import UTC, datetime, time, timedelta
from typing import Any, cast

import pytest

from durableflows import InvalidDefinition, Until
from durableflows.core import until

FRIDAY_NOON = datetime(2026, 1, 2, 11, 0, tzinfo=UTC)  # 12:00 in Berlin
BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expires", "now", "moment"),
    [
        (Until(time(17), zone=BERLIN), FRIDAY_NOON, "2026-01-02 16:00"),
        (Until(time(12), zone=BERLIN), FRIDAY_NOON, "2026-01-03 11:00"),
        (Until(time(9), zone=BERLIN), FRIDAY_NOON, "2026-01-03 08:00"),
        (Until(time(9), days=1, zone=BERLIN), FRIDAY_NOON, "2026-01-03 08:00"),
        (Until(time(9), days=1, zone=BERLIN, workdays_only=True), FRIDAY_NOON, "2026-01-05 08:00"),
        (Until(time(9), days=5, zone=BERLIN, workdays_only=True), FRIDAY_NOON, "2026-01-09 08:00"),
        (Until(time(9), zone=BERLIN, workdays_only=True), utc("2026-01-03 06:00"), "2026-01-05 08:00"),
        (Until(time(9), days=1, zone=BERLIN, workdays_only=True), utc("2026-01-03 06:00"), "2026-01-05 08:00"),
        (Until(time(1), zone="Asia/Tokyo"), utc("2026-01-02 15:30"), "2026-01-02 16:00"),
        (Until(time(23), days=1), utc("2026-12-31 23:30"), "2027-01-01 23:00"),
        # The night in which 02:30 is left out, and the one in which it is there twice.
        (Until(time(2, 30), days=1, zone=BERLIN), utc("2026-03-28 12:00"), "2026-03-29 01:30"),
        (Until(time(2, 30), days=1, zone=BERLIN), utc("2026-10-24 12:00"), "2026-10-25 01:30"),
        (Until(time(2, 30), zone=BERLIN), utc("2026-10-25 00:45"), "2026-10-25 01:30"),
        (Until(time(17), days=3, zone=BERLIN), utc("2026-03-27 12:00"), "2026-03-30 15:00"),
        (Until(time(17), days=3, zone=BERLIN), utc("2026-10-23 12:00"), "2026-10-26 16:00"),
    ],
)
def test_wall_time(expires: Until, now: datetime, moment: str) -> None:
    """R10: seventeen o'clock stays seventeen o'clock, whatever the clocks do meanwhile."""
    assert expires.after(now) == utc(moment)
    assert expires.after(now) > now


@pytest.mark.parametrize("hours", range(0, 24 * 14, 5))
def test_it_is_always_later_and_never_on_a_week_end(hours: int) -> None:
    now = utc("2026-03-23 00:10") + timedelta(hours=hours)

    for days in range(4):
        moment = Until(time(2, 30), days=days, zone=BERLIN, workdays_only=True).after(now)
        assert moment > now
        assert moment.weekday() < 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Until(cast("Any", "17:00")), "a time of day"),
        (lambda: Until(time(17, tzinfo=UTC)), "without a zone"),
        (lambda: Until(time(17), days=-1), "days=-1"),
        (lambda: Until(time(17), days=400), "days=400"),
        (lambda: Until(time(17), days=cast("Any", 1.5)), "days=1.5"),
        (lambda: Until(time(17), zone="Europe/Berlni"), "did you mean 'Europe/Berlin'"),
        (lambda: Until(time(17), zone="../etc/passwd"), "no time zone"),
        (lambda: Until(time(17), zone=""), "no time zone"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(make: Any, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        make()


@pytest.mark.parametrize("expires", [timedelta(hours=3.5), Until(time(17, 30), 2, BERLIN, workdays_only=True)])
def test_it_comes_back_from_a_ladder_as_it_was(expires: timedelta | Until) -> None:
    assert until.load(until.dump(expires)) == expires


def test_reminders_come_after_asking_and_before_the_end() -> None:
    asked, ends = utc("2026-01-05 09:00"), utc("2026-01-08 09:00")
    spans = [timedelta(hours=-4), timedelta(days=1), timedelta(days=4), timedelta(days=-4), timedelta(days=1)]

    assert until.reminders(spans, asked_at=asked, expires_at=ends) == [utc("2026-01-06 09:00"), utc("2026-01-08 05:00")]


def test_it_is_said_in_words() -> None:
    assert (
        until.words(Until(time(17), 2, BERLIN, workdays_only=True))
        == "until 17:00 (Europe/Berlin), 2 working days later"
    )
    assert until.words(Until(time(9), 1)) == "until 09:00 (UTC), 1 day later"
    assert until.words(Until(time(9))) == "until 09:00 (UTC)"
    assert (until.zone_of(Until(time(9), zone=BERLIN)), until.zone_of(timedelta(1))) == (BERLIN, "")
