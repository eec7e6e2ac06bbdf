"""Settings of real workers in tests: the product's own, with the test's workflows and shorter times by environment."""

import json
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
    "LEASE_MARGIN_SECONDS": float(os.environ.get("TEST_MARGIN_SECONDS", "15")),
    "UNKNOWN_WORKFLOW_SECONDS": float(os.environ.get("TEST_UNKNOWN_SECONDS", "900")),
    "PROVIDERS": json.loads(os.environ.get("TEST_PROVIDERS", "{}")),
    "NOTIFIERS": [*filter(None, os.environ.get("TEST_NOTIFIERS", "").split(","))],
    "WATCHERS": json.loads(os.environ.get("TEST_WATCHERS", "[]")),
    "STATE_KEYS": json.loads(os.environ.get("TEST_STATE_KEYS", "{}")),
}
if "TEST_VISIBILITY_SECONDS" in os.environ:
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        **vars(product)["CELERY_BROKER_TRANSPORT_OPTIONS"],  # set there by its name
        "visibility_timeout": int(os.environ["TEST_VISIBILITY_SECONDS"]),
    }
# Shorter than what steps are given by their declaration: the tests of hung steps must not wait for that.
CELERY_TASK_ANNOTATIONS = {
    name: {"soft_time_limit": 1, "time_limit": int(os.environ.get("TEST_HARD_SECONDS", "3"))}
    for name in ("stubborn.spin", "sink.drop")
}
if "TEST_CONN_MAX_AGE" in os.environ:
    DATABASES = {
        "default": {**vars(product)["DATABASES"]["default"], "CONN_MAX_AGE": int(os.environ["TEST_CONN_MAX_AGE"])}
    }
