"""Doors for the events of the test provider: secrets by name, and by a callable."""

from django.urls import path

from durableflows.webhooks import ProviderWebhook

SECRETS = ["whsec_current", "whsec_previous"]

urlpatterns = [
    path("named/", ProviderWebhook.as_view(provider="test", secrets=("TEST_WEBHOOK_SECRET",))),
    path("given/", ProviderWebhook.as_view(provider="test", secrets=lambda: SECRETS)),
]
