"""Above which amount a manager must agree: alone, or with the order's other refunds of the window (R19).

Amounts of two currencies are never compared as bare numbers: only through a configured rate, exactly, and where there
is none a manager is asked. Called by `policies`. Reads rows, writes none.
"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Coalesce

from customer_ops.models import RefundRequest, RefundState
from durableflows import Money

DEFAULT_LIMITS_MINOR = {"USD": 50_000}
DEFAULT_LIMIT_CURRENCY = "USD"
DEFAULT_WINDOW_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class _Rate:
    """What one of `currency` is worth in another, as it was configured."""

    worth: Decimal
    currency: str
    into: str

    def __str__(self) -> str:
        return f"at {self.worth} {self.into} for 1 {self.currency}"


def rule_that_asks(request: RefundRequest) -> str | None:
    """Name the rule by which a manager is asked, in words; None when nobody is.

    Settings   REFUND_LIMITS_MINOR: currency -> most without a sign-off, in minor units; REFUND_LIMIT_CURRENCY: the one
               that others are compared in; REFUND_RATES: currency -> its worth in that one, as text ("1.08");
               REFUND_WINDOW_SECONDS: how far back refunds of the same order count. Open ones count whatever their age
    """
    amount = request.amount
    limit = _limit_for(amount.currency)
    if limit is None:
        return f"no limit and no exchange rate are set for {amount.currency}"
    if _is_over([amount], limit):
        return f"more than {_said(limit, amount.currency)}"
    return _rule_of_order([amount, *_others_of_order(request)], limit)


def _rule_of_order(amounts: list[Money], limit: Money) -> str | None:
    hours = f"{_window() / timedelta(hours=1):g} hours"
    strange = sorted({amount.currency for amount in amounts if _rate(amount.currency, limit.currency) is None})
    if strange:
        return f"refunds of one order within {hours} in several currencies, and no exchange rate for {strange[0]}"
    if _is_over(amounts, limit):
        return f"more than {limit.display} for one order within {hours}, in {len(amounts)} refunds"
    return None


def _said(limit: Money, currency: str) -> str:
    rate = _rate(currency, limit.currency)
    return f"{limit.display}, {rate}" if rate is not None and currency != limit.currency else limit.display


def _others_of_order(request: RefundRequest) -> list[Money]:
    """The amounts of all else that counts for the same order: open, or paid since the window opened."""
    # Later ones count too. Ids and times do not say who committed first: of two that are asked for at the same
    # moment, at least one sees the other. An open one leaves when it leaves, however long ago it was asked for.
    since = request.created_at - _window()
    counts = Q(state=RefundState.PENDING) | Q(state=RefundState.REFUNDED, left_at__gt=since)
    same = RefundRequest.objects.annotate(left_at=Coalesce("ended_at", "created_at")).filter(
        counts, charge__order_id=request.charge.order_id
    )
    return [other.amount for other in same.exclude(pk=request.pk)]


def _window() -> timedelta:
    return timedelta(seconds=getattr(settings, "REFUND_WINDOW_SECONDS", DEFAULT_WINDOW_SECONDS))


def _limit_for(currency: str) -> Money | None:
    """The limit that amounts of this currency are compared with: its own, or the general one through a rate."""
    limits = getattr(settings, "REFUND_LIMITS_MINOR", DEFAULT_LIMITS_MINOR)
    if currency in limits:
        return Money(limits[currency], currency)
    general = getattr(settings, "REFUND_LIMIT_CURRENCY", DEFAULT_LIMIT_CURRENCY)
    if general not in limits or _rate(currency, general) is None:
        return None
    return Money(limits[general], general)


def _is_over(amounts: list[Money], limit: Money) -> bool:
    """Compare a sum with the limit, exactly: a fraction rounds nothing. One without a rate is over it."""
    total = Fraction(0)
    for amount in amounts:
        rate = _rate(amount.currency, limit.currency)
        if rate is None:
            return True
        total += Fraction(amount.amount) * Fraction(rate.worth)
    return total > Fraction(limit.amount)


def _rate(currency: str, into: str) -> _Rate | None:
    if currency == into:
        return _Rate(Decimal(1), currency, into)
    rates = getattr(settings, "REFUND_RATES", {})
    if into != getattr(settings, "REFUND_LIMIT_CURRENCY", DEFAULT_LIMIT_CURRENCY) or currency not in rates:
        return None
    worth = _read(rates[currency])
    return None if worth is None else _Rate(worth, currency, into)


def _read(text: object) -> Decimal | None:
    """A rate, or None for one that says nothing: zero and less would let any amount pass."""
    try:
        worth = Decimal(str(text))
    except InvalidOperation:
        return None
    return worth if worth.is_finite() and worth > 0 else None
