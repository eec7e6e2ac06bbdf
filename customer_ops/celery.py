"""The Celery app: `celery -A customer_ops worker`. Loaded when Django is ready, in web processes too."""

import os

from celery import Celery

import durableflows.celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "customer_ops.settings")

app = Celery("customer_ops")
# Celery keeps its current app for each thread. A web server's threads would otherwise publish through an app without
# settings, to a broker that is not there.
app.set_default()
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
durableflows.celery.install(app)
