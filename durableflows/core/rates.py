"""How much a provider is given at once: limits as a project declares them, and whether one more send has room.

Pure: counts of the ledger's rows in, a decision out. Waiting is fair: who waits longer goes first, and nobody who has
just come overtakes. Source: design, section 5; specification S3.12.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

REPEATS_WINDOW = timedelta(seconds=10)
"""Of the sends in so long a time, repeats may be a part."""


class HeldFor(StrEnum):
    """Why a step waits for a provider."""

    BREAKER = "breaker"
    RATE = "rate"
    ROOM = "room"
    TURN = "turn"
    REPEATS = "repeats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What `DURABLEFLOWS["PROVIDERS"]` may say of a provider. None: no limit."""

    per_second: int | None = None
    """Sends in any second."""
    per_minute: int | None = None
    """Sends in any minute."""
    at_once: int | None = None
    """Sends that may be under way at a time."""
    failures_in_a_row: int | None = 5
    """After so many failures in a row the provider is left alone; None: only a person stops it."""
    cool_down_seconds: float = 30.0
    """Pause before one request tries whether the provider is back."""
    repeats_share: float = 0.2
    """Repeats, of the first sends of ten seconds; more are put off."""
    repeats_always: int = 50
    """Repeats in ten seconds that are let through in any case."""

    @property
    def is_counted(self) -> bool:
        """Must each send be counted under the provider's lock?"""
        return not (self.per_second is None and self.per_minute is None and self.at_once is None)

    @property
    def rates(self) -> tuple[tuple[int, timedelta], ...]:
        """(sends, in how long), those that are declared."""
        given = ((self.per_second, timedelta(seconds=1)), (self.per_minute, timedelta(minutes=1)))
        return tuple((count, span) for count, span in given if count is not None)


_WHOLE = frozenset({"per_second", "per_minute", "at_once", "failures_in_a_row"})


def problems(given: object) -> list[str]:
    """Say in words what is wrong with one provider's limits."""
    if not isinstance(given, Mapping):
        return ["its value should be a dict of limits"]
    known = {one.name for one in fields(Limits)}
    found = [f"{name!r} is no limit; there are {', '.join(sorted(known))}" for name in given if name not in known]
    return found + [text for name in known if name in given and (text := _problem(name, given[name]))]


def _problem(name: str, value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _WHOLE:
        fits = value is None or (is_number and isinstance(value, int) and value > 0)
        return "" if fits else f"{name!r} is {value!r}, it should be a whole number above 0, or None for no limit"
    if name == "repeats_always":
        fits = is_number and isinstance(value, int) and value >= 0
        return "" if fits else f"{name!r} is {value!r}, it should be a whole number from 0"
    fits = is_number and value >= 0 and (value > 0 or name == "repeats_share")
    return "" if fits else f"{name!r} is {value!r}, it should be a number above 0"


def deciding_place(count: int, ahead: int) -> int | None:
    """Which of the newest sends decides whether one more fits, 0 for the newest. None: those ahead take every place."""
    return count - ahead - 1 if ahead < count else None


def rate_full_until(
    count: int, span: timedelta, ahead: int, deciding: datetime | None, now: datetime
) -> datetime | None:
    """Until when one more send would be too many in the span. None: it fits.

    ahead      how many wait longer, and go first
    deciding   when the send at `deciding_place` began; None: there were not so many
    """
    if ahead >= count:
        return now + span * (ahead // count)
    is_full = deciding is not None and deciding > now - span
    return deciding + span if deciding is not None and is_full else None


def repeats_left(limits: Limits, firsts: int, repeats: int) -> int:
    """How many repeats are let through now. firsts, repeats: the sends of the last REPEATS_WINDOW."""
    return max(0, limits.repeats_always + int(limits.repeats_share * firsts) - repeats)


def places_left(limits: Limits, under_way: int, sent: Sequence[int], most: int) -> int:
    """How many sends fit now, `most` at most. sent: how many there were in the span of each of `limits.rates`."""
    left = [count - there for (count, _), there in zip(limits.rates, sent, strict=True)]
    if limits.at_once is not None:
        left.append(limits.at_once - under_way)
    return max(0, min(most, *left)) if left else most


@dataclass(frozen=True, slots=True)
class Waiter:
    """A step that waits for the provider. `is_due`: it was told to go on, and is on its way."""

    step_id: UUID
    held_for: HeldFor
    key: str
    is_due: bool


def next_in_line(waiters: Sequence[Waiter], places: int, repeats: int, busy_keys: Collection[str]) -> tuple[UUID, ...]:
    """Say who goes on now, those who wait longest first.

    places   sends that fit; repeats: those of them that may be repeats. Who is due already takes a place
    """
    taken, chosen = set(busy_keys), []
    for one in waiters:
        if one.key and one.key in taken:
            continue
        if one.held_for is HeldFor.REPEATS:
            if repeats <= 0:
                continue
            repeats -= 1
        if places <= 0:
            break
        places -= 1
        taken.add(one.key)
        if not one.is_due:
            chosen.append(one.step_id)
    return tuple(chosen)
