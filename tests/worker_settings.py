"""Settings of real workers in tests: the product's own, with the test's workflows and shorter times by environment."""

import os

from customer_ops import settings as product
from customer_ops.settings import *  # noqa: F403
from customer_ops.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker_app"]
DURABLEFLOWS = {
    "STALE_SECONDS": float(os.environ.get("TEST_STALE_SECONDS", "30")),
    "LOOKUP_SECONDS": 1.0,
    "LOOKUP_CAP_SECONDS": float(os.environ.get("TEST_LOOKUP_CAP_SECONDS", "600")),
    "AUDIT_SECONDS": float(os.environ.get("TEST_AUDIT_SECONDS", "86400")),
    "UNKNOWN_WORKFLOW_SECONDS": float(os.environ.get("TEST_UNKNOWN_SECONDS", "900")),
}
if "TEST_VISIBILITY_SECONDS" in os.environ:
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        **vars(product)["CELERY_BROKER_TRANSPORT_OPTIONS"],  # set there by its name
        "visibility_timeout": int(os.environ["TEST_VISIBILITY_SECONDS"]),
    }
