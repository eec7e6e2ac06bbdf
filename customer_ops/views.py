"""The pages of the support desk. Views read forms, call `services` and show the answer; they decide nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.generic import ListView, View

from customer_ops import selectors, services
from customer_ops.errors import MoreThanLeft, RefundRefused, WrongAmount
from customer_ops.forms import RefundForm, SearchForm, fresh_form
from customer_ops.models import MAY_ASK, MAY_SEE_ORDERS, Charge, Order, RefundRequest
from customer_ops.selectors import Balance
from durableflows.api import Explanation

if TYPE_CHECKING:
    Orders = ListView[Order]
else:  # Django's own class takes no types when it runs
    Orders = ListView

UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True)
class RefundCard:
    """A refund request and its progress in words; None for somebody who may not see the run."""

    request: RefundRequest
    explanation: Explanation | None


@dataclass(frozen=True, slots=True)
class ChargeCard:
    """A charge as the page shows it: its money, its refunds, and a form for who may ask."""

    balance: Balance
    refunds: list[RefundCard]
    form: RefundForm | None


class Door(PermissionRequiredMixin, View):
    """Lets in who works with orders; others who are logged in get 403."""

    def has_permission(self) -> bool:
        return any(self.request.user.has_perm(permission) for permission in MAY_SEE_ORDERS)


class OrderList(Door, Orders):
    """The orders, newest first, or those that a search finds."""

    template_name = "customer_ops/orders.html"
    context_object_name = "orders"
    paginate_by = 20

    def get_queryset(self) -> QuerySet[Order]:
        self.form = SearchForm(self.request.GET)
        return selectors.find_orders(self.form.cleaned_data["q"]) if self.form.is_valid() else Order.objects.none()

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(form=self.form, search=self.form.cleaned_data.get("q", ""), **context)


class OrderPage(Door):
    """One order: what was paid, what went back, and how far each refund is."""

    def get(self, request: HttpRequest, number: str) -> HttpResponse:
        return _order_page(request, _order_or_404(number))


class RequestRefund(PermissionRequiredMixin, View):
    """Take a refund form. Done, the browser goes back to the order; refused, it gets the form with the reason."""

    http_method_names = ["post"]
    permission_required = MAY_ASK

    def post(self, request: HttpRequest, number: str) -> HttpResponse:
        order = _order_or_404(number)
        charge = _charge_or_404(order, request.POST.get("charge", ""))
        form = RefundForm(request.POST, charge=charge)
        refund = _try(form, by=cast(User, request.user)) if form.is_valid() else None
        if refund is None:
            return _order_page(request, order, bound=(charge, form))
        messages.success(request, f"The refund of {refund.amount.display} is under way.")
        return redirect("order", number=order.number)


def _try(form: RefundForm, *, by: User) -> RefundRequest | None:
    """Ask for the refund; when it is refused, write the reason into the form."""
    data = form.cleaned_data
    try:
        return services.request_refund(
            data["charge"], data["amount"], data["reason"], by=by, form_token=data["form_token"]
        )
    except (MoreThanLeft, WrongAmount) as refusal:
        form.add_error("amount", str(refusal))
    except RefundRefused as refusal:
        form.add_error(None, str(refusal))
    return None


def _order_page(request: HttpRequest, order: Order, *, bound: tuple[Charge, RefundForm] | None = None) -> HttpResponse:
    user = cast(User, request.user)
    cards = [_charge_card(charge, user, bound) for charge in order.charges.all()]
    context = {"order": order, "cards": cards, "tickets": order.customer.tickets.all()[:5]}
    status = UNPROCESSABLE if bound else None
    return render(request, "customer_ops/order.html", context, status=status)


def _charge_card(charge: Charge, user: User, bound: tuple[Charge, RefundForm] | None) -> ChargeCard:
    balance = selectors.balance(charge)
    form = None
    if bound is not None and bound[0] == charge:
        form = bound[1]
    elif balance.left.is_positive and user.has_perm(MAY_ASK):
        form = fresh_form(balance)
    refunds = [
        RefundCard(request, services.explain_refund(request, by=user)) for request in charge.refund_requests.all()
    ]
    return ChargeCard(balance, refunds, form)


def _order_or_404(number: str) -> Order:
    # PostgreSQL refuses NUL even in a comparison.
    order = None if "\x00" in number else Order.objects.select_related("customer").filter(number=number).first()
    if order is None:
        raise Http404("There is no such order.")
    return order


def _charge_or_404(order: Order, key: str) -> Charge:
    """The charge that a form was shown for. One of another order is no charge of this page."""
    charge = order.charges.filter(pk=int(key)).first() if key.isascii() and key.isdigit() and len(key) < 19 else None
    if charge is None:
        raise Http404("This order has no such charge.")
    return charge
