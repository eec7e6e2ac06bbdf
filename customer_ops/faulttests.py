"""The stories in which `manage.py durableflows faulttest refund` plays the refund: below the limit, and above it.

Made-up rows, in a test database, rolled back. The receipts of the provider, the mail server and the help desk are
made here, too.
"""

import uuid
from typing import Any

from django.contrib.auth.models import Permission, User

from customer_ops import services
from customer_ops.gateways.mail import MailReceipt, message_id_of
from customer_ops.gateways.payment_amounts import to_provider
from customer_ops.gateways.payment_answers import METADATA_KEY
from customer_ops.gateways.payments import RefundReceipt
from customer_ops.gateways.tickets import TicketReceipt
from customer_ops.models import Charge, Customer, Order, RefundRequest, RefundState
from customer_ops.workflows import Refund
from durableflows import EffectCall, Money
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import scenario


def refund_receipt(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    """What the payment provider says when the money is on its way back."""
    return RefundReceipt(id=f"re_{call.key[-12:]}", status="succeeded", charge_id=charge_id, amount=amount)


def pending_receipt(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    """What it says as long as its bank has not agreed."""
    return RefundReceipt(id=f"re_{call.key[-12:]}", status="pending", charge_id=charge_id, amount=amount)


def refund_event(call: EffectCall, *, receipt: RefundReceipt, charge_id: str, amount: Money) -> dict[str, Any]:
    """What the payment provider tells on its own of a refund."""
    told = {
        "id": receipt.id,
        "object": "refund",
        "status": receipt.status,
        "charge": charge_id,
        "amount": to_provider(amount),
        "currency": amount.currency.lower(),
        "metadata": {METADATA_KEY: call.key},
    }
    return {"type": "refund.updated", "created": 1_700_000_000, "data": {"object": told}}


def mail_receipt(call: EffectCall, *, template: str, request_id: int) -> MailReceipt:
    """What the mail server says."""
    return MailReceipt(message_id=message_id_of(call))


def ticket_receipt(call: EffectCall, *, about: str, request_id: int) -> TicketReceipt:
    """What the help desk says."""
    return TicketReceipt(id=f"tk_{call.key[-12:]}")


def money_agrees(run: WorkflowRun) -> None:
    """At the end our own row says REFUNDED exactly when the provider has paid."""
    if run.ended_at is None:
        return
    request = RefundRequest.objects.get(run_id=run.pk)
    paid = SideEffect.objects.filter(run=run, effect="payments.refund", state="CONFIRMED").exists()
    assert (request.state == RefundState.REFUNDED) == paid, f"the request is {request.state}, and paid is {paid}"


OPTIONS: dict[str, Any] = {
    "receipts": {"payments.refund": refund_receipt, "mail.send": mail_receipt, "tickets.create": ticket_receipt},
    "pending": {"payments.refund": pending_receipt},
    "events": {"payments.refund": refund_event},
    "check": money_agrees,
}


@scenario(Refund, **OPTIONS)
def refund_below_limit() -> object:
    """An agent asks for five dollars; nobody is asked."""
    return _ask(Money(500, "USD"))


@scenario(Refund, **OPTIONS)
def refund_above_limit() -> object:
    """An agent asks for eight hundred dollars, and a manager decides."""
    return _ask(Money(80_000, "USD"))


def _ask(amount: Money) -> object:
    """The rows of one order; and a function that asks for the refund as the order's page does."""
    agent = User.objects.create_user("faulttest-agent")
    agent.user_permissions.add(Permission.objects.get(codename="request_refund"))
    agent = User.objects.get(pk=agent.pk)  # with its new right
    customer = Customer.objects.create(name="Ada Brown", email="ada@example.test")
    order = Order(number="F-1", customer=customer)
    order.total = amount
    order.save()
    charge = Charge(order=order, provider_id="ch_faulttest")
    charge.amount = amount
    charge.save()
    token = uuid.uuid4()  # of the form: whoever sends it again means the same request
    return lambda: services.request_refund(charge.pk, amount, "the lamp is broken", by=agent, form_token=token)
