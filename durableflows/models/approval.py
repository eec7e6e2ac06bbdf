"""A question to a person, and each answer to it."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from durableflows.core.approvers import GROUP, PERSON, Approvers
from durableflows.core.keys import new_id
from durableflows.core.money import Money
from durableflows.core.states import APPROVAL_MOVES, ApprovalState
from durableflows.errors import InvalidDefinition
from durableflows.models.fields import EngineRow, StateField, Table, moves, states_constraint


class ApprovalRequest(EngineRow):
    """What is asked, the facts it was asked on, who may answer, and until when.

    `facts_digest` covers the binding facts only; a decision counts only for the digest that was shown (P9).

    Shapes and units   permission, groups, people, quorum: who is asked now, see `core.approvers`; band: for which
                       amounts that rule is; ladder: who is asked after them, in `ladder_position` so many already;
                       fallback: the step that it leads to in the end, '' for `rejected`; zone: in which the time to
                       answer was set; edit_schema: the form of `core.edits`; reminders: the moments of them all, as
                       ISO texts, remind_at: the next one; asked_at: since when these people are asked;
                       editors: who has changed the run by hand, and is kept out as who asked is
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
    amount_minor = models.BigIntegerField(null=True, blank=True)
    currency = models.CharField(max_length=3, blank=True, default="")
    band = models.CharField(max_length=80, blank=True, default="")
    permission = models.CharField(max_length=200, blank=True, default="")
    groups = models.JSONField(default=list, blank=True)
    people = models.JSONField(default=list, blank=True)
    exclude_requester = models.BooleanField(default=True)
    exclude_delegate = models.BooleanField(default=True)
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    requester_name = models.CharField(max_length=150, blank=True, default="")
    editors = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="+", blank=True)
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    assignee_name = models.CharField(max_length=150, blank=True, default="")
    quorum = models.PositiveIntegerField(default=1)
    ladder = models.JSONField(default=list)
    ladder_position = models.PositiveIntegerField(default=0)
    fallback = models.CharField(max_length=100, blank=True, default="")
    edit_schema = models.JSONField(default=list, blank=True)
    run_version = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField()
    zone = models.CharField(max_length=64, blank=True, default="")
    reminders = models.JSONField(default=list, blank=True)
    remind_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True, blank=True)
    unanswerable_at = models.DateTimeField(null=True, blank=True)
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
            models.Index(
                fields=["remind_at"],
                condition=Q(state="OPEN", remind_at__isnull=False),
                name="durableflows_approval_remind",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def asked_of(self) -> Approvers | None:
        """Who is asked now; None when the rules ask nobody, and when what stands there is no rule any more."""
        is_asked = self.permission or self.groups or self.people
        try:
            return Approvers(self.permission, self.groups, self.people, self.quorum) if is_asked else None
        except InvalidDefinition:  # somebody has edited the row: nobody may answer it, and pages and doctor stay whole
            return None

    @property
    def amount(self) -> Money | None:
        """By which it was chosen who is asked; None where it is asked whatever the amount."""
        return None if self.amount_minor is None else Money(self.amount_minor, self.currency)

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


class Addressee(models.Model):
    """A group or a person by name that a request is put to: where lists find it. The request itself says the same."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request = models.ForeignKey(ApprovalRequest, on_delete=models.CASCADE, related_name="addressees")
    kind = models.CharField(max_length=10)
    name = models.CharField(max_length=150)

    class Meta:
        app_label = "durableflows"
        verbose_name = "addressee"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=[GROUP, PERSON]), name="durableflows_addressee_kind"),
            models.UniqueConstraint(fields=["request", "kind", "name"], name="durableflows_addressee_once"),
        ]
        indexes: ClassVar = [models.Index(fields=["kind", "name", "request"], name="durableflows_addressee_inbox")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ApprovalDecision(models.Model):
    """One person's answer, kept for ever, with the digest of what that person was shown.

    Shapes and units   right: under which it was given, "permission:…", "group:…" or "person:…"; for_person: whose
                       right it is, where it was delegated; edits: what the person has changed, {} for nothing
    """

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
    right = models.CharField(max_length=300, blank=True, default="")
    for_person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    for_name = models.CharField(max_length=150, blank=True, default="")
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
