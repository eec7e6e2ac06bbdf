"""Reads the Retry-After header, in both of its forms. Pure; adapters and `core.http_answers` use it.

Source: RFC 9110, section 10.2.3: a number of seconds or an HTTP date; R11.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 100 * 365 * 24 * 3600.0
"""What is longer than a hundred years is taken for a hundred years: dates end, and so does every run before that."""
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return for how many seconds the server asks to be left alone; None when it does not say, or says a past time.

    A date is judged against the answer's own Date, for our clock may be wrong and an early retry is what the header
    forbids. Only an answer without one is judged against `now`: aware, by default this machine's clock. Malformed and
    negative values say nothing. What it asks for is never shortened: the run's deadline alone ends the wait.
    """
    value = header(headers, "retry-after")
    numbers = [part.strip() for part in value.split(",")]  # a header that came twice arrives as one
    if all(_SECONDS.fullmatch(number) for number in numbers):
        seconds = max(float(number) for number in numbers)
    else:
        until = _date(value)
        reference = _date(header(headers, "date")) or now or datetime.now(UTC)
        seconds = (until - reference).total_seconds() if until else 0.0
    return min(seconds, LONGEST_SECONDS) if seconds > 0 else None


def header(headers: Mapping[str, str], name: str) -> str:
    """Give a header's value whatever letters its name has; "" for none. `name`: in small letters."""
    for key, value in headers.items():
        if str(key).lower() == name:
            return str(value).strip()
    return ""


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
