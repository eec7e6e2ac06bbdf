"""A question to a person, and each answer to it."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from durableflows.core.keys import new_id
from durableflows.core.states import APPROVAL_MOVES, ApprovalState
from durableflows.models.fields import EngineRow, StateField, Table, moves, states_constraint


class ApprovalRequest(EngineRow):
    """What is asked, the facts it was asked on, who may answer, and until when.

    `facts_digest` covers the binding facts only; a decision counts only for the digest that was shown (P9).
    """

    MOVES: ClassVar[Table] = APPROVAL_MOVES

    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="requests")
    step = models.ForeignKey("StepRun", on_delete=models.PROTECT, related_name="requests")
    tenant = models.CharField(max_length=100, blank=True, default="")
    state = StateField(default=ApprovalState.OPEN)
    title = models.CharField(max_length=300)
    binding = models.JSONField(default=dict)
    context = models.JSONField(default=dict)
    facts_digest = models.CharField(max_length=64)
    permission = models.CharField(max_length=200)
    exclude_requester = models.BooleanField(default=True)
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    requester_name = models.CharField(max_length=150, blank=True, default="")
    quorum = models.PositiveIntegerField(default=1)
    ladder = models.JSONField(default=list)
    ladder_position = models.PositiveIntegerField(default=0)
    run_version = models.PositiveIntegerField(default=0)
    token_digest = models.CharField(max_length=64, blank=True, default="")
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_reason = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        app_label = "durableflows"
        verbose_name = "approval request"
        ordering: ClassVar = ["-created_at", "-id"]
        permissions: ClassVar = [("answer_approval", "May see and answer approval requests")]
        constraints: ClassVar = [
            states_constraint(ApprovalState, "durableflows_approval_state"),
            models.UniqueConstraint(fields=["step"], condition=Q(state="OPEN"), name="durableflows_approval_open"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["expires_at"], condition=Q(state="OPEN"), name="durableflows_approval_due"),
            models.Index(
                fields=["permission", "-created_at"], condition=Q(state="OPEN"), name="durableflows_approval_inbox"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @moves(APPROVAL_MOVES)
    def approve(self) -> None:
        """Enough people said yes."""

    @moves(APPROVAL_MOVES)
    def reject(self) -> None:
        """Somebody said no."""

    @moves(APPROVAL_MOVES)
    def expire(self) -> None:
        """Nobody answered in time, on the last step of the ladder."""

    @moves(APPROVAL_MOVES)
    def close(self) -> None:
        """The run ended, or the question is moot."""


class ApprovalDecision(models.Model):
    """One person's answer, kept for ever, with the digest of what that person was shown."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.PROTECT, related_name="decisions")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150)
    verdict = models.CharField(max_length=10)
    comment = models.TextField(blank=True, default="")
    edits = models.JSONField(default=dict, blank=True)
    door = models.CharField(max_length=40, blank=True, default="")
    origin = models.CharField(max_length=200, blank=True, default="")
    permission = models.CharField(max_length=200, blank=True, default="")
    facts_digest = models.CharField(max_length=64)
    at = models.DateTimeField()
    voided_at = models.DateTimeField(null=True, blank=True)
    voided_reason = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        app_label = "durableflows"
        verbose_name = "decision"
        ordering: ClassVar = ["at", "id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(verdict__in=["approve", "reject"]), name="durableflows_decision_verdict"
            ),
            models.UniqueConstraint(
                fields=["request", "actor"],
                condition=Q(voided_at__isnull=True, actor__isnull=False),
                name="durableflows_decision_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.verdict}"
