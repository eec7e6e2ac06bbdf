"""One node of a run, and one row for each try of it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from durableflows.core.ending import AT_WORK
from durableflows.core.keys import new_id
from durableflows.core.states import RUN_MOVING, STEP_MOVES, RunState, StepState, WaitsOn
from durableflows.core.undo import UNDOES
from durableflows.models.fields import EngineRow, StateField, Table, moves, states_constraint

ENDING = frozenset({RunState.ENDING, RunState.COMPENSATING})
_IS_NOT_ENDING = ~Q(run__state__in=[str(state) for state in sorted(ENDING)])
GOES_ON = (
    Q(run__state__in=[str(state) for state in sorted(RUN_MOVING)])
    & (Q(of_cleanup=True) | _IS_NOT_ENDING)
    & (Q(run__ending_phase__in=[str(phase) for phase in sorted(AT_WORK)]) | _IS_NOT_ENDING)
)
"""Steps that may be tried: of runs that go on, and of the undo or clean-up of the others. See `WorkflowRun.lets`.

One alternative of all states with their conditions would say the same, and PostgreSQL plans it for two milliseconds: it
asks of each partial index whether one of them implies it.
"""


class StepRun(EngineRow):
    """A step of a run. A READY row is its own outbox; a RUNNING row carries the lease."""

    MOVES: ClassVar[Table] = STEP_MOVES

    run = models.ForeignKey("WorkflowRun", on_delete=models.PROTECT, related_name="steps")
    name = models.CharField(max_length=100)
    visit = models.PositiveIntegerField(default=1)
    item_key = models.CharField(max_length=200, blank=True, default="")
    # The branch of an item: the step that `each` named, and the join that gathers its branches.
    each_step = models.CharField(max_length=100, blank=True, default="")
    gather = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="branches")
    # Whose end led here (of a join: the first one's), and the ids of the joins that its own end has led to.
    came_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    joined = models.JSONField(default=list, blank=True)
    state = StateField(default=StepState.READY)

    attempts = models.PositiveIntegerField(default=0)
    attempts_forgiven = models.PositiveIntegerField(default=0)
    lost_workers = models.PositiveIntegerField(default=0)
    tries_since = models.DateTimeField(null=True, blank=True)
    wake_at = models.DateTimeField(null=True, blank=True)

    sent_at = models.DateTimeField(null=True, blank=True)
    sends = models.PositiveIntegerField(default=0)
    resend_at = models.DateTimeField(null=True, blank=True)
    send_error = models.TextField(blank=True, default="")

    lease_worker = models.UUIDField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    lease_task_id = models.CharField(max_length=64, blank=True, default="")
    must_end_by = models.DateTimeField(null=True, blank=True)

    input = models.JSONField(default=dict, blank=True)
    input_seal = models.CharField(max_length=120, blank=True, default="")
    output = models.JSONField(null=True, blank=True)
    base_sequence = models.PositiveIntegerField(default=0)
    error_class = models.CharField(max_length=200, blank=True, default="")
    error_code = models.CharField(max_length=100, blank=True, default="")
    error_text = models.TextField(blank=True, default="")
    retry_reason = models.CharField(max_length=300, blank=True, default="")
    waits_on = models.CharField(max_length=10, blank=True, default="")
    waits_for = models.CharField(max_length=300, blank=True, default="")
    needs_person = models.BooleanField(default=False)
    # A provider that takes nothing of it now (READY), why, whose turn it waits for, and since when: its place in line.
    held_by = models.CharField(max_length=100, blank=True, default="")
    held_for = models.CharField(max_length=10, blank=True, default="")
    held_key = models.CharField(max_length=200, blank=True, default="")
    held_since = models.DateTimeField(null=True, blank=True)
    # Where it stood when the run's end closed it, for whoever lets the run go on; null when it ended by itself.
    stood = models.JSONField(null=True, blank=True)
    # A redrive went back before it: when the run comes to it again, this visit is done again, under its keys.
    rewound = models.BooleanField(default=False)
    # It belongs to the undo or clean-up of a run that is ending, not to what the run was started for.
    of_cleanup = models.BooleanField(default=False)

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "durableflows"
        verbose_name = "step"
        ordering: ClassVar = ["created_at", "id"]
        constraints: ClassVar = [
            states_constraint(StepState, "durableflows_step_state"),
            models.CheckConstraint(
                condition=Q(state="WAITING", waits_on__in=[str(kind) for kind in WaitsOn]) | Q(waits_on=""),
                name="durableflows_step_waits_on",
            ),
            models.UniqueConstraint(fields=["run", "name", "visit", "item_key"], name="durableflows_step_visit"),
            models.CheckConstraint(
                condition=Q(state="RUNNING", lease_token__isnull=False, must_end_by__isnull=False)
                | (~Q(state="RUNNING") & Q(lease_token__isnull=True)),
                name="durableflows_step_lease",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["resend_at"], condition=Q(state="READY"), name="durableflows_step_ready"),
            models.Index(fields=["sent_at"], condition=Q(state="READY"), name="durableflows_step_unclaimed"),
            models.Index(fields=["wake_at"], condition=Q(state="RETRY_SCHEDULED"), name="durableflows_step_retry"),
            models.Index(
                fields=["wake_at"],
                condition=Q(state__in=["NEEDS_RECONCILIATION", "WAITING"]),
                name="durableflows_step_open",
            ),
            models.Index(fields=["waits_on"], condition=Q(state="WAITING"), name="durableflows_step_waits"),
            models.Index(fields=["must_end_by"], condition=Q(state="RUNNING"), name="durableflows_step_must_end"),
            models.Index(fields=["lease_worker"], condition=Q(state="RUNNING"), name="durableflows_step_worker"),
            models.Index(
                fields=["held_by", "held_since"],
                condition=Q(state="READY") & ~Q(held_by=""),
                name="durableflows_step_held",
            ),
            models.Index(fields=["lease_task_id"], condition=Q(state="RUNNING"), name="durableflows_step_task"),
            models.Index(fields=["error_class"], condition=~Q(error_class=""), name="durableflows_step_error"),
        ]

    def __str__(self) -> str:
        item = f" for {self.item_key}" if self.item_key and not self.is_undo else ""
        return f"{self.name}{item}" if self.visit == 1 else f"{self.name}{item} (visit {self.visit})"

    @property
    def is_undo(self) -> bool:
        """Does it undo what another step did? Which effect stands in its input."""
        return self.of_cleanup and UNDOES in self.input

    @property
    def is_unsettled(self) -> bool:
        """Does it wait to learn what became of its own effects? What it waits for otherwise has a time of its own."""
        return self.state in (StepState.NEEDS_RECONCILIATION, StepState.WAITING) and not self.waits_on

    @moves(STEP_MOVES)
    def claim(self) -> None:
        """An attempt begins under a lease."""

    @moves(STEP_MOVES)
    def succeed(self) -> None:
        """The step is settled."""

    @moves(STEP_MOVES)
    def schedule_retry(self) -> None:
        """Another attempt at `wake_at`."""

    @moves(STEP_MOVES)
    def make_ready(self) -> None:
        """An attempt may begin."""

    @moves(STEP_MOVES)
    def wait_human(self) -> None:
        """A person is asked."""

    @moves(STEP_MOVES)
    def wait(self) -> None:
        """The lease is given up until something happens."""

    @moves(STEP_MOVES)
    def reconcile(self) -> None:
        """An effect of this step is in doubt."""

    @moves(STEP_MOVES)
    def fail(self) -> None:
        """Trying again will not help."""

    @moves(STEP_MOVES)
    def compensate(self) -> None:
        """Its effects are being undone."""

    @moves(STEP_MOVES)
    def finish_compensation(self) -> None:
        """Its effects are undone."""

    @moves(STEP_MOVES)
    def fail_compensation(self) -> None:
        """Its effects could not be undone."""

    @moves(STEP_MOVES)
    def cancel(self) -> None:
        """The run ended before the step did."""

    @moves(STEP_MOVES)
    def reopen(self) -> None:
        """The run goes on: an attempt at the same visit may begin."""

    @moves(STEP_MOVES)
    def wait_again(self) -> None:
        """The run goes on: the same visit waits for what it waited for."""


class StepAttempt(models.Model):
    """One try of a step. Written at the claim, closed at the settlement or when the lease is freed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    step = models.ForeignKey(StepRun, on_delete=models.PROTECT, related_name="tries")
    number = models.PositiveIntegerField()
    worker = models.UUIDField(null=True, blank=True)
    worker_name = models.CharField(max_length=200, blank=True, default="")
    pid = models.PositiveIntegerField(default=0)
    celery_task_id = models.CharField(max_length=64, blank=True, default="")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=40, blank=True, default="")
    error_class = models.CharField(max_length=200, blank=True, default="")
    error_code = models.CharField(max_length=100, blank=True, default="")
    error_text = models.TextField(blank=True, default="")
    delay_seconds = models.FloatField(null=True, blank=True)
    trace_id = models.CharField(max_length=32, blank=True, default="")
    span_id = models.CharField(max_length=16, blank=True, default="")

    class Meta:
        app_label = "durableflows"
        verbose_name = "attempt"
        ordering: ClassVar = ["started_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["step", "number"], name="durableflows_attempt_number"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number}"
