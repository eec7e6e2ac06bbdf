"""A provider's circuit breaker, shared by all processes because it is a row."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

STATES = ("closed", "open", "half-open")


class Breaker(models.Model):
    """Open: nothing is sent to the provider until `opens_until`; half-open: one probe holds it."""

    provider = models.CharField(max_length=100, primary_key=True)
    state = models.CharField(max_length=10, default="closed")
    failures = models.PositiveIntegerField(default=0)
    opened_at = models.DateTimeField(null=True, blank=True)
    open_until = models.DateTimeField(null=True, blank=True)
    probe_token = models.UUIDField(null=True, blank=True)
    probe_until = models.DateTimeField(null=True, blank=True)
    changed_by = models.CharField(max_length=150, blank=True, default="")
    reason = models.TextField(blank=True, default="")

    class Meta:
        app_label = "durableflows"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=STATES), name="durableflows_breaker_state"),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.state}"
