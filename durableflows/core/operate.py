"""What operators' verbs compute before anything is written: a later deadline, larger limits, sums of money. Pure.

Source: design, sections 2 (P6, P7) and 8.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from durableflows.core.budget import COUNTERS, IDLE
from durableflows.core.money import LARGEST_MINOR, Money
from durableflows.core.payload import JSON
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidState

LARGEST = 10**9
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""Beyond it lies no moment in some time zones."""


def later(deadline_at: datetime, asked: object, now: datetime) -> datetime:
    """The new deadline. A span is counted from the old deadline, or from now when that has passed.

    Raises InvalidState for what is no span or moment, and for one that would take time away.
    """
    if isinstance(asked, timedelta):
        if asked <= timedelta(0):
            raise InvalidState("deadline: more time is longer than nothing")
        try:
            return _sensible(max(deadline_at, now) + asked)
        except OverflowError:
            raise InvalidState(f"deadline: {asked} from now is no date any more") from None
    if not isinstance(asked, datetime) or asked.tzinfo is None:
        raise InvalidState("deadline: give a timedelta, or a datetime with a time zone")
    if asked <= max(deadline_at, now):
        raise InvalidState(f"deadline: {_utc(asked)} is not later than {_utc(max(deadline_at, now))} (UTC)")
    return _sensible(asked)


def _sensible(deadline_at: datetime) -> datetime:
    if deadline_at > LATEST:
        raise InvalidState(f"deadline: the year {deadline_at.year} is too far: no page could show it")
    return deadline_at


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def larger(
    limits: Mapping[str, JSON], used: Mapping[str, int | Decimal], more: Mapping[str, object]
) -> dict[str, JSON]:
    """The new limits: each named one gets so much more. `used`: what the run has used of each.

    Raises InvalidState for unknown names, limits that the run does not have, and amounts that are nothing
    """
    new = dict(limits)
    for name, amount in more.items():
        key = IDLE if name == "idle" else name
        if key not in (*COUNTERS, IDLE):
            known = (*COUNTERS, "idle")
            raise InvalidState(f"budget: there is no limit {name!r}{did_you_mean(name, known)}: {', '.join(known)}")
        if key not in limits:
            raise InvalidState(f"budget: this run has no limit of {name}: there is nothing to extend")
        new[key] = _more(key, Decimal(str(limits[key])), used.get(key, 0), amount)
    return new


def _more(name: str, limit: Decimal, used: int | Decimal, amount: object) -> JSON:
    if name == IDLE:
        seconds = amount.total_seconds() if isinstance(amount, timedelta) else _number(name, amount)
        if seconds <= 0:
            raise InvalidState("budget: more idle time is longer than nothing")
        return float(limit) + float(seconds)
    if name == "cost_usd":
        return str(max(limit, Decimal(used)) + _number(name, amount))
    if type(amount) is not int:
        raise InvalidState(f"budget: {name} is a whole number, not {amount!r}")
    if name == "iterations":  # the visit that was refused is counted already, and must fit in
        reached = limit + _number(name, amount)
        if reached < used:
            raise InvalidState(f"budget: {int(used - limit)} more iterations at least: so many were come to already")
        return int(reached)
    return int(max(limit, Decimal(used)) + _number(name, amount))


def _number(name: str, amount: object) -> Decimal:
    try:
        number = Decimal(str(amount)) if not isinstance(amount, bool) else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 < number <= LARGEST:
        raise InvalidState(f"budget: {name} gets more than nothing, at most {LARGEST}, not {amount!r}")
    return number


def money_in(value: object) -> Iterator[Money]:
    """Each amount of money in stored arguments, however deep."""
    if isinstance(value, Mapping):
        if value.keys() == {"amount_minor", "currency"}:
            try:
                yield Money(value["amount_minor"], value["currency"])
            except (InvalidState, TypeError):
                return
            return
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from money_in(item)


def sums(amounts: Iterable[Money]) -> tuple[Money, ...]:
    """One sum for each currency, in the order of their names; in parts where it is more than Money holds."""
    totals: dict[str, int] = {}
    for amount in amounts:
        totals[amount.currency] = totals.get(amount.currency, 0) + amount.amount_minor
    return tuple(Money(part, currency) for currency, minor in sorted(totals.items()) for part in _parts(minor))


def _parts(minor: int) -> Iterator[int]:
    while abs(minor) > LARGEST_MINOR:
        part = LARGEST_MINOR if minor > 0 else -LARGEST_MINOR
        yield part
        minor -= part
    yield minor
