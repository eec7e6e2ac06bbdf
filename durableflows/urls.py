"""Addresses of the inbox and of monitors: `path("durableflows/", include("durableflows.urls"))` in a project."""

from django.urls import path

from durableflows.views.asked import AskedFor
from durableflows.views.badge import Badge
from durableflows.views.decision import Decided, Decision
from durableflows.views.inbox import Inbox
from durableflows.views.monitor import HealthPage, Metrics
from durableflows.views.tables import Table

app_name = "durableflows"

urlpatterns = [
    path("health/", HealthPage.as_view(), name="health"),
    path("metrics", Metrics.as_view(), name="metrics"),
    path("inbox/", Inbox.as_view(), name="inbox"),
    path("inbox/export/<str:what>.csv", Table.as_view(), name="export"),
    path("inbox/badge/", Badge.as_view(), name="badge"),
    path("inbox/<uuid:request_id>/", Decision.as_view(), name="decision"),
    path("inbox/<uuid:request_id>/decided/", Decided.as_view(), name="decided"),
    path("inbox/<uuid:request_id>/asked/", AskedFor.as_view(), name="asked"),
]
