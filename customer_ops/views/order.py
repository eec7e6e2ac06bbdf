"""The page of one order, and the form on it that asks for a refund."""

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from customer_ops import cards, services
from customer_ops.cards import Bound
from customer_ops.errors import MoreThanLeft, OtherLeft, RefundRefused, WrongAmount
from customer_ops.forms import RefundForm
from customer_ops.models import MAY_ASK, Charge, Order, RefundRequest
from customer_ops.views.doors import UNPROCESSABLE, Door, order_or_404

TICKETS_SHOWN = 5


class OrderPage(Door):
    """One order: what was paid, what went back, and how far each refund is."""

    def get(self, request: HttpRequest, number: str) -> HttpResponse:
        return _order_page(request, self.user, order_or_404(number))


class RequestRefund(Door):
    """Take a refund form. Done, the browser goes back to the order; refused, it gets the form with the reason."""

    http_method_names = ["post"]

    def has_permission(self) -> bool:
        return self.request.user.has_perm(MAY_ASK)

    def page_to_return_to(self) -> str:
        return reverse("order", args=[self.kwargs["number"]])

    def post(self, request: HttpRequest, number: str) -> HttpResponse:
        order = order_or_404(number)
        charge = _charge_or_404(order, request.POST.get("charge", ""))
        form = RefundForm(request.POST, charge=charge)
        refund = _try(form, by=self.user) if form.is_valid() else None
        if refund is None:
            return _order_page(request, self.user, order, bound=(charge, form))
        messages.success(request, f"The refund of {refund.amount.display} is under way.")
        return redirect("order", number=order.number)


def _try(form: RefundForm, *, by: User) -> RefundRequest | None:
    """Ask for the refund; when it is refused, write the reason into the form."""
    data, only_if_left = form.cleaned_data, form.only_if_left
    try:
        return services.request_refund(
            data["charge"],
            data["amount"],
            data["reason"],
            by=by,
            form_token=data["form_token"],
            only_if_left=only_if_left,
        )
    except OtherLeft as refusal:
        form.add_error("how", str(refusal))
    except (MoreThanLeft, WrongAmount) as refusal:
        form.add_error("amount", str(refusal))
    except RefundRefused as refusal:
        form.add_error(None, str(refusal))
    return None


def _order_page(request: HttpRequest, user: User, order: Order, *, bound: Bound | None = None) -> HttpResponse:
    now = timezone.now()
    shown = cards.charge_cards(order, user=user, now=now, bound=bound)
    context = {
        "order": order,
        "cards": shown,
        "now": now,
        "refresh_seconds": cards.refresh_seconds(shown),
        "refused": bound[1] if bound else None,
        "tickets": order.customer.tickets.all()[:TICKETS_SHOWN],
    }
    return render(request, "customer_ops/order.html", context, status=UNPROCESSABLE if bound else None)


def _charge_or_404(order: Order, key: str) -> Charge:
    """The charge that a form was shown for. One of another order is no charge of this page."""
    charge = order.charges.filter(pk=int(key)).first() if key.isascii() and key.isdigit() and len(key) < 19 else None
    if charge is None:
        raise Http404("This order has no such charge.")
    return charge
