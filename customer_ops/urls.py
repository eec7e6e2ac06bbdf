"""Addresses of the project: the desk at /, log-in, the engine's pages, the admin."""

from collections.abc import Sequence

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path, register_converter
from django.urls.converters import StringConverter

from customer_ops import views
from durableflows.webhooks import ProviderWebhook


class AnyNumber(StringConverter):
    """Whatever a shop puts into its order numbers. Django's `path` stops at a line break: one would end the list."""

    regex = "(?s:.+)"


def webhook_secrets() -> Sequence[str]:
    """What the payment provider signs its events with; two while one is rotated."""
    secrets: Sequence[str] = settings.PAYMENTS_WEBHOOK_SECRETS
    return secrets


payment_events = ProviderWebhook.as_view(provider="payments", secrets=webhook_secrets)

register_converter(AnyNumber, "number")

handler400 = "customer_ops.views.errors.bad_request"

urlpatterns = [
    path("", views.OrderList.as_view(), name="orders"),
    path("orders/<number:number>/refund/", views.RequestRefund.as_view(), name="request-refund"),
    path("orders/<number:number>/", views.OrderPage.as_view(), name="order"),
    path("refunds/<int:pk>/call-off/", views.CallOffRefund.as_view(), name="call-off-refund"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("webhooks/payments/", payment_events, name="payment-events"),
    path("durableflows/", include("durableflows.urls")),
    path("admin/", admin.site.urls),
]
