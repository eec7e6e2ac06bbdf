"""The Django app of the domain. `ready` makes the Celery app known, so that web processes publish through it."""

from django.apps import AppConfig


class CustomerOpsConfig(AppConfig):
    """The support desk."""

    name = "customer_ops"
    verbose_name = "Customer operations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from customer_ops import celery  # noqa: F401
