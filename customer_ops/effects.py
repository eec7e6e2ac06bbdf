"""The actions outside that must not be repeated by accident: money back to a card, a mail, a ticket.

Used by the steps in `workflows` through `run.effect`. The services behind them are in `gateways`.
"""

import logging
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError
from pydantic import BaseModel, ConfigDict

from customer_ops import mails, tickets
from customer_ops.gateways import mail as mail_gateway
from customer_ops.gateways import payments
from customer_ops.gateways import tickets as tickets_gateway
from customer_ops.gateways.mail import MailReceipt
from customer_ops.gateways.payment_events import read_refund_event
from customer_ops.gateways.payments import RefundReceipt
from customer_ops.gateways.tickets import TicketReceipt
from customer_ops.models import Ticket
from durableflows import CannotTell, EffectCall, Found, Money, NotFound, effect

logger = logging.getLogger(__name__)


@effect(
    name="payments.refund",
    provider="payments",
    receipt=RefundReceipt,
    lookup=payments.find_refund,
    undo=None,
    key_window=timedelta(hours=24),
    # Settings, so that a demo need not wait half a minute after each lost answer.
    settle_seconds=getattr(settings, "PAYMENTS_SETTLE_SECONDS", 30.0),
    timeout_seconds=getattr(settings, "PAYMENTS_TIMEOUT_SECONDS", 10.0),
    accepted=lambda receipt: receipt.is_open,
    accepted_within=timedelta(days=10),
    event=read_refund_event,
)
def refund_payment(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    """Give money of a charge back, once for each key."""
    return payments.refund(call, charge_id=charge_id, amount=amount)


# A mail server cannot be asked and knows no keys. What is in doubt is for a person, unless the project would rather
# have a second mail than none: then it is sent again within this time, under the Message-ID of the first.
MAIL_RESEND = timedelta(hours=getattr(settings, "MAIL_RESEND_HOURS", 0)) or None


@effect(
    name="mail.send",
    provider="mail",
    receipt=MailReceipt,
    key_window=MAIL_RESEND,
    left_to_person=MAIL_RESEND is None,
)
def send_mail(call: EffectCall, *, template: str, request_id: int) -> MailReceipt:
    """Tell the customer of a refund request how it ended."""
    mail = mails.compose(template, request_id=request_id, message_id=mail_gateway.message_id_of(call))
    receipt = mail_gateway.send(call, to=mail.to, subject=mail.subject, body=mail.body)
    try:
        mails.mark_sent(mail)
    except DatabaseError:
        # The mail is sent and the receipt says so; the desk's own list may lag behind.
        logger.warning("mail %s is sent, and could not be marked so", mail.message_id)
    return receipt


class CustomerReceipt(BaseModel):
    """Whose record was changed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    customer_id: int


# In the engine's own database: the change, its row in the ledger and its receipt commit together, so it is never in
# doubt, and a repeated attempt changes nothing.
@effect(name="customers.give_address_up", provider="desk", receipt=CustomerReceipt, transactional=True)
def give_address_up(call: EffectCall, *, request_id: int) -> CustomerReceipt:
    """Note in the customer's record that mail does not reach the address."""
    return CustomerReceipt(customer_id=mails.give_address_up(request_id))


TICKETS_SETTLE_SECONDS: float = getattr(settings, "TICKETS_SETTLE_SECONDS", 90.0)


def find_ticket(call: EffectCall, *, about: str, request_id: int) -> Found[TicketReceipt] | NotFound | CannotTell:
    """Find out whether a ticket was opened: at the help desk, or in the desk's own list where there is none."""
    client = tickets_gateway.configured_client()
    if client is not None:
        answer = client.find(call, most_lag_seconds=TICKETS_SETTLE_SECONDS)
        if isinstance(answer, Found):
            _note_ticket(call, answer.receipt)
        return answer
    ticket = tickets.find(call.key)
    return Found(_own(ticket)) if ticket else NotFound()


@effect(
    name="tickets.create",
    provider="tickets",
    receipt=TicketReceipt,
    lookup=find_ticket,
    key_window=timedelta(hours=2),
    # The help desk's search is behind by up to a minute; less is found only by the token.
    settle_seconds=TICKETS_SETTLE_SECONDS,
    timeout_seconds=getattr(settings, "TICKETS_TIMEOUT_SECONDS", 10.0),
)
def open_ticket(call: EffectCall, *, about: str, request_id: int) -> TicketReceipt:
    """Put a refund request before an agent, once for each key. about: a name of `tickets.TEXTS`."""
    ticket = tickets.compose(about, request_id=request_id, token=call.key)
    client = tickets_gateway.configured_client()
    if client is None:
        return _own(ticket)
    receipt = client.create(call, requester=ticket.customer.email, subject=ticket.subject, body=ticket.body)
    _note_ticket(call, receipt)
    return receipt


def _own(ticket: Ticket) -> TicketReceipt:
    return TicketReceipt(id=f"desk-{ticket.pk}")


def _note_ticket(call: EffectCall, receipt: TicketReceipt) -> None:
    try:
        tickets.mark_opened(call.key, receipt.id)
    except DatabaseError:
        # The receipt says that it is opened; the desk's own list may lag behind.
        logger.warning("ticket %s is opened, and the desk's list could not say so", receipt.id)
