"""What the payment provider tells on its own about refunds: Stripe's events -> what the engine is told.

Pure: the reader of the effect `payments.refund`. Knows five types; all others are about no effect of ours.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from customer_ops.gateways.payment_amounts import from_provider
from customer_ops.gateways.payment_answers import METADATA_KEY, OPEN, VOID, RefundAnswer, RefundReceipt
from durableflows import EventOutcome, EventReading

ABOUT_REFUNDS = frozenset({"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"})
ABOUT_CHARGES = frozenset({"charge.refunded"})


class _Refunds(BaseModel):
    model_config = ConfigDict(strict=True)

    object: Literal["list"]
    data: list[dict[str, Any]]


def read_refund_event(body: Mapping[str, Any]) -> EventReading | None:
    """Read an event about a refund. Raises for one that cannot be read: it is kept, and somebody is told."""
    kind, told = body["type"], body["data"]["object"]
    if kind in ABOUT_CHARGES:
        told = _newest_refund(told)
    if told is None or kind not in ABOUT_REFUNDS | ABOUT_CHARGES:
        return None
    return _reading(RefundAnswer.model_validate(told), at=datetime.fromtimestamp(body["created"], UTC))


def _newest_refund(charge: Mapping[str, Any]) -> dict[str, Any] | None:
    """The refund that a charge's event tells of; newer versions of the API leave it out, and send another event."""
    if charge.get("refunds") is None:
        return None
    refunds = _Refunds.model_validate(charge["refunds"]).data
    return max(refunds, key=lambda refund: int(refund["created"]), default=None)


def _reading(refund: RefundAnswer, *, at: datetime) -> EventReading:
    amount = from_provider(refund.amount, refund.currency)
    outcome = EventOutcome.PENDING if refund.status in OPEN else EventOutcome.HAPPENED
    if refund.status in VOID:
        outcome = EventOutcome.FAILED
    return EventReading(
        outcome=outcome,
        key=(refund.metadata or {}).get(METADATA_KEY, ""),
        reference=refund.id,
        receipt=RefundReceipt(id=refund.id, status=refund.status, charge_id=refund.charge, amount=amount),
        facts={"charge_id": refund.charge, "amount": amount},
        reason=refund.failure_reason or (refund.status if outcome is EventOutcome.FAILED else ""),
        at=at,
    )
