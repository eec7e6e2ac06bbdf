"""A run's history, one fact a row, chained by digest. Only `journal` writes it."""

from typing import Any, ClassVar, NoReturn

from django.db import models

from durableflows.core.keys import new_id


class RunEvent(models.Model):
    """What happened, when, and by whom. Never changed, never deleted."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="events")
    sequence = models.PositiveIntegerField()
    kind = models.CharField(max_length=60)
    step = models.ForeignKey("StepRun", null=True, blank=True, on_delete=models.PROTECT, related_name="events")
    checkpoint = models.PositiveIntegerField(default=0)
    actor_name = models.CharField(max_length=150, blank=True, default="")
    data = models.JSONField(default=dict)
    at = models.DateTimeField()
    previous_digest = models.CharField(max_length=64, blank=True, default="")
    digest = models.CharField(max_length=64)

    class Meta:
        app_label = "durableflows"
        verbose_name = "event"
        ordering: ClassVar = ["run_id", "sequence"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "sequence"], name="durableflows_event_sequence"),
        ]

    def __str__(self) -> str:
        return self.kind

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: history is append-only (P13)."""
        raise TypeError("run events are never deleted")
