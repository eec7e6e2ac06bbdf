"""The actions outside that must not be repeated by accident: money back to a card, a mail to a customer.

Used by the steps in `workflows` through `run.effect`. The services behind them are in `gateways`.
"""

import logging
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError

from customer_ops import mails
from customer_ops.gateways import mail as mail_gateway
from customer_ops.gateways import payments
from customer_ops.gateways.mail import MailReceipt
from customer_ops.gateways.payments import RefundReceipt
from durableflows import EffectCall, Money, effect

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
)
def refund_payment(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    """Give money of a charge back, once for each key."""
    return payments.refund(call, charge_id=charge_id, amount=amount)


# No lookup and no key window: a mail server knows neither. What is in doubt here is for a person.
@effect(name="mail.send", provider="mail", receipt=MailReceipt)
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
