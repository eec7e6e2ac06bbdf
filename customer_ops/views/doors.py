"""Who comes in: people who work with orders. Others who are logged in get 403, strangers are sent to log in."""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.generic import View

from customer_ops.models import MAY_SEE_ORDERS, Order

UNPROCESSABLE = 422


@method_decorator(never_cache, name="dispatch")  # nobody reads customers' names by the back button after a log-out
class Door(PermissionRequiredMixin, View):
    """Lets in who works with orders."""

    request: HttpRequest

    def has_permission(self) -> bool:
        return any(self.request.user.has_perm(permission) for permission in MAY_SEE_ORDERS)

    @property
    def user(self) -> User:
        """Who has come in."""
        return cast(User, self.request.user)

    def page_to_return_to(self) -> str:
        """Where somebody goes on who had to log in first."""
        return self.request.get_full_path()

    def handle_no_permission(self) -> Any:
        """Send strangers to log in. What they posted is not done, and they are told so."""
        if self.request.user.is_authenticated or self.request.method != "POST":
            return super().handle_no_permission()
        messages.warning(self.request, "You were logged out, so nothing was done. Log in and do it once more.")
        return redirect_to_login(self.page_to_return_to())

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show a page with a way back, also to somebody who opens the address of a form."""
        answer = super().http_method_not_allowed(request, *args, **kwargs)
        page = render(request, "405.html", {"back": self.page_to_return_to()}, status=405)
        page.headers["Allow"] = answer.headers["Allow"]
        return page


def order_or_404(number: str) -> Order:
    """The order with this number."""
    # PostgreSQL refuses NUL even in a comparison.
    order = None if "\x00" in number else Order.objects.select_related("customer").filter(number=number).first()
    if order is None:
        raise Http404("There is no such order.")
    return order
