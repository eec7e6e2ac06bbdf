"""Reads the Retry-After header, in both of its forms. Pure; any gateway may use it.

Source: RFC 9110, section 10.2.3: a number of seconds or an HTTP date.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def parse_retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return for how many seconds the server asks to be left alone; None when it does not say, or says a past time.

    Shapes and units   headers: case-insensitive; now: aware, used only when the answer has no Date of its own
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
        seconds = float(value)
    else:
        until = _date(value)
        # Against the server's own clock: ours may be wrong, and an early retry is what the header forbids.
        seconds = (until - (_date(headers.get("date", "")) or now)).total_seconds() if until else 0.0
    return seconds if seconds > 0 else None


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
