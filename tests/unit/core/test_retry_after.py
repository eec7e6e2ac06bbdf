"""Retry-After in both of its forms, from servers that send nonsense too (R11)."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableflows import parse_retry_after
from durableflows.core.retry_after import LONGEST_SECONDS

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def at(**ahead: float) -> str:
    return format_datetime(NOW + timedelta(**ahead), usegmt=True)


RETRY_AFTER = [
    ("120", 120.0),
    ("1.5", 1.5),
    (" 7 ", 7.0),
    ("007", 7.0),
    ("60, 120", 120.0),
    (at(minutes=10), 600.0),
    ("Sunday, 29-Nov-26 12:10:00 GMT", 600.0),
    ("Sun Nov 29 12:10:00 2026", 600.0),
    ("Sun, 29 Nov 2026 13:10:00 +0100", 600.0),
    (at(days=36_000), 36_000 * 86_400.0),
    (at(minutes=-10), None),
    (at(), None),
    ("Thu, 01 Jan 1970 00:00:00 GMT", None),
    ("999999999999", LONGEST_SECONDS),
    ("9" * 500, LONGEST_SECONDS),
    *((nonsense, None) for nonsense in ("0", "-5", "+5", "soon", "", " ", "NaN", "inf", "1e9", "0x10", "1 2", "12s")),
    *((nonsense, None) for nonsense in ("\u0661\u0662", "120;", "60, soon", "Sun, 32 Nov 2026 12:10:00 GMT", "\x00")),
    ("Sun, 29 Nov 99999 12:10:00 GMT", None),
]


@pytest.mark.parametrize(("value", "seconds"), RETRY_AFTER)
def test_retry_after_is_read_in_both_forms(value: str, seconds: float | None):
    """R11: never shortened; malformed, negative and past values say nothing."""
    assert parse_retry_after({"Retry-After": value}, now=NOW) == seconds


def test_without_the_header_nothing_is_asked_for():
    """R11."""
    assert parse_retry_after({"Date": at()}, now=NOW) is None


@pytest.mark.parametrize("name", ["retry-after", "Retry-After", "RETRY-AFTER"])
def test_names_of_headers_have_no_case(name: str):
    assert parse_retry_after({name: "5"}, now=NOW) == 5.0


def test_a_date_is_measured_by_the_server_s_own_clock():
    """R11: ours may be hours off; the server's own Date says how far ahead it means."""
    headers = {"Retry-After": at(minutes=10), "Date": at()}

    assert parse_retry_after(headers, now=NOW + timedelta(hours=3)) == 600.0
    assert parse_retry_after(headers, now=NOW - timedelta(hours=3)) == 600.0


def test_a_date_in_an_answer_without_one_is_measured_by_this_machine_s_clock():
    ahead = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)

    seconds = parse_retry_after({"Retry-After": ahead, "Date": "not a date"})

    assert seconds is not None
    assert 590 < seconds <= 600


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_a_server_sends_it_never_fails(value: str, date: str):
    """R11."""
    seconds = parse_retry_after({"Retry-After": value, "Date": date}, now=NOW)

    assert seconds is None or 0 < seconds <= LONGEST_SECONDS
