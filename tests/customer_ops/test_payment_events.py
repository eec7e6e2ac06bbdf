"""How the payment provider's events are read: Stripe's types and forms, and what is none of our business."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from customer_ops.effects import refund_payment
from customer_ops.gateways.payment_events import read_refund_event
from customer_ops.gateways.payments import RefundReceipt
from durableflows import EventOutcome, EventReading, InvalidState, Money
from tests.support.desk import usd

REFUND: dict[str, Any] = {
    "id": "re_1", "object": "refund", "status": "succeeded", "charge": "ch_1", "amount": 500, "currency": "usd",
    "created": 1_700_000_000, "metadata": {"durableflows_key": "df_1", "durableflows_run": "x"}, "reason": None,
}  # fmt: skip


def event(kind: str, **changed: Any) -> dict[str, Any]:
    return {
        "id": "evt_1",
        "object": "event",
        "type": kind,
        "created": 1_700_000_060,
        "data": {"object": {**REFUND, **changed}},
    }


def read(kind: str = "refund.updated", **changed: Any) -> EventReading:
    reading = read_refund_event(event(kind, **changed))
    assert reading is not None
    return reading


def test_the_effect_reads_events() -> None:
    assert refund_payment.event is read_refund_event


@pytest.mark.parametrize("kind", ["refund.created", "refund.updated", "refund.failed", "charge.refund.updated"])
def test_a_refund_is_read_whole(kind: str) -> None:
    reading = read(kind)

    assert (reading.outcome, reading.key, reading.reference) == (EventOutcome.HAPPENED, "df_1", "re_1")
    assert reading.receipt == RefundReceipt(id="re_1", status="succeeded", charge_id="ch_1", amount=usd("5.00"))
    assert reading.facts == {"charge_id": "ch_1", "amount": usd("5.00")}
    assert reading.at == datetime.fromtimestamp(1_700_000_060, UTC), "the event's time, not the refund's"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("succeeded", EventOutcome.HAPPENED),
        ("pending", EventOutcome.PENDING),
        ("requires_action", EventOutcome.PENDING),
        ("failed", EventOutcome.FAILED),
        ("canceled", EventOutcome.FAILED),
    ],
)
def test_its_status_counts_and_not_the_event_s_type(status: str, outcome: EventOutcome) -> None:
    """`refund.updated` tells of successes and of failures."""
    assert read(status=status).outcome is outcome


def test_a_failure_says_why() -> None:
    assert read("refund.failed", status="failed", failure_reason="lost_or_stolen_card").reason == "lost_or_stolen_card"
    assert read("refund.updated", status="canceled").reason == "canceled"


@pytest.mark.parametrize("metadata", [None, {}, {"other": "x"}])
def test_a_refund_without_our_key_has_the_provider_s_name(metadata: Any) -> None:
    """One that somebody made in the dashboard, or whose metadata somebody has emptied."""
    assert (read(metadata=metadata).key, read(metadata=metadata).reference) == ("", "re_1")


def test_a_charge_tells_of_its_newest_refund() -> None:
    older, newer = {**REFUND, "id": "re_0", "created": 1}, {**REFUND, "id": "re_9", "created": 2}
    charge = {"id": "ch_1", "object": "charge", "refunds": {"object": "list", "data": [older, newer]}}

    reading = read_refund_event({**event("charge.refunded"), "data": {"object": charge}})

    assert reading is not None
    assert reading.reference == "re_9"


@pytest.mark.parametrize("refunds", [None, {"object": "list", "data": []}])
def test_a_charge_without_refunds_in_it_is_about_no_effect(refunds: Any) -> None:
    """Newer versions of the API leave them out, and send `refund.created` besides."""
    charge = {"id": "ch_1", "object": "charge", "refunds": refunds}

    assert read_refund_event({**event("charge.refunded"), "data": {"object": charge}}) is None


@pytest.mark.parametrize("kind", ["charge.succeeded", "payout.paid", "refund.something_new", "balance.available"])
def test_other_events_are_about_no_effect(kind: str) -> None:
    assert read_refund_event(event(kind)) is None


@pytest.mark.parametrize(
    "changed", [{"amount": "500"}, {"amount": 5.0}, {"status": "unheard of"}, {"charge": None}, {"id": None}]
)
def test_what_is_not_of_the_known_form_is_not_guessed_at(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(**changed)


def test_an_unknown_currency_is_not_guessed_at() -> None:
    with pytest.raises(InvalidState):
        read(currency="zzz")


@pytest.mark.parametrize(("currency", "minor"), [("jpy", 500), ("kwd", 500), ("usd", 500)])
def test_minor_units_are_those_of_the_currency(currency: str, minor: int) -> None:
    """R18."""
    assert read(currency=currency).facts["amount"] == Money(minor, currency.upper())
