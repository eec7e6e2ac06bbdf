"""Counters against declared limits. Charged before the work starts (P7)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from durableflows.core.definition import Budget
from durableflows.core.payload import JSON

COUNTERS: Mapping[str, str] = {
    "attempts": "attempts_count",
    "tool_calls": "tool_calls_count",
    "model_calls": "model_calls_count",
    "iterations": "iterations_count",
    "cost_usd": "cost_usd",
}
"""Name of a limit -> the run's column that counts it."""

IDLE = "idle_seconds"
"""The limit that no column counts: it is compared with the time of the last change."""


def pinned(budget: Budget) -> dict[str, JSON]:
    """The limits as the run keeps them, so that an operator can extend them for one run."""
    values: dict[str, JSON] = {}
    for name in COUNTERS:
        limit = getattr(budget, name)
        if limit is not None:
            values[name] = str(limit) if name == "cost_usd" else int(limit)
    if budget.idle is not None:
        values[IDLE] = budget.idle.total_seconds()
    return values


def idle_at(limits: Mapping[str, JSON], changed_at: datetime) -> datetime | None:
    """When a run in which nothing happens any more has been idle for too long. None: it may be."""
    seconds = limits.get(IDLE)
    return None if seconds is None else changed_at + timedelta(seconds=float(str(seconds)))


def is_over(limits: Mapping[str, JSON], name: str, used: int | Decimal) -> bool:
    """Does the sum exceed the limit?"""
    limit = limits.get(name)
    return limit is not None and used > Decimal(str(limit))


def is_used_up(limits: Mapping[str, JSON], name: str, used: int | Decimal) -> bool:
    """Would one more exceed the limit?"""
    limit = limits.get(name)
    return limit is not None and used >= Decimal(str(limit))
