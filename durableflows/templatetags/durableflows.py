"""Template filters: `{{ order.total|money }}`. Owns display of values; pages of the engine and of others load it."""

from django import template

from durableflows.core.money import Money
from durableflows.errors import InvalidState
from durableflows.explain_words import plain

register = template.Library()

LONGEST_SPELLING = len("⟦U+10FFFF⟧")
NON_BREAKING_SPACE = "\u00a0"


@register.filter
def money(value: object) -> str:
    """Show Money as people read it: "$1,234.50"; nothing for None. Takes {"amount_minor", "currency"} as well."""
    if isinstance(value, Money):
        return value.display.replace(" ", NON_BREAKING_SPACE)
    if isinstance(value, dict) and value.keys() == {"amount_minor", "currency"}:
        return money(Money(**value))
    return "" if value is None else str(value)


@register.filter
def fact(value: object) -> str:
    """Show one stored fact as plain text: money as "USD 600.00", lists and objects in words. Never marks it as safe."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        amount = money_of(value)
        return str(amount) if amount else ", ".join(f"{name}: {fact(item)}" for name, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(fact(item) for item in value) or "–"
    return str(value)


@register.filter
def visible(value: object) -> str:
    """Show a text of others so that it cannot disguise itself: control and direction characters are spelled out.

    Line breaks stay. Never marks it as safe: the page escapes it as any other text.
    """
    lines = ("" if value is None else str(value)).splitlines()
    return "\n".join(plain(line, limit=LONGEST_SPELLING * len(line)) for line in lines)


@register.filter
def label(name: object) -> str:
    """Show a fact's name as people write it: "order_number" -> "Order number"."""
    words = str(name).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def money_of(value: object) -> Money | None:
    """Read Money out of a stored fact; None for anything else, also for what only looks like it."""
    if not isinstance(value, dict) or value.keys() != {"amount_minor", "currency"}:
        return None
    try:
        return Money(value["amount_minor"], value["currency"])
    except (InvalidState, TypeError):
        return None
