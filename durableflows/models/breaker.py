"""A provider's circuit breaker, shared by all processes because it is a row; and each change of it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from durableflows.core.breaker import BreakerState
from durableflows.core.keys import new_id

STATES = tuple(str(state) for state in BreakerState)


class Breaker(models.Model):
    """Open: nothing is sent to the provider until `open_until`; half-open: one probe holds it until `probe_until`;
    paused: nothing is sent until a person resumes. No row: closed. Only `providers` writes it.

    The row is also what sends to a provider with limits are counted under: locked last, and for a moment only.
    """

    provider = models.CharField(max_length=100, primary_key=True)
    state = models.CharField(max_length=10, default="closed")
    failures = models.PositiveIntegerField(default=0)
    changed_at = models.DateTimeField(null=True, blank=True)
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
            models.CheckConstraint(
                condition=~Q(state="half-open") | Q(probe_token__isnull=False, probe_until__isnull=False),
                name="durableflows_breaker_probe",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.state}"


class BreakerChange(models.Model):
    """What became of a provider's breaker, when, by whom and why. Append-only; `actor_name` is empty for the engine."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.CharField(max_length=100)
    state = models.CharField(max_length=10)
    at = models.DateTimeField()
    actor_name = models.CharField(max_length=150, blank=True, default="")
    reason = models.TextField(blank=True, default="")

    class Meta:
        app_label = "durableflows"
        verbose_name = "breaker change"
        ordering: ClassVar = ["-at", "-id"]
        indexes: ClassVar = [models.Index(fields=["provider", "at"], name="durableflows_breaker_change")]

    def __str__(self) -> str:
        return f"{self.provider}: {self.state}"
