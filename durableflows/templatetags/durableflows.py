"""Template filters: `{{ order.total|money }}`. Owns display of values; pages of the engine and of others load it."""

from django import template

from durableflows.core.money import Money

register = template.Library()

NON_BREAKING_SPACE = "\u00a0"


@register.filter
def money(value: object) -> str:
    """Show Money as people read it: "$1,234.50"; nothing for None. Takes {"amount_minor", "currency"} as well."""
    if isinstance(value, Money):
        return value.display.replace(" ", NON_BREAKING_SPACE)
    if isinstance(value, dict) and value.keys() == {"amount_minor", "currency"}:
        return money(Money(**value))
    return "" if value is None else str(value)
