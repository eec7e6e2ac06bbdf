"""Counters against declared limits. Charged before the work starts (P7)."""

from collections.abc import Mapping
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


def pinned(budget: Budget) -> dict[str, JSON]:
    """The limits as the run keeps them, so that an operator can extend them for one run."""
    values: dict[str, JSON] = {}
    for name in COUNTERS:
        limit = getattr(budget, name)
        if limit is not None:
            values[name] = str(limit) if name == "cost_usd" else int(limit)
    return values


def is_used_up(limits: Mapping[str, JSON], name: str, used: int | Decimal) -> bool:
    """Would one more exceed the limit?"""
    limit = limits.get(name)
    return limit is not None and used >= Decimal(str(limit))
