"""What people must be told about requests: written with what happened, addressed and given after it."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from durableflows.core.keys import new_id
from durableflows.models.approval import ApprovalRequest


class Announcement(models.Model):
    """Something that happened to a request and that people must be told. Whom, is worked out after the commit.

    rung     how often the request had been handed on; number: of the reminder, or of the note, else 0
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="announcements")
    kind = models.CharField(max_length=20)
    rung = models.PositiveIntegerField(default=0)
    number = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
    due_at = models.DateTimeField()
    addressed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["request", "kind", "rung", "number"], name="durableflows_announcement_once"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=Q(addressed_at__isnull=True), name="durableflows_announcement_due"
            ),
        ]

    def __str__(self) -> str:
        return self.kind


class Notification(models.Model):
    """One notice for one person by one notifier: to be given until `sent_at` or `dropped_at` says that it is over.

    taken_until   somebody is giving it until then; when that passes and nothing is recorded, it may have been given
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    announcement = models.ForeignKey(Announcement, on_delete=models.PROTECT, related_name="notifications")
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="notifications")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    person_name = models.CharField(max_length=150)
    notifier = models.CharField(max_length=200)
    kind = models.CharField(max_length=20)
    rung = models.PositiveIntegerField(default=0)
    made_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    taken_until = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    dropped_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["made_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["announcement", "person", "notifier"], name="durableflows_notification_once"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"],
                condition=Q(sent_at__isnull=True, dropped_at__isnull=True),
                name="durableflows_notification_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.person_name}"
