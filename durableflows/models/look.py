"""Who was shown what of a request."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from durableflows.core.keys import new_id
from durableflows.models.approval import ApprovalRequest


class RequestView(models.Model):
    """That a person was shown the facts of a request: a row for each person, facts and door, with the last time."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="views")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    person_name = models.CharField(max_length=150)
    facts_digest = models.CharField(max_length=64)
    door = models.CharField(max_length=40)
    origin = models.CharField(max_length=200, blank=True, default="")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        app_label = "durableflows"
        verbose_name = "look at a request"
        verbose_name_plural = "looks at requests"
        ordering: ClassVar = ["first_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["request", "person", "facts_digest", "door"], name="durableflows_request_view_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.person_name} looked"
