"""Addresses of the inbox, the console and monitors: `path("durableflows/", include("durableflows.urls"))`."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from durableflows.views.asked import AskedFor
from durableflows.views.badge import Badge
from durableflows.views.bulk import BulkAction
from durableflows.views.bulk_all import BulkAll
from durableflows.views.console import Dashboard, ProviderPage, Providers, StopProvider, Workers
from durableflows.views.decision import Decided, Decision
from durableflows.views.delegations import Delegations, EndDelegation
from durableflows.views.inbox import Inbox
from durableflows.views.link import FollowLink
from durableflows.views.monitor import HealthPage, Metrics
from durableflows.views.run import RunHistory, RunLedger, RunPage, RunPeople, RunState
from durableflows.views.run_actions import Resolve, RunAction
from durableflows.views.runs import RunList
from durableflows.views.tables import Table
from durableflows.views.words import Ask, Assign, Reply, Withdraw


class AnyText(StringConverter):
    """Whatever stands behind a link's beginning. Django's `path` stops at a line break."""

    regex = "(?s:.+)"


register_converter(AnyText, "durableflows_text")

app_name = "durableflows"

urlpatterns = [
    path("health/", HealthPage.as_view(), name="health"),
    path("metrics", Metrics.as_view(), name="metrics"),
    path("inbox/", Inbox.as_view(), name="inbox"),
    path("inbox/export/<str:what>.csv", Table.as_view(), name="export"),
    path("inbox/delegations/", Delegations.as_view(), name="delegations"),
    path("inbox/delegations/<uuid:delegation_id>/end/", EndDelegation.as_view(), name="end-delegation"),
    path("inbox/badge/", Badge.as_view(), name="badge"),
    # With and without the last slash, and whatever follows: an address that no route takes is logged as it is.
    path("inbox/link/<durableflows_text:token>/", FollowLink.as_view(), name="link"),
    path("inbox/link/<durableflows_text:token>", FollowLink.as_view()),
    path("inbox/<uuid:request_id>/", Decision.as_view(), name="decision"),
    path("inbox/<uuid:request_id>/decided/", Decided.as_view(), name="decided"),
    path("inbox/<uuid:request_id>/asked/", AskedFor.as_view(), name="asked"),
    path("inbox/<uuid:request_id>/ask/", Ask.as_view(), name="ask"),
    path("inbox/<uuid:request_id>/assign/", Assign.as_view(), name="assign"),
    path("inbox/<uuid:request_id>/reply/", Reply.as_view(), name="reply"),
    path("inbox/<uuid:request_id>/withdraw/", Withdraw.as_view(), name="withdraw"),
    path("console/", Dashboard.as_view(), name="console"),
    path("console/workers/", Workers.as_view(), name="workers"),
    path("console/providers/", Providers.as_view(), name="providers"),
    # A provider's name may have any letter in it.
    path("console/provider/<durableflows_text:provider>/", ProviderPage.as_view(), name="provider"),
    path("console/do/<slug:verb>/<durableflows_text:provider>/", StopProvider.as_view(), name="stop-provider"),
    path("runs/", RunList.as_view(), name="runs"),
    path("runs/bulk/", BulkAction.as_view(), name="bulk"),
    path("runs/bulk/all/", BulkAll.as_view(), name="bulk-all"),
    path("runs/<uuid:run_id>/", RunPage.as_view(), name="run"),
    path("runs/<uuid:run_id>/ledger/", RunLedger.as_view(), name="run-ledger"),
    path("runs/<uuid:run_id>/people/", RunPeople.as_view(), name="run-people"),
    path("runs/<uuid:run_id>/state/", RunState.as_view(), name="run-state"),
    path("runs/<uuid:run_id>/history/", RunHistory.as_view(), name="run-history"),
    path("runs/<uuid:run_id>/do/<slug:verb>/", RunAction.as_view(), name="action"),
    path("runs/<uuid:run_id>/effects/<uuid:effect_id>/", Resolve.as_view(), name="resolve"),
]
