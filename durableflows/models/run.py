"""One workflow in progress."""

from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import Q

from durableflows.core import ending
from durableflows.core.states import RUN_ENDED, RUN_MOVES, WORDS, EndingPhase, RunState, StepState
from durableflows.models.fields import EngineRow, StateField, Table, moves, states_constraint

ENDED = [str(state) for state in sorted(RUN_ENDED)]
PHASES = [(str(phase), phase.name.lower()) for phase in EndingPhase]


class WorkflowRun(EngineRow):
    """A run: its pinned release, its checkpoint, its limits, and how it ended."""

    MOVES: ClassVar[Table] = RUN_MOVES

    workflow = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    manifest = models.JSONField(default=dict)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    owner_name = models.CharField(max_length=150, blank=True, default="")
    tenant = models.CharField(max_length=100, blank=True, default="")
    business_key = models.CharField(max_length=200, blank=True, default="")
    request_digest = models.CharField(max_length=64)
    subject_type = models.ForeignKey(ContentType, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    subject_id = models.CharField(max_length=64, blank=True, default="")
    subject = GenericForeignKey("subject_type", "subject_id")
    # On PostgreSQL migration 0024 makes a gin index of it, by which the console finds `labels @> {name: value}`.
    labels = models.JSONField(default=dict, blank=True)

    state = StateField(default=RunState.PENDING)
    data = models.JSONField(default=dict)
    schema_version = models.PositiveIntegerField(default=1)
    checkpoint_sequence = models.PositiveIntegerField(default=0)
    data_digest = models.CharField(max_length=64)
    data_key_id = models.CharField(max_length=40)

    deadline_at = models.DateTimeField()
    idle_at = models.DateTimeField(null=True, blank=True)
    budget = models.JSONField(default=dict)
    attempts_count = models.PositiveIntegerField(default=0)
    tool_calls_count = models.PositiveIntegerField(default=0)
    model_calls_count = models.PositiveIntegerField(default=0)
    iterations_count = models.PositiveIntegerField(default=0)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=6, default=0)

    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    cancel_asked_by = models.CharField(max_length=150, blank=True, default="")
    cancel_reason = models.TextField(blank=True, default="")
    parked_reason = models.CharField(max_length=30, blank=True, default="")
    parked_detail = models.TextField(blank=True, default="")
    ending_reason = models.CharField(max_length=30, blank=True, default="")
    # How far the end has come; from when to when its undo or its clean-up may take, and why the clean-up failed.
    ending_phase = models.CharField(max_length=10, blank=True, default="", choices=PHASES)
    cleanup_at = models.DateTimeField(null=True, blank=True)
    cleanup_until = models.DateTimeField(null=True, blank=True)
    cleanup_error = models.TextField(blank=True, default="")
    # Who settles what an abandoned run left open.
    heir = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    heir_name = models.CharField(max_length=150, blank=True, default="")
    alert = models.TextField(blank=True, default="")
    alert_at = models.DateTimeField(null=True, blank=True)

    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    parent_step = models.ForeignKey("StepRun", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    trace_context = models.JSONField(default=dict, blank=True)
    result = models.JSONField(null=True, blank=True)
    error_class = models.CharField(max_length=200, blank=True, default="")
    error_code = models.CharField(max_length=100, blank=True, default="")
    error_text = models.TextField(blank=True, default="")

    event_sequence = models.PositiveIntegerField(default=0)
    event_digest = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "workflow run"
        ordering: ClassVar = ["-created_at", "-id"]
        permissions: ClassVar = [("operate_run", "May cancel, retry and resolve runs of others")]
        constraints: ClassVar = [
            states_constraint(RunState, "durableflows_run_state"),
            models.UniqueConstraint(
                fields=["tenant", "business_key"], condition=~Q(business_key=""), name="durableflows_run_key"
            ),
            # One child a waiting step, however often its start is carried over.
            models.UniqueConstraint(
                fields=["parent_step"], condition=Q(parent_step__isnull=False), name="durableflows_run_child"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, state__in=[s for s in RunState if s not in RUN_ENDED])
                | Q(ended_at__isnull=False, state__in=ENDED),
                name="durableflows_run_ended",
            ),
            # A clean-up has a bound, and is of a run that is known to end.
            models.CheckConstraint(
                condition=Q(ending_phase="")
                | (~Q(ending_reason="") & Q(cleanup_at__isnull=False, cleanup_until__isnull=False)),
                name="durableflows_run_cleanup",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["deadline_at"], condition=Q(ended_at__isnull=True), name="durableflows_run_deadline"),
            models.Index(fields=["idle_at"], condition=Q(idle_at__isnull=False), name="durableflows_run_idle"),
            models.Index(
                fields=["changed_at"], condition=Q(state__in=["ENDING", "COMPENSATING"]), name="durableflows_run_ending"
            ),
            models.Index(
                fields=["parent_step"],
                condition=Q(parent_step__isnull=False, ended_at__isnull=True, cancel_asked_at__isnull=True),
                name="durableflows_run_live_child",
            ),
            models.Index(
                fields=["cleanup_until"],
                condition=Q(ending_phase__in=["undo", "clean-up"], ended_at__isnull=True),
                name="durableflows_run_cleanup_until",
            ),
            models.Index(fields=["workflow", "state", "-created_at"], name="durableflows_run_list"),
            models.Index(fields=["subject_type", "subject_id"], name="durableflows_run_subject"),
            models.Index(fields=["owner", "-created_at"], name="durableflows_run_owner"),
            # The console's list: in the order of starting, narrowed to one state or tenant, or found by its key.
            models.Index(fields=["-created_at", "-id"], name="durableflows_run_started"),
            models.Index(fields=["-created_at"], condition=Q(ended_at__isnull=True), name="durableflows_run_live"),
            models.Index(fields=["-ended_at"], condition=Q(ended_at__isnull=False), name="durableflows_run_lately"),
            models.Index(fields=["state", "-created_at"], name="durableflows_run_state_list"),
            models.Index(fields=["tenant", "-created_at"], name="durableflows_run_tenant"),
            models.Index(fields=["business_key"], opclasses=["varchar_pattern_ops"], name="durableflows_run_search"),
            models.Index(fields=["error_class"], condition=~Q(error_class=""), name="durableflows_run_error"),
            # Of those whose owner's account is gone, by the name that was kept.
            models.Index(
                fields=["owner_name"], condition=Q(owner__isnull=True) & ~Q(owner_name=""), name="durableflows_run_kept"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.business_key or self.pk}"

    @property
    def is_ended(self) -> bool:
        """Has the run reached an end? From some an operator lets it go on (`extend`, `redrive`)."""
        return self.state in RUN_ENDED

    @property
    def has_settled(self) -> bool:
        """Has it ended with nothing of it open? An abandoned run has left that to its heir (P15)."""
        return self.ended_at is not None and self.state != RunState.ABANDONED

    @property
    def is_cleaning_up(self) -> bool:
        """Is it known to end, and cleaned up before?"""
        return self.ended_at is None and self.ending_phase == EndingPhase.CLEANUP

    @property
    def is_undoing(self) -> bool:
        """Is it known to end, and undone before?"""
        return self.ended_at is None and self.ending_phase == EndingPhase.UNDOING

    @property
    def has_own_time(self) -> bool:
        """Is its undo or its clean-up under way, which have a time of their own and no budget?"""
        return self.is_undoing or self.is_cleaning_up

    def lets(self, *, of_cleanup: bool) -> bool:
        """May its steps be tried, sent and waited for: those of its undo or clean-up, or the others? Parked or not."""
        is_ending, phase = bool(self.ending_reason or self.cancel_asked_at), EndingPhase(self.ending_phase)
        return self.ended_at is None and ending.goes_on(is_ending=is_ending, phase=phase, of_cleanup=of_cleanup)

    def is_left(self) -> bool:
        """Is it a child that nobody waits for any more, not cancelled yet? One query for a child, without a lock."""
        if self.parent_step_id is None:
            return False
        waits = Q(parent_step__state=str(StepState.WAITING))
        goes_on = Q(parent__cancel_asked_at__isnull=True) | Q(parent_step__of_cleanup=True)
        return not type(self)._base_manager.using(self._state.db).filter(waits, goes_on, pk=self.pk).exists()

    def ends_by(self, *, of_cleanup: bool) -> datetime:
        """When its steps must have ended: at the deadline, those of its clean-up by a bound of their own."""
        return self.cleanup_until if of_cleanup and self.cleanup_until is not None else self.deadline_at

    @property
    def word(self) -> str:
        """The state in a manager's words."""
        return WORDS[self.state]

    @moves(RUN_MOVES)
    def begin(self) -> None:
        """A step is ready or under way."""

    @moves(RUN_MOVES)
    def rest(self) -> None:
        """Nothing was started yet."""

    @moves(RUN_MOVES)
    def wait_human(self) -> None:
        """A person is asked."""

    @moves(RUN_MOVES)
    def wait(self) -> None:
        """A timer, signal, child or provider is awaited."""

    @moves(RUN_MOVES)
    def reconcile(self) -> None:
        """An effect's outcome is unknown."""

    @moves(RUN_MOVES)
    def park(self) -> None:
        """The run does not go on by itself."""

    @moves(RUN_MOVES)
    def close_down(self) -> None:
        """The run ends as soon as its open effects are settled."""

    @moves(RUN_MOVES)
    def compensate(self) -> None:
        """What it did is being undone."""

    @moves(RUN_MOVES)
    def succeed(self) -> None:
        """The run did what it was started for."""

    @moves(RUN_MOVES)
    def fail(self) -> None:
        """The run ended without doing it."""

    @moves(RUN_MOVES)
    def cancel(self) -> None:
        """A cancel was confirmed."""

    @moves(RUN_MOVES)
    def finish_compensation(self) -> None:
        """All that could be undone is undone."""

    @moves(RUN_MOVES)
    def fail_compensation(self) -> None:
        """Something could not be undone."""

    @moves(RUN_MOVES)
    def exhaust_budget(self) -> None:
        """A budget is used up."""

    @moves(RUN_MOVES)
    def exceed_deadline(self) -> None:
        """The deadline has passed."""

    @moves(RUN_MOVES)
    def abandon(self) -> None:
        """A person took over what was open."""

    @moves(RUN_MOVES)
    def reopen(self) -> None:
        """An operator lets it go on where it stood, or from an earlier step."""

    @moves(RUN_MOVES)
    def clean_up_again(self) -> None:
        """An operator lets it do its clean-up again, and end as it did."""
