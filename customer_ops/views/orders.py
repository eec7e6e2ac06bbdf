"""The list of orders: search, filters in words, pages."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.views.generic import ListView

from customer_ops import cards, selectors
from customer_ops.forms import SHOWN, SearchForm
from customer_ops.models import Order
from customer_ops.views.doors import Door

if TYPE_CHECKING:
    Orders = ListView[Order]
else:  # Django's own class takes no types when it runs
    Orders = ListView


class OrderList(Door, Orders):
    """The orders, newest first, or those that a search and a filter find."""

    template_name = "customer_ops/orders.html"
    context_object_name = "orders"
    paginate_by = 20

    def get_queryset(self) -> QuerySet[Order]:
        self.form = SearchForm(self.request.GET)
        if not self.form.is_valid():
            return Order.objects.none()
        found = selectors.find_orders(self.form.cleaned_data["q"], show=self.form.cleaned_data["show"])
        return found.prefetch_related("charges__refund_requests")

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        found = self.form.cleaned_data
        search, show = found.get("q", ""), found.get("show", "")
        page = super().get_context_data(
            form=self.form,
            search=search,
            show=show,
            filters=[(words, _query(q=search, show=name), name == show) for name, words in SHOWN],
            kept=_query(q=search, show=show),
            shown=dict(SHOWN)[show] if show else "",
            **context,
        )
        return {**page, "rows": cards.order_rows(page["orders"])}


def _query(**parameters: str) -> str:
    """What follows the question mark: what is set, without the rest."""
    return urlencode({name: value for name, value in parameters.items() if value})
