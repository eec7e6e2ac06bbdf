"""Which refunds a manager must sign off: neither splitting nor another currency dodges the limit (R19)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User

from customer_ops import limits, policies
from customer_ops.models import RefundRequest, RefundState
from customer_ops.workflows import RefundState as State
from durableflows import Money, NeedsHuman, Run
from tests.support.desk import make_agent, make_charge, make_order, make_request, usd

LARGE = usd("5000.00")


def run_of(request: RefundRequest, **changes: Any) -> Run[State]:
    """A run as policies see it."""
    state = State(request_id=request.pk, charge_id=request.charge.provider_id, amount=request.amount)
    return cast(Run[State], SimpleNamespace(state=state.model_copy(update=changes)))


@pytest.mark.parametrize(
    ("amount", "asks"),
    [
        (usd("0.01"), False),
        (usd("499.99"), False),
        (usd("500.00"), False),
        (usd("500.01"), True),
        (Money(60_000, "JPY"), True),
        (Money(1, "JPY"), True),
        (Money(49_900, "EUR"), True),
        (Money(400_000, "KWD"), True),
    ],
    ids=str,
)
def test_above_the_limit_or_without_a_rate_a_manager_is_asked(db: None, amount: Money, asks: bool) -> None:
    """S1.11."""
    assert policies.needs_sign_off(make_request(amount)) is asks


@pytest.mark.parametrize(
    ("amount", "asks"),
    [
        (Money(60_000, "JPY"), False),  # 400 dollars
        (Money(75_000, "JPY"), False),  # 500 dollars
        (Money(75_001, "JPY"), True),
        (Money(46_296, "EUR"), False),  # 499.9968 dollars
        (Money(46_297, "EUR"), True),  # 500.0076 dollars
        (Money(400_000, "KWD"), True),
    ],
    ids=str,
)
def test_other_currencies_are_compared_through_configured_rates(
    db: None, settings: LazySettings, amount: Money, asks: bool
) -> None:
    settings.REFUND_RATES = {"JPY": "0.00666666666666666666", "EUR": "1.08"}

    assert policies.needs_sign_off(make_request(amount)) is asks


def test_a_currency_may_have_a_limit_of_its_own(db: None, settings: LazySettings) -> None:
    settings.REFUND_LIMITS_MINOR = {"USD": 50_000, "EUR": 45_000}

    assert not policies.needs_sign_off(make_request(Money(45_000, "EUR")))
    assert policies.needs_sign_off(make_request(Money(45_001, "EUR")))


@pytest.mark.parametrize("state", [RefundState.PENDING, RefundState.REFUNDED])
def test_the_second_part_of_a_split_refund_is_asked_for(db: None, state: RefundState) -> None:
    charge = make_charge(LARGE)
    make_request(usd("300.00"), charge=charge, state=state, hours_ago=2)

    second = make_request(usd("300.00"), charge=charge)

    rule = limits.rule_that_asks(second)
    assert rule == "more than $500.00 for one order within 24 hours, in 2 refunds"


def test_a_split_over_two_charges_of_one_order_is_asked_for(db: None) -> None:
    order = make_order(LARGE)
    make_request(usd("300.00"), charge=make_charge(LARGE, order=order))

    assert policies.needs_sign_off(make_request(usd("300.00"), charge=make_charge(LARGE, order=order)))


def test_whoever_was_committed_first_one_of_two_at_once_is_asked_for(db: None) -> None:
    charge = make_charge(LARGE)
    first, second = (make_request(usd("300.00"), charge=charge) for _ in range(2))

    assert policies.needs_sign_off(first)
    assert policies.needs_sign_off(second)


@pytest.mark.parametrize("state", [RefundState.REJECTED, RefundState.FAILED])
def test_what_was_not_paid_does_not_count(db: None, state: RefundState) -> None:
    charge = make_charge(LARGE)
    make_request(usd("300.00"), charge=charge, state=state)

    assert not policies.needs_sign_off(make_request(usd("300.00"), charge=charge))


def test_neither_other_orders_nor_older_refunds_count(db: None, settings: LazySettings) -> None:
    charge = make_charge(LARGE)
    make_request(usd("300.00"))
    make_request(usd("300.00"), charge=charge, state=RefundState.REFUNDED, hours_ago=25)
    request = make_request(usd("300.00"), charge=charge)

    assert not policies.needs_sign_off(request)

    settings.REFUND_WINDOW_SECONDS = 48 * 3600
    assert policies.needs_sign_off(request)


@pytest.mark.parametrize("hours", [25, 500])
def test_what_is_open_counts_however_long_ago_it_was_asked_for(db: None, hours: float) -> None:
    """R19: it waits, or its answer was lost, and it may leave in this hour."""
    charge = make_charge(LARGE)
    make_request(usd("300.00"), charge=charge, hours_ago=hours)

    assert policies.needs_sign_off(make_request(usd("300.00"), charge=charge))


def test_what_was_paid_in_the_window_counts_though_it_was_asked_for_before(db: None) -> None:
    charge = make_charge(LARGE)
    make_request(usd("300.00"), charge=charge, hours_ago=25).mark_refunded("re_1")

    assert policies.needs_sign_off(make_request(usd("300.00"), charge=charge))


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "Infinity", "-0.0", "cheap", ""])
def test_a_rate_that_says_nothing_is_no_rate(db: None, settings: LazySettings, rate: str) -> None:
    """R19: under a rate of nothing any amount would be below the limit."""
    settings.REFUND_RATES = {"JPY": rate}

    rule = limits.rule_that_asks(make_request(Money(1, "JPY")))

    assert rule == "no limit and no exchange rate are set for JPY"


def test_without_a_limit_in_the_currency_of_comparison_a_manager_is_asked(db: None, settings: LazySettings) -> None:
    settings.REFUND_LIMITS_MINOR, settings.REFUND_RATES = {"EUR": 45_000}, {"JPY": "0.0067"}

    assert policies.needs_sign_off(make_request(Money(1, "JPY")))
    assert policies.needs_sign_off(make_request(usd("0.01")))


def test_a_rate_of_any_length_is_compared_exactly(db: None, settings: LazySettings) -> None:
    """500 dollars and a digit at the fortieth place: more than 500."""
    settings.REFUND_RATES = {"JPY": f"0.005{'0' * 40}1"}

    assert policies.needs_sign_off(make_request(Money(100_000, "JPY")))

    settings.REFUND_RATES = {"JPY": "0.005"}
    assert not policies.needs_sign_off(make_request(Money(100_000, "JPY")))


def test_who_decides_reads_by_which_rate_it_is_above_the_limit(db: None, settings: LazySettings) -> None:
    settings.REFUND_RATES = {"JPY": "0.0067"}

    rule = limits.rule_that_asks(make_request(Money(80_000, "JPY")))

    assert rule == "more than $500.00, at 0.0067 USD for 1 JPY"


def test_an_order_refunded_in_two_currencies_is_asked_for(db: None, settings: LazySettings) -> None:
    settings.REFUND_LIMITS_MINOR = {"USD": 50_000, "EUR": 45_000}
    order = make_order(LARGE)
    make_request(Money(100, "EUR"), charge=make_charge(Money(100, "EUR"), order=order))

    rule = limits.rule_that_asks(make_request(usd("1.00"), charge=make_charge(order=order)))
    assert rule == "refunds of one order within 24 hours in several currencies, and no exchange rate for EUR"


def test_facts_bind_what_is_paid_to_whom_and_only_show_the_rest(db: None) -> None:
    order = make_order(LARGE, number="R-7", customer="Ada <b>Brown</b>")
    charge = make_charge(LARGE, order=order, provider_id="ch_7")
    make_request(usd("5.00"), charge=charge, state=RefundState.REFUNDED)
    request = make_request(usd("600.00"), charge=charge)

    facts = policies.refund_facts(run_of(request))

    assert dict(facts.binding) == {
        "amount": usd("600.00"),
        "charge": "ch_7",
        "order": "R-7",
        "customer": f"Ada <b>Brown</b> <{order.customer.email}>",
    }
    assert facts.context["rule"] == "more than $500.00"
    assert facts.context["reason"] == "broken"
    assert "$5.00" in str(facts.context["earlier refunds"])
    facts.dump()


def test_who_decides_sees_what_else_of_the_customer_may_still_be_paid(db: None) -> None:
    """The limit counts open refunds, so a manager is shown them: one whose answer was lost may have been paid."""
    charge = make_charge(LARGE, order=make_order(LARGE, number="R-7"))
    request = make_request(usd("600.00"), charge=charge)
    make_request(usd("4.00"), charge=charge, state=RefundState.REJECTED)
    make_request(usd("7.00"), charge=charge)
    for _one in range(policies.EARLIER_SHOWN):
        make_request(usd("1.00"), charge=charge)

    context = policies.refund_facts(run_of(request)).context

    assert context["earlier refunds"] == []
    told = cast(list[str], context["other refunds not settled yet"])
    assert len([line for line in told if line.startswith("$1.00 of order R-7 on ")]) == policies.EARLIER_SHOWN
    assert told[-1] == "and 1 more"


def test_a_request_does_not_stand_in_its_own_way(db: None) -> None:
    request = make_request(usd("100.00"), charge=make_charge(usd("100.00")), by=make_agent())

    assert policies.still_refundable(run_of(request)) is True


def test_a_request_that_has_ended_is_not_paid(db: None) -> None:
    request = make_request(usd("100.00"), state=RefundState.REJECTED)

    assert policies.still_refundable(run_of(request)) == "the request is rejected already"


def test_a_charge_that_has_less_left_is_not_refunded(db: None) -> None:
    charge = make_charge(usd("100.00"))
    request = make_request(usd("60.00"), charge=charge, by=make_agent())
    make_request(usd("60.00"), charge=charge, state=RefundState.REFUNDED)

    assert policies.still_refundable(run_of(request)) == "the charge has only $40.00 left"


def test_a_request_that_was_changed_is_not_paid(db: None) -> None:
    request = make_request(usd("60.00"), by=make_agent())

    assert policies.still_refundable(run_of(request, amount=usd("50.00"))) == (
        "the request was changed after it was made"
    )


def take_rights(user: User) -> None:
    user.user_permissions.clear()


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def delete(user: User) -> None:
    user.delete()


@pytest.mark.parametrize("lose_right", [take_rights, deactivate, delete])
def test_a_refund_whose_requester_lost_the_right_goes_to_a_person(db: None, lose_right: Callable[[User], None]) -> None:
    """R26, S2.8."""
    agent = make_agent()
    request = make_request(usd("60.00"), by=agent)

    lose_right(agent)

    with pytest.raises(NeedsHuman, match="somebody asked for this refund and has no right"):
        policies.still_refundable(run_of(request))
