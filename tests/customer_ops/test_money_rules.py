"""No cent is made or lost: in the provider's units, in parts of a charge, in any order of asking and ending (R18)."""

import random
import uuid

import pytest
from django.contrib.auth.models import User
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_ops import selectors, services
from customer_ops.errors import MoreThanLeft
from customer_ops.gateways.payment_amounts import from_provider, to_provider
from customer_ops.models import Charge, RefundRequest, RefundState
from customer_ops.sandbox.currencies import SUPPORTED
from durableflows import Money
from durableflows.core.currencies import EXPONENTS
from tests.support.desk import make_agent, make_charge

CURRENCIES = sorted(set(EXPONENTS) & {code.upper() for code in SUPPORTED})

# One major unit, as the provider counts it. Source: Stripe's documentation, "Supported currencies".
WITHOUT_DECIMALS = {
    *("BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"),
}
WITH_THREE = {"BHD", "JOD", "KWD", "OMR", "TND"}
# Sent with two decimals: ISK and UGX although they have none any more; HUF and TWD, of which only payouts are whole.
WITH_TWO = {"ISK", "UGX", "HUF", "TWD", "USD", "EUR"}

currencies = st.sampled_from(CURRENCIES)
amounts = st.integers(min_value=1, max_value=10**15)


def whole(units: int, currency: str) -> Money:
    """An amount without decimals, which every provider can say."""
    return Money(units * 10 ** EXPONENTS[currency], currency)


@pytest.mark.parametrize("currency", CURRENCIES)
def test_one_unit_is_said_as_the_provider_counts(currency: str) -> None:
    said = to_provider(whole(1, currency))

    assert said == (1 if currency in WITHOUT_DECIMALS else 1000 if currency in WITH_THREE else 100)
    assert from_provider(said, currency.lower()) == whole(1, currency)


def test_the_exceptions_are_currencies_that_are_compared_above() -> None:
    assert set(CURRENCIES) >= WITHOUT_DECIMALS | WITH_THREE | WITH_TWO


@settings(deadline=None)  # the machine may be busy
@given(currency=currencies, units=amounts)
def test_an_amount_comes_back_as_it_was_sent(currency: str, units: int) -> None:
    assert from_provider(to_provider(whole(units, currency)), currency.lower()) == whole(units, currency)


@settings(deadline=None)  # the machine may be busy
@given(currency=currencies, parts=st.lists(amounts, min_size=1, max_size=12))
def test_parts_add_up_at_the_provider_to_the_whole_and_nothing_more(currency: str, parts: list[int]) -> None:
    total = sum((whole(part, currency) for part in parts), Money.zero(currency))

    assert sum(to_provider(whole(part, currency)) for part in parts) == to_provider(total)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("currency", ["USD", "JPY", "KWD"])
def test_in_any_order_of_asking_and_ending_no_more_than_the_charge_is_promised(
    db: None, seed: int, currency: str
) -> None:
    """What counts never exceeds the charge; a refusal names what is left; and all that is left can be had."""
    rng, agent, charge = random.Random(seed), make_agent(), make_charge(Money(1_000, currency))
    for _ in range(30):
        left = selectors.balance(charge).left
        asked = Money(rng.randint(1, 700), currency)
        refused = _ask(charge, asked, by=agent)
        assert refused == (left if asked > left else None)
        _end_some(rng)
        counted = RefundRequest.objects.filter(state__in=[RefundState.PENDING, RefundState.REFUNDED])
        taken = sum((request.amount for request in counted), Money.zero(currency))
        assert taken + selectors.balance(charge).left == charge.amount
        assert not selectors.balance(charge).left < Money.zero(currency)

    left = selectors.balance(charge).left
    if left.is_positive:
        _ask(charge, left, by=agent)
    assert selectors.balance(charge).left.is_zero


def _ask(charge: Charge, amount: Money, *, by: User) -> Money | None:
    """Ask for a refund; what is said to be left when it is refused."""
    try:
        services.request_refund(charge.pk, amount, "broken", by=by, form_token=uuid.uuid4())
    except MoreThanLeft as refusal:
        return refusal.left
    return None


def _end_some(rng: random.Random) -> None:
    for request in RefundRequest.objects.filter(state=RefundState.PENDING):
        if rng.random() < 0.4:
            ending = rng.choice(["mark_refunded", "mark_rejected", "mark_failed", "mark_withdrawn", "mark_failed"])
            getattr(request, ending)(f"re_{request.pk}")
