"""The texts of the mails to customers, and the row that keeps each one.

Called by the mail effect. Reads the request at the moment of sending; never sends anything.
"""

from django.db import DatabaseError
from django.template.loader import render_to_string
from django.utils import timezone

from customer_ops.models import Customer, Mail, RefundRequest
from durableflows import NeverSent, Permanent, in_one_line

SUBJECTS = {
    "refunded": "Your refund for order {order}",
    "rejected": "About your refund for order {order}",
    "failed": "Your refund for order {order} is delayed",
}


def compose(template: str, *, request_id: int, message_id: str) -> Mail:
    """Write a mail down before it is sent; the same message id gives the same row, and the text of its first time.

    Raises Permanent for an unknown template or request, NeverSent when the database is away: nothing was sent yet.
    """
    if template not in SUBJECTS:
        raise Permanent(f"there is no mail {template!r}: {', '.join(SUBJECTS)}", code="no_such_mail")
    try:
        return _compose(template, request_id=request_id, message_id=message_id)
    except RefundRequest.DoesNotExist:
        raise Permanent(f"refund request {request_id} does not exist", code="no_such_request") from None
    except DatabaseError as error:
        raise NeverSent(f"the mail could not be written down: {type(error).__name__}", code="database") from error


def mark_sent(mail: Mail) -> None:
    """Record that a server took the mail, so that the address is good."""
    Mail.objects.filter(pk=mail.pk, sent_at=None).update(sent_at=timezone.now())
    Customer.objects.filter(email=mail.to).update(mail_failed_at=None)


def give_address_up(request_id: int) -> int:
    """Write into the customer's record that mail does not reach the address. Returns the customer's id."""
    customer = Customer.objects.get(orders__charges__refund_requests=request_id)
    Customer.objects.filter(pk=customer.pk).update(mail_failed_at=timezone.now())
    return customer.pk


def _compose(template: str, *, request_id: int, message_id: str) -> Mail:
    request = RefundRequest.objects.select_related("charge__order__customer").get(pk=request_id)
    order = request.charge.order
    body = render_to_string(
        f"customer_ops/mails/{template}.txt", {"request": request, "order": order, "customer": order.customer}
    )
    mail, _is_new = Mail.objects.get_or_create(
        message_id=message_id,
        defaults={
            "to": order.customer.email,
            "subject": SUBJECTS[template].format(order=in_one_line(order.number, 60)),
            "body": body,
        },
    )
    return mail
