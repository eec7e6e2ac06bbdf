"""The texts of tickets that a workflow opens, and the row that keeps each one: the desk's view of it.

Called by the ticket effect and its lookup. Where the settings name a help desk, the row is written before anything is
sent, and gets the help desk's name for it afterwards. Where they name none, the desk's own list is the help desk. Never
sends anything.
"""

from django.db import DatabaseError

from customer_ops.models import RefundRequest, Ticket
from durableflows import NeverSent, Permanent

TEXTS = {
    "unpaid": ("could not be paid", "The mail to the customer says that a colleague will get in touch."),
    "untold": ("was not told to the customer", "The mail was refused for good; call or write by hand."),
}


def compose(about: str, *, request_id: int, token: str) -> Ticket:
    """Write a ticket down before it is opened; the same token gives the same row, and the text of its first time.

    Raises Permanent for an unknown text or request, NeverSent when the database is away: nothing was sent yet.
    """
    if about not in TEXTS:
        raise Permanent(f"there is no ticket {about!r}: {', '.join(TEXTS)}", code="no_such_ticket")
    try:
        request = RefundRequest.objects.select_related("charge__order__customer").get(pk=request_id)
        return Ticket.objects.get_or_create(token=token, defaults=_text(about, request))[0]
    except RefundRequest.DoesNotExist:
        raise Permanent(f"refund request {request_id} does not exist", code="no_such_request") from None
    except DatabaseError as error:
        raise NeverSent(f"the ticket could not be written down: {type(error).__name__}", code="database") from error


def find(token: str) -> Ticket | None:
    """Find the row of a token."""
    return Ticket.objects.filter(token=token).first()


def mark_opened(token: str, provider_id: str) -> None:
    """Record what the help desk calls the ticket."""
    Ticket.objects.filter(token=token, provider_id="").update(provider_id=provider_id)


def _text(about: str, request: RefundRequest) -> dict[str, object]:
    what, why = TEXTS[about]
    order = request.charge.order
    return {
        "customer": order.customer,
        "subject": f"Refund of {request.amount.display} for order {order.number} {what}",
        "body": f"{why} The refund is {request.get_state_display()}; the order's page shows its history.",
    }
