"""The ledger: what was asked of the outside world, and what is known of it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KT
from django.db.models.functions import Left

from durableflows.core.keys import new_id
from durableflows.core.states import EFFECT_IN_DOUBT, EFFECT_MOVES, EFFECT_OPEN, EffectState
from durableflows.models.fields import EngineRow, StateField, Table, moves, states_constraint

REFERENCE = Left(KT("receipt__id"), 255)
"""The provider's own name of what it did: the receipt's `id`. Cut, since an index takes no text of any length."""


class SideEffect(EngineRow):
    """One logical operation at a provider. Only `ledger` writes it.

    `dispatched_at` is the last DISPATCHED commit, `settles_at` when a send begun then can no longer act
    (settle time, protocol rule 2 and 3); doubt is sticky in `in_doubt_since` (P5). `confirmed_number`: the place in the
    run's history at which it was confirmed; a clock that is set back changes no order (P12).
    """

    MOVES: ClassVar[Table] = EFFECT_MOVES

    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="effects")
    step = models.ForeignKey("StepRun", on_delete=models.PROTECT, related_name="effects")
    step_name = models.CharField(max_length=100)
    visit = models.PositiveIntegerField(default=1)
    item_key = models.CharField(max_length=200, blank=True, default="")
    operation = models.CharField(max_length=100)
    issue = models.PositiveIntegerField(default=1)
    key = models.CharField(max_length=255, unique=True)
    effect = models.CharField(max_length=100)
    effect_version = models.PositiveIntegerField(default=1)
    provider = models.CharField(max_length=100)
    arguments = models.JSONField(default=dict)
    request_digest = models.CharField(max_length=64)
    turn_key = models.CharField(max_length=200, blank=True, default="")

    state = StateField(default=EffectState.PLANNED)
    in_doubt_since = models.DateTimeField(null=True, blank=True)
    receipt = models.JSONField(null=True, blank=True)
    first_dispatched_at = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    settles_at = models.DateTimeField(null=True, blank=True)
    send_count = models.PositiveIntegerField(default=0)
    accepted_at = models.DateTimeField(null=True, blank=True)

    lookup_count = models.PositiveIntegerField(default=0)
    lookups_forgiven = models.PositiveIntegerField(default=0)
    next_lookup_at = models.DateTimeField(null=True, blank=True)
    lookup_token = models.UUIDField(null=True, blank=True)
    lookup_must_end_by = models.DateTimeField(null=True, blank=True)
    lookup_sent_at = models.DateTimeField(null=True, blank=True)
    audit_at = models.DateTimeField(null=True, blank=True)

    reason = models.TextField(blank=True, default="")
    contradiction = models.TextField(blank=True, default="")
    verdict = models.CharField(max_length=40, blank=True, default="")
    verdict_by = models.CharField(max_length=150, blank=True, default="")
    verdict_reason = models.TextField(blank=True, default="")
    verdict_at = models.DateTimeField(null=True, blank=True)
    undoes = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="undone_by")
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by")
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    confirmed_number = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "side effect"
        ordering: ClassVar = ["created_at", "id"]
        constraints: ClassVar = [
            states_constraint(EffectState, "durableflows_effect_state"),
            models.UniqueConstraint(
                fields=["run", "step_name", "visit", "item_key", "operation", "issue"],
                name="durableflows_effect_operation",
            ),
            models.CheckConstraint(
                condition=~Q(state="CONFIRMED") | Q(receipt__isnull=False), name="durableflows_effect_receipt"
            ),
            models.CheckConstraint(
                condition=~Q(state="UNKNOWN") | Q(in_doubt_since__isnull=False), name="durableflows_effect_doubt"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_lookup_at"], condition=Q(next_lookup_at__isnull=False), name="durableflows_effect_lookup"
            ),
            models.Index(fields=["audit_at"], condition=Q(audit_at__isnull=False), name="durableflows_effect_audit"),
            models.Index(
                fields=["state", "provider"],
                condition=Q(state__in=["DISPATCHED", "UNKNOWN", "ACCEPTED"]),
                name="durableflows_effect_open",
            ),
            models.Index("provider", REFERENCE, name="durableflows_effect_reference"),
            models.Index(fields=["provider", "run"], name="durableflows_effect_provider"),
            models.Index(fields=["provider"], condition=~Q(contradiction=""), name="durableflows_effect_doubled"),
        ]

    def __str__(self) -> str:
        return f"{self.effect} {self.operation}" if self.effect != self.operation else self.effect

    @property
    def is_open(self) -> bool:
        """Does P15 forbid an end while the row is like this?"""
        return self.state in EFFECT_OPEN

    @property
    def is_in_doubt(self) -> bool:
        """May it have happened without our knowing?"""
        return self.state in EFFECT_IN_DOUBT

    @moves(EFFECT_MOVES)
    def dispatch(self) -> None:
        """The intent is written; the request may leave."""

    @moves(EFFECT_MOVES)
    def give_back(self) -> None:
        """No send of this row ever left."""

    @moves(EFFECT_MOVES)
    def accept(self) -> None:
        """The provider has it and is not done."""

    @moves(EFFECT_MOVES)
    def confirm(self) -> None:
        """It happened; the receipt is here."""

    @moves(EFFECT_MOVES)
    def reject(self) -> None:
        """The provider refused it, and nothing earlier is in doubt."""

    @moves(EFFECT_MOVES)
    def doubt(self) -> None:
        """It may have happened."""

    @moves(EFFECT_MOVES)
    def find_absent(self) -> None:
        """A lookup or a person says that it did not happen."""

    @moves(EFFECT_MOVES)
    def undo(self) -> None:
        """It is being undone."""

    @moves(EFFECT_MOVES)
    def finish_undo(self) -> None:
        """It is undone."""

    @moves(EFFECT_MOVES)
    def fail_undo(self) -> None:
        """It could not be undone."""

    @moves(EFFECT_MOVES)
    def undo_again(self) -> None:
        """A person lets it be undone anew."""

    @moves(EFFECT_MOVES)
    def reverse(self) -> None:
        """The provider took it back later."""


class EffectSend(models.Model):
    """One send or lookup of an effect, and what came of it. An empty outcome is an answer not yet recorded.

    `provider`, `health` and `is_probe` are a send's alone: from them its provider's limits and breaker are computed.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    effect = models.ForeignKey(SideEffect, on_delete=models.PROTECT, related_name="sends")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=10)
    provider = models.CharField(max_length=100, blank=True, default="")
    is_repeat = models.BooleanField(default=False)
    is_probe = models.BooleanField(default=False)
    health = models.CharField(max_length=10, blank=True, default="")
    attempt = models.ForeignKey("StepAttempt", null=True, blank=True, on_delete=models.PROTECT, related_name="sends")
    lease_token = models.UUIDField(null=True, blank=True)
    seen_version = models.PositiveBigIntegerField(default=0)
    phase = models.CharField(max_length=20, blank=True, default="")
    outcome = models.CharField(max_length=20, blank=True, default="")
    error_class = models.CharField(max_length=200, blank=True, default="")
    error_text = models.TextField(blank=True, default="")
    answer = models.JSONField(null=True, blank=True)
    started_at = models.DateTimeField()
    closes_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "send"
        ordering: ClassVar = ["started_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["effect", "kind", "number"], name="durableflows_send_number"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["provider", "started_at"], condition=~Q(provider=""), name="durableflows_send_provider"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class ProviderEvent(models.Model):
    """What a provider told us on its own, once by its event id. Only `services.provider_events` writes it.

    `body` is masked and for people; `outcome` to `happened_at` are what the project's reader found in it. `read_as`:
    the effects that have this reader. `judge_at`: when it is due to be judged, None: it never is again.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.CharField(max_length=100)
    event_id = models.CharField(max_length=200)
    kind = models.CharField(max_length=100, blank=True, default="")
    body_digest = models.CharField(max_length=64)
    body = models.JSONField(default=dict)
    copies = models.PositiveIntegerField(default=1)
    arrived_at = models.DateTimeField()

    outcome = models.CharField(max_length=20, blank=True, default="")
    key = models.CharField(max_length=255, blank=True, default="")
    reference = models.CharField(max_length=255, blank=True, default="")
    receipt = models.JSONField(null=True, blank=True)
    facts = models.JSONField(default=dict)
    read_as = models.JSONField(default=list, blank=True)
    said = models.TextField(blank=True, default="")
    happened_at = models.DateTimeField(null=True, blank=True)

    effect = models.ForeignKey(
        SideEffect, null=True, blank=True, on_delete=models.PROTECT, related_name="provider_events"
    )
    verdict = models.CharField(max_length=40, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    judged_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    judge_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "provider event"
        ordering: ClassVar = ["arrived_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "event_id"], name="durableflows_provider_event"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["judge_at"], condition=Q(judge_at__isnull=False), name="durableflows_event_due"),
            models.Index(fields=["verdict", "arrived_at"], name="durableflows_event_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id}"
