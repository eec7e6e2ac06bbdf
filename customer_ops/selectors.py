"""Reads of the domain: what is left of a charge, what an order was refunded, which orders match a search.

Called by services (under the charge's lock), policies and views. Never writes.
"""

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Exists, OuterRef, Q, QuerySet, Sum

from customer_ops.models import COUNTED, Charge, Order, RefundRequest, RefundState
from durableflows import Money
from durableflows.models import SideEffect, StepRun, WorkflowRun

UNDERWAY, WAITING, LOOK, REFUNDED, REFUSED = "under-way", "waiting", "look", "refunded", "refused"


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


def find_orders(text: str, *, show: str = "") -> QuerySet[Order]:
    """List orders, newest first, whose number or customer holds the text; all of them for an empty one.

    show: '' for all, or one of UNDERWAY, WAITING, LOOK, REFUNDED, REFUSED: those with such a refund
    """
    orders = Order.objects.select_related("customer")
    if text:
        named = Q(customer__name__icontains=text) | Q(customer__email__icontains=text)
        orders = orders.filter(Q(number__icontains=text) | named)
    if show:
        refunds = RefundRequest.objects.filter(charge__order=OuterRef("pk"))
        orders = orders.filter(Exists(refunds.filter(_is_shown(show))))
    return orders


def _is_shown(show: str) -> Q:
    runs = WorkflowRun.objects.filter(pk=OuterRef("run_id"))
    conditions = {
        UNDERWAY: Q(state=RefundState.PENDING),
        WAITING: Q(state=RefundState.PENDING) & Q(Exists(runs.filter(state="WAITING_HUMAN", ending_reason=""))),
        LOOK: Q(Exists(runs.filter(_needs_a_look()))),
        REFUNDED: Q(state=RefundState.REFUNDED),
        REFUSED: Q(state__in=[RefundState.REJECTED, RefundState.FAILED, RefundState.WITHDRAWN]),
    }
    return conditions[show]


def _needs_a_look() -> Q:
    """As `standing.needs_a_look`, asked of the database."""
    lost = Q(state="UNKNOWN") | (Q(state="DISPATCHED") & ~Q(step__state="RUNNING"))
    doubtful = SideEffect.objects.filter(lost, run=OuterRef("pk"), effect="payments.refund")
    asking = StepRun.objects.filter(run=OuterRef("pk"), needs_person=True)
    is_stuck = Q(state__in=["NEEDS_RECONCILIATION", "PARKED"]) | ~Q(alert="")
    return is_stuck | Q(Exists(asking)) | Q(Exists(doubtful))


def earlier_refunds(request: RefundRequest) -> QuerySet[RefundRequest]:
    """List the refunds that this request's customer got, newest first."""
    return _others(request).filter(state=RefundState.REFUNDED)


def open_refunds(request: RefundRequest) -> QuerySet[RefundRequest]:
    """List the other refunds of this request's customer that may still be paid, or may have been; newest first."""
    return _others(request).filter(state=RefundState.PENDING)


def _others(request: RefundRequest) -> QuerySet[RefundRequest]:
    customer = request.charge.order.customer
    return (
        RefundRequest.objects.filter(charge__order__customer=customer)
        .exclude(pk=request.pk)
        .select_related("charge__order")
    )


def _money(total: int | Decimal | None, currency: str) -> Money:
    # int(): PostgreSQL adds BIGINT up as NUMERIC, which arrives as Decimal.
    return Money(int(total or 0), currency)
