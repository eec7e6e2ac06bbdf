"""A message from outside for a run, kept also when it comes before anybody waits for it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from durableflows.core.keys import new_id


class Signal(models.Model):
    """A named payload, dropped when its dedup key was seen before."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="signals")
    name = models.CharField(max_length=100)
    payload = models.JSONField(null=True, blank=True)
    dedup_key = models.CharField(max_length=200, blank=True, default="")
    sender_name = models.CharField(max_length=150, blank=True, default="")
    arrived_at = models.DateTimeField()
    used_by = models.ForeignKey("StepRun", null=True, blank=True, on_delete=models.PROTECT, related_name="signals")

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["arrived_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["run", "name", "dedup_key"], condition=~Q(dedup_key=""), name="durableflows_signal_once"
            ),
        ]

    def __str__(self) -> str:
        return self.name
