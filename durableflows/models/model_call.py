"""A call of a language model by a step: held before it leaves, settled at its real cost after it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from durableflows.core.keys import new_id

OUTCOMES = ("", "done", "failed", "lost")


class ModelCall(models.Model):
    """What one call may cost, and did. Only `model_calls` writes it.

    `outcome` is empty while the call is under way. Lost: its attempt ended without saying the cost, so the estimate
    counts, for the provider may have charged it.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="model_calls")
    step = models.ForeignKey("StepRun", on_delete=models.PROTECT, related_name="model_calls")
    attempt = models.ForeignKey("StepAttempt", on_delete=models.PROTECT, related_name="model_calls")
    model = models.CharField(max_length=100)
    estimate_usd = models.DecimalField(max_digits=14, decimal_places=6)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    outcome = models.CharField(max_length=10, blank=True, default="")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "model call"
        ordering: ClassVar = ["started_at", "id"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(outcome__in=OUTCOMES), name="durableflows_call_outcome"),
            models.CheckConstraint(condition=Q(estimate_usd__gte=0), name="durableflows_call_estimate"),
            models.CheckConstraint(
                condition=(Q(outcome="") & Q(ended_at__isnull=True)) | (~Q(outcome="") & Q(ended_at__isnull=False)),
                name="durableflows_call_ended",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["step"], condition=Q(outcome=""), name="durableflows_call_open"),
        ]

    def __str__(self) -> str:
        return self.model
