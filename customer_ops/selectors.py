"""Reads of the domain: what is left of a charge, what an order was refunded, which orders match a search.

Called by services (under the charge's lock), policies and views. Never writes.
"""

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Q, QuerySet, Sum

from customer_ops.models import COUNTED, Charge, Order, RefundRequest, RefundState
from durableflows import Money


@dataclass(frozen=True, slots=True)
class Balance:
    """A charge and where its money is: refunded, reserved by open requests, left."""

    charge: Charge
    refunded: Money
    pending: Money
    left: Money


def balance(charge: Charge) -> Balance:
    """Add up what requests take from a charge. True only under the charge's lock; for display otherwise."""
    currency = charge.amount.currency
    totals = charge.refund_requests.aggregate(
        refunded=Sum("amount_minor", filter=Q(state=RefundState.REFUNDED)),
        pending=Sum("amount_minor", filter=Q(state=RefundState.PENDING)),
    )
    refunded, pending = _money(totals["refunded"], currency), _money(totals["pending"], currency)
    return Balance(charge, refunded=refunded, pending=pending, left=charge.amount - refunded - pending)


def left_without(request: RefundRequest) -> Money:
    """Say what the charge has left when this request's own reservation is not counted."""
    charge = request.charge
    others = charge.refund_requests.filter(state__in=COUNTED).exclude(pk=request.pk)
    taken = others.aggregate(total=Sum("amount_minor"))["total"]
    return charge.amount - _money(taken, charge.amount.currency)


def find_orders(text: str) -> QuerySet[Order]:
    """List orders, newest first, whose number or customer holds the text; all of them for an empty one."""
    orders = Order.objects.select_related("customer")
    if not text:
        return orders
    return orders.filter(
        Q(number__icontains=text) | Q(customer__name__icontains=text) | Q(customer__email__icontains=text)
    )


def earlier_refunds(request: RefundRequest) -> QuerySet[RefundRequest]:
    """List the refunds that this request's customer got before, newest first."""
    customer = request.charge.order.customer
    return RefundRequest.objects.filter(charge__order__customer=customer, state=RefundState.REFUNDED).exclude(
        pk=request.pk
    )


def _money(total: int | Decimal | None, currency: str) -> Money:
    # int(): PostgreSQL adds BIGINT up as NUMERIC, which arrives as Decimal.
    return Money(int(total or 0), currency)
