"""The rows of the support desk: customers, orders, charges, refund requests, tickets and sent mails.

Written by `services`, by the steps in `workflows` and by the mail effect. A `RefundRequest` is the reservation against
its charge: it counts from the moment it is stored until it is rejected or has failed. Nothing here calls outside.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from customer_ops.errors import RequestEnded
from durableflows import Money
from durableflows.fields import MoneyField


class Customer(models.Model):
    """Somebody who buys. `mail_failed_at`: a mail to this address was given up then, and none was taken since."""

    name = models.CharField(max_length=200)
    email = models.EmailField(unique=True)
    mail_failed_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """What a customer bought."""

    number = models.CharField(max_length=30, unique=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    total = MoneyField()
    placed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering: ClassVar = ["-placed_at", "-pk"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(total_minor__gte=0), name="customer_ops_order_total"),
        ]
        indexes: ClassVar = [models.Index(fields=["-placed_at", "-id"], name="customer_ops_order_list")]

    def __str__(self) -> str:
        return self.number


class Charge(models.Model):
    """Money that was taken for an order, at the payment provider."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="charges")
    provider_id = models.CharField(max_length=100, unique=True)
    amount = MoneyField()
    captured_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering: ClassVar = ["captured_at", "pk"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="customer_ops_charge_amount"),
        ]

    def __str__(self) -> str:
        return self.provider_id


class RefundState(models.TextChoices):
    """How far a refund request is."""

    PENDING = "PENDING", "pending"
    REFUNDED = "REFUNDED", "refunded"
    REJECTED = "REJECTED", "rejected"
    FAILED = "FAILED", "failed"
    WITHDRAWN = "WITHDRAWN", "called off"


COUNTED = (RefundState.PENDING, RefundState.REFUNDED)
"""States in which a request takes from its charge. Unknown and in doubt are PENDING: they may have been paid."""


MAY_ASK = "customer_ops.request_refund"
"""The permission to ask for refunds: at the form, in the service, and once more before the money leaves."""

MAY_SEE_ORDERS = (
    MAY_ASK,
    "customer_ops.approve_refund",
    "customer_ops.approve_any_refund",
    "customer_ops.view_order",
)
"""Any one of these opens the desk's pages: they show customers' names and addresses."""


class RefundRequest(models.Model):
    """Money that somebody asked to give back; it is reserved against the charge.

    asked_for   what was asked for, where a manager has approved less: `amount` is what was approved then; else None
    """

    charge = models.ForeignKey(Charge, on_delete=models.PROTECT, related_name="refund_requests")
    amount = MoneyField()
    asked_for = MoneyField(null=True)
    reason = models.TextField(max_length=500)
    state = models.CharField(max_length=10, choices=RefundState.choices, default=RefundState.PENDING)
    ended_because = models.TextField(blank=True, default="")
    form_token = models.UUIDField(unique=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    requested_by_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    refund_id = models.CharField(max_length=100, blank=True, default="")
    run_id = models.UUIDField(null=True, blank=True, unique=True)

    class Meta:
        ordering: ClassVar = ["-created_at", "-pk"]
        permissions: ClassVar = [
            ("request_refund", "May ask for refunds"),
            ("approve_refund", "May sign off refunds"),
            ("approve_any_refund", "May sign off refunds that nobody answered in time"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="customer_ops_refund_amount"),
            models.CheckConstraint(
                condition=Q(asked_for_minor__isnull=True, asked_for_currency__isnull=True)
                | Q(asked_for_minor__gt=F("amount_minor"), asked_for_currency=F("amount_currency")),
                name="customer_ops_refund_less",
            ),
            models.CheckConstraint(condition=Q(state__in=RefundState.values), name="customer_ops_refund_state"),
            models.CheckConstraint(
                condition=(Q(state="REFUNDED") & ~Q(refund_id="")) | (~Q(state="REFUNDED") & Q(refund_id="")),
                name="customer_ops_refund_id",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["charge", "state"], name="customer_ops_refund_charge")]

    def __str__(self) -> str:
        return f"{self.amount.display} of {self.charge}"

    @property
    def is_pending(self) -> bool:
        """Is it neither refunded nor given up?"""
        return self.state == RefundState.PENDING

    @property
    def asked(self) -> Money:
        """What was asked for at first, whatever was approved of it."""
        return self.asked_for or self.amount

    def lower_to(self, amount: Money) -> None:
        """Record that less was approved, which frees the rest of the reservation. The same amount changes nothing.

        Raises RequestEnded when it has ended meanwhile, or has less already.
        """
        # One statement, and only from PENDING: it may be called off in the same moment.
        pending = RefundRequest.objects.filter(pk=self.pk, state=RefundState.PENDING)
        pending.filter(amount_currency=amount.currency, amount_minor__gt=amount.amount_minor).update(
            asked_for_minor=Coalesce("asked_for_minor", "amount_minor"),
            asked_for_currency=F("amount_currency"),
            amount_minor=amount.amount_minor,
        )
        self.refresh_from_db(fields=["state", "amount_minor", "asked_for_minor", "asked_for_currency"])
        if not self.is_pending or self.amount != amount:
            raise RequestEnded(f"refund request {self.pk} is {self.state}, of {self.amount}: it cannot become {amount}")

    def mark_refunded(self, refund_id: str) -> None:
        """Record that the money went back. A repeat changes nothing; RequestEnded when it ended otherwise."""
        self._end(RefundState.REFUNDED, refund_id=refund_id)

    def mark_rejected(self, reason: str) -> None:
        """Record that it was refused, which frees the reservation. Repeats as for `mark_refunded`."""
        self._end(RefundState.REJECTED, ended_because=reason)

    def mark_failed(self, reason: str) -> None:
        """Record that it cannot be paid, which frees the reservation. Repeats as for `mark_refunded`."""
        self._end(RefundState.FAILED, ended_because=reason)

    def mark_withdrawn(self, reason: str) -> None:
        """Record that it was called off before it was paid, which frees the reservation. Repeats as for the others."""
        self._end(RefundState.WITHDRAWN, ended_because=reason)

    def _end(self, state: RefundState, *, refund_id: str = "", ended_because: str = "") -> None:
        # One statement, and only from PENDING: of two that end it, one wins and the other is told.
        pending = RefundRequest.objects.filter(pk=self.pk, state=RefundState.PENDING)
        ended = {"state": state, "refund_id": refund_id, "ended_because": ended_because}
        moved = pending.update(**ended, ended_at=timezone.now())
        self.refresh_from_db(fields=[*ended, "ended_at"])
        if not moved and (self.state != state or self.refund_id != refund_id):
            raise RequestEnded(f"refund request {self.pk} is {self.state} already, it cannot become {state}")


class Ticket(models.Model):
    """What a customer wrote, or what a workflow puts before an agent.

    The latter has the token that it was opened with, and `provider_id`, what the help desk calls it: empty while no
    help desk is known to have it.
    """

    class State(models.TextChoices):
        OPEN = "OPEN", "open"
        CLOSED = "CLOSED", "closed"

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="tickets")
    subject = models.CharField(max_length=200)
    body = models.TextField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    created_at = models.DateTimeField(default=timezone.now)
    token = models.CharField(max_length=250, unique=True, null=True, blank=True)
    provider_id = models.CharField(max_length=100, blank=True, default="")

    class Meta:
        ordering: ClassVar = ["-created_at", "-pk"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=["OPEN", "CLOSED"]), name="customer_ops_ticket_state"),
        ]

    def __str__(self) -> str:
        return self.subject


class Mail(models.Model):
    """A mail to a customer, as it was composed. `sent_at` is empty while it is not known that a server took it."""

    to = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField()
    message_id = models.CharField(max_length=250, unique=True)
    composed_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-composed_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.subject} to {self.to}"
