"""What may stand behind an option of `manage.py durableflows`: texts in, values out, or a message that says what fits.

Called by `argparse` alone. Reads no row.
"""

import json
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from durableflows.explain_words import plain

LONGEST_SPAN = timedelta(days=36525)
LONGEST_NUMBER = 18
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span_or_moment(text: str) -> timedelta | datetime:
    """90m, 36h, 3d, 2w, or a moment; one without a time zone is in the project's."""
    if text.isascii() and text[:-1].isdigit() and text[-1:] in UNITS and len(text) < 8:
        span = timedelta(**{UNITS[text[-1]]: int(text[:-1])})
        if span > LONGEST_SPAN:
            raise ArgumentTypeError(f"{plain(text, 40)!r} is longer than a hundred years")
        return span
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else timezone.make_aware(moment)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{plain(text, 40)!r} is neither 90m, 36h, 3d, 2w nor 2030-01-31T12:00Z") from None


def more_budget(text: str) -> tuple[str, object]:
    """NAME=MORE; idle also as a span."""
    name, _, more = text.partition("=")
    if name == "idle" and more[-1:] in UNITS and isinstance(span := span_or_moment(more), timedelta):
        return name, span
    try:
        number = Decimal(more)
    except InvalidOperation:
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not NAME=MORE, such as tool_calls=5") from None
    is_short = number.is_finite() and number.adjusted() < LONGEST_NUMBER  # a larger one is refused as it is
    return name, int(number) if is_short and number == number.to_integral_value() else number


def count(text: str) -> int:
    """A whole number from 0."""
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not a whole number from 0")
    return int(text[:18])


def limit(text: str) -> int:
    """1 to 1000."""
    if not 1 <= (number := count(text)) <= 1000:
        raise ArgumentTypeError(f"{number} is not between 1 and 1000")
    return number


def many(text: str) -> int:
    """1 to 1000000."""
    if not 1 <= (number := count(text)) <= 1_000_000:
        raise ArgumentTypeError(f"{number} is not between 1 and 1000000")
    return number


def json_value(text: str) -> Any:
    """Any JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"this is not JSON: {error}") from None


def field(text: str) -> tuple[str, Any]:
    """NAME=JSON."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise ArgumentTypeError(f"{plain(text, 40)!r} is not NAME=JSON, such as amount=5")
    try:
        return name, json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{name}: this is not JSON, and text needs quotes, name='\"Ada\"': {error}") from None


def receipt(text: str) -> Any:
    """Any JSON that says something: an effect's receipt is mostly an object, and may be a text."""
    value = json_value(text)
    if value in (None, "", [], {}):
        raise ArgumentTypeError('a receipt says something, as the effect would give it: {"id": "re_17"}, or "re_17"')
    return value


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
