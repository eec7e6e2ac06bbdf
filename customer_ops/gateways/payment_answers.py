"""What the payment provider answers, read strictly, and what it means in our words.

Owns the receipts and the comparison of an answer with what was asked. Pure; called by `payments` alone.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from customer_ops.gateways.payment_amounts import from_provider
from durableflows import InvalidState, Money, Permanent, UnknownOutcome

METADATA_KEY = "durableflows_key"
OPEN = frozenset({"pending", "requires_action"})
VOID = frozenset({"failed", "canceled"})


class RefundReceipt(BaseModel):
    """What the provider says about a refund."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: str
    status: str
    charge_id: str
    amount: Money

    @property
    def is_open(self) -> bool:
        """Accepted by the provider, neither done nor failed: it may still become either."""
        return self.status in OPEN


class ChargeReceipt(BaseModel):
    """What the provider says about a charge."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: str
    status: str
    amount: Money


class RefundAnswer(BaseModel):
    """The provider's refund object; what we do not use is left out."""

    model_config = ConfigDict(strict=True)

    object: Literal["refund"]
    id: str
    status: Literal["succeeded", "pending", "requires_action", "failed", "canceled"]
    charge: str
    amount: int
    currency: str
    metadata: dict[str, str] | None = None
    failure_reason: str | None = None

    def carries(self, key: str) -> bool:
        """Is this the refund that was made under this key?"""
        return (self.metadata or {}).get(METADATA_KEY) == key


class RefundPage(BaseModel):
    """One page of a list of refunds."""

    model_config = ConfigDict(strict=True)

    object: Literal["list"]
    data: list[RefundAnswer]
    has_more: bool


class ChargeAnswer(BaseModel):
    """The provider's charge object."""

    model_config = ConfigDict(strict=True)

    object: Literal["charge"]
    id: str
    status: str
    amount: int
    currency: str


def judge_refund(answer: RefundAnswer, *, charge_id: str, amount: Money, what: str) -> RefundReceipt:
    """Turn an answer into the receipt of what was asked.

    Raises Permanent for a refund that was made and has failed, so that no money was given back; UnknownOutcome for one
    of another charge, amount or currency: something was done, and it is not what we asked for.
    """
    money = _money(answer.amount, answer.currency, what=what)
    if (answer.charge, money) != (charge_id, amount):
        text = f"{what}: {answer.id} gives {money} of {answer.charge} back, asked was {amount} of {charge_id}"
        raise UnknownOutcome(text, code="other_refund", refund_id=answer.id)
    if answer.status in VOID:
        reason = f": {answer.failure_reason}" if answer.failure_reason else ""
        text = f"{what}: {answer.id} was made and has {answer.status}{reason}"
        raise Permanent(text, code=f"refund_{answer.status}", refund_id=answer.id, reason=answer.failure_reason)
    return RefundReceipt(id=answer.id, status=answer.status, charge_id=answer.charge, amount=money)


def judge_charge(answer: ChargeAnswer, *, amount: Money, what: str) -> ChargeReceipt:
    """Turn an answer into the receipt of what was asked; raises UnknownOutcome for another amount or currency."""
    money = _money(answer.amount, answer.currency, what=what)
    if money != amount:
        raise UnknownOutcome(f"{what}: {answer.id} takes {money}", code="other_charge", charge_id=answer.id)
    return ChargeReceipt(id=answer.id, status=answer.status, amount=money)


def _money(amount: int, currency: str, *, what: str) -> Money:
    try:
        return from_provider(amount, currency)
    except InvalidState as error:
        raise UnknownOutcome(f"{what}: {error}", code="unreadable_answer") from None
