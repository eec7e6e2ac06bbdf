"""The domain in Django's admin: customers and tickets to edit, money to look at.

What moves money (orders, charges, refund requests) and what was sent is read-only here: it changes through `services`
and the workflow alone.
"""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from customer_ops.models import Charge, Customer, Mail, Order, RefundRequest, Ticket
from durableflows.admin import RunsOfSubject

if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[Any]
    CustomersBase = admin.ModelAdmin[Customer]
    TicketsBase = admin.ModelAdmin[Ticket]
else:  # Django's own class takes no types when it runs
    AnyAdmin = CustomersBase = TicketsBase = admin.ModelAdmin


class ReadOnly(AnyAdmin):
    """Rows to look at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Customer)
class CustomerAdmin(CustomersBase):
    """Customers."""

    list_display = ("name", "email", "mail_failed_at")
    search_fields = ("name", "email")
    readonly_fields = ("mail_failed_at",)

    def save_model(self, request: HttpRequest, obj: Customer, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        if "email" in form.changed_data:
            obj.mail_failed_at = None  # of the other address nothing is known
        super().save_model(request, obj, form, change)


@admin.register(Ticket)
class TicketAdmin(TicketsBase):
    """Tickets."""

    list_display = ("subject", "customer", "state", "created_at", "provider_id")
    readonly_fields = ("token", "provider_id")
    list_filter = ("state",)
    search_fields = ("subject", "customer__name", "customer__email", "provider_id")
    autocomplete_fields = ("customer",)
    list_select_related = ("customer",)


@admin.register(Order)
class OrderAdmin(ReadOnly):
    """Orders."""

    list_display = ("number", "customer", "total_text", "placed_at")
    search_fields = ("number", "customer__name", "customer__email")
    fields = ("number", "customer", "total_text", "placed_at")
    list_select_related = ("customer",)

    @admin.display(description="total", ordering="total_minor")
    def total_text(self, order: Order) -> str:
        return order.total.display


@admin.register(Charge)
class ChargeAdmin(ReadOnly):
    """Charges."""

    list_display = ("provider_id", "order", "amount_text", "captured_at")
    search_fields = ("provider_id", "order__number")
    fields = ("provider_id", "order", "amount_text", "captured_at")
    list_select_related = ("order",)

    @admin.display(description="amount", ordering="amount_minor")
    def amount_text(self, charge: Charge) -> str:
        return charge.amount.display


@admin.register(RefundRequest)
class RefundRequestAdmin(RunsOfSubject, ReadOnly):
    """Refund requests, each with its run."""

    list_display = ("amount_text", "order_number", "state", "requested_by_name", "created_at")
    list_filter = ("state",)
    search_fields = ("charge__provider_id", "charge__order__number", "refund_id", "requested_by_name")
    fields = (
        *("amount_text", "asked_text", "charge", "state", "reason", "ended_because", "refund_id"),
        *("requested_by_name", "created_at", "run_id"),
    )
    list_select_related = ("charge__order",)

    @admin.display(description="amount", ordering="amount_minor")
    def amount_text(self, refund: RefundRequest) -> str:
        return refund.amount.display

    @admin.display(description="asked for at first")
    def asked_text(self, refund: RefundRequest) -> str:
        return refund.asked.display

    @admin.display(description="order", ordering="charge__order__number")
    def order_number(self, refund: RefundRequest) -> str:
        return refund.charge.order.number


@admin.register(Mail)
class MailAdmin(ReadOnly):
    """Mails to customers. A mail without a time of sending is one of which no server has said that it took it."""

    list_display = ("subject", "to", "composed_at", "sent_at")
    search_fields = ("to", "subject", "message_id")
