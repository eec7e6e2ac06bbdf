"""The Django app of the domain.

`ready` makes the Celery app known, so that web processes publish through it, and listens for the ends of runs.
"""

from django.apps import AppConfig


class CustomerOpsConfig(AppConfig):
    """The support desk."""

    name = "customer_ops"
    verbose_name = "Customer operations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from customer_ops import celery, endings  # noqa: F401
        from durableflows.signals import run_event

        run_event.connect(endings.on_run_event, dispatch_uid="customer_ops.endings")
