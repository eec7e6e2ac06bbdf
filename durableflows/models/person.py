"""What passes between people about requests: who acts for whom, what they ask each other, and links in mails."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from durableflows.core.keys import new_id
from durableflows.models.approval import ApprovalRequest


class Delegation(models.Model):
    """One person lends another the right to answer requests, between two moments. Never deleted, only ended.

    Names are kept beside the people, who may be deleted: a delegation without its giver or taker lends nothing.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    giver = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    giver_name = models.CharField(max_length=150)
    taker = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    taker_name = models.CharField(max_length=150)
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()
    reason = models.TextField()
    made_by_name = models.CharField(max_length=150, blank=True, default="")
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by_name = models.CharField(max_length=150, blank=True, default="")
    ended_reason = models.TextField(blank=True, default="")

    class Meta:
        app_label = "durableflows"
        ordering: ClassVar = ["-from_at", "-id"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(until_at__gt=F("from_at")), name="durableflows_delegation_span"),
            models.CheckConstraint(condition=~Q(giver=F("taker")), name="durableflows_delegation_two_people"),
            models.UniqueConstraint(
                fields=["giver", "taker", "from_at", "until_at"],
                condition=Q(ended_at__isnull=True),
                name="durableflows_delegation_once",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["taker", "until_at"], condition=Q(ended_at__isnull=True), name="durableflows_delegation_taker"
            ),
            models.Index(
                fields=["giver", "until_at"], condition=Q(ended_at__isnull=True), name="durableflows_delegation_giver"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.taker_name} for {self.giver_name}"


class RequestNote(models.Model):
    """What people said to each other about a request, beside their decisions. Never changed, never deleted."""

    QUESTION, REPLY, ASSIGNED, WITHDRAWN = "question", "reply", "assigned", "withdrawn"
    KINDS: ClassVar = (QUESTION, REPLY, ASSIGNED, WITHDRAWN)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="notes")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=10)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    author_name = models.CharField(max_length=150, blank=True, default="")
    text = models.TextField()
    answers = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="replies")
    at = models.DateTimeField()

    class Meta:
        app_label = "durableflows"
        verbose_name = "note on a request"
        ordering: ClassVar = ["request", "number"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(kind__in=["question", "reply", "assigned", "withdrawn"]), name="durableflows_note_kind"
            ),
            models.UniqueConstraint(fields=["request", "number"], name="durableflows_note_number"),
        ]

    def __str__(self) -> str:
        return f"{self.author_name}: {self.kind}"


class ApprovalLink(models.Model):
    """A link that was mailed to one person about one request, as the digest of its token.

    It opens a page and gives no right. `binding` is what the mail showed, for whoever comes to changed facts.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="links")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    person_name = models.CharField(max_length=150)
    token_digest = models.CharField(max_length=64, unique=True)
    run_version = models.PositiveIntegerField()
    facts_digest = models.CharField(max_length=64)
    binding = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "link in a mail"
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"link for {self.person_name}"
