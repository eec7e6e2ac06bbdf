"""A large value, kept in Django storage and named by its hash; never inside a checkpoint."""

from typing import ClassVar

from django.db import models

from durableflows.core.keys import new_id


class Artifact(models.Model):
    """Where the bytes are, how many, and what they must hash to."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="artifacts")
    step = models.ForeignKey("StepRun", null=True, blank=True, on_delete=models.PROTECT, related_name="artifacts")
    name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.PositiveBigIntegerField()
    content_type = models.CharField(max_length=100)
    storage_name = models.CharField(max_length=500)
    created_at = models.DateTimeField()

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["created_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "name", "sha256"], name="durableflows_artifact_once"),
        ]

    def __str__(self) -> str:
        return self.name
