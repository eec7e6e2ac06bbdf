"""The Django app. `ready` finds the workflows and registers checks and tasks; it asks the database nothing."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DurableflowsConfig(AppConfig):
    """`workflows.py` of every installed app is imported, as `admin.py` and `tasks.py` are."""

    name = "durableflows"
    label = "durableflows"
    verbose_name = "Durable workflows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what must be known before the first request or task."""
        from durableflows import checks, tasks

        autodiscover_modules("workflows")
        checks.register()
        tasks.register()
