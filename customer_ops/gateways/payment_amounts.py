"""Our money <-> the provider's amounts. Owns the table of exceptions; pure.

Amounts pass through in minor units, whatever number of decimals the currency has. The exceptions are where the provider
counts other decimals than ISO 4217. Source: Stripe's documentation, "Supported currencies".
"""

from types import MappingProxyType

from durableflows import Money, Permanent, UnknownOutcome

# Currency -> by how many powers of ten the provider's amounts are larger than minor units.
SHIFTS = MappingProxyType(
    {
        "ISK": 2,  # no decimals since 2024, still sent with two (always 00)
        "UGX": 2,  # the same, for old integrations
        "MGA": -2,  # ISO: two (a fifth, in fact); the provider: none
    }
)


def to_provider(amount: Money) -> int:
    """Give the amount as the provider counts it. Raises Permanent for one that cannot be said there exactly."""
    if not amount.is_positive:
        raise Permanent(f"{amount} cannot be paid: more than nothing is needed", code="amount_not_positive")
    shift = SHIFTS.get(amount.currency, 0)
    if shift >= 0:
        return amount.amount_minor * int(10**shift)
    whole, rest = divmod(amount.amount_minor, int(10**-shift))
    if rest:
        raise Permanent(f"{amount}: the provider takes no decimals in {amount.currency}", code="amount_not_exact")
    return whole


def from_provider(amount: int, currency: str) -> Money:
    """Read an amount of the provider. Raises UnknownOutcome for one that is not a whole number of minor units."""
    code = currency.upper()
    shift = SHIFTS.get(code, 0)
    if shift <= 0:
        return Money(amount * int(10**-shift), code)
    minor, rest = divmod(amount, int(10**shift))
    if rest:
        raise UnknownOutcome(f"the provider says {amount} {currency}, which is no whole number of minor units")
    return Money(minor, code)
