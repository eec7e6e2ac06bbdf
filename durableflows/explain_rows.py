"""What an explanation of a run is made of: its rows, bounded, in a few queries. Reads only; for `explain` alone."""

from dataclasses import dataclass
from datetime import datetime

from durableflows import clock
from durableflows.core.states import STEP_OPEN, ApprovalState
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.transactions import database

EVENTS_SHOWN = 200
ROWS_READ = 200


@dataclass(frozen=True, slots=True)
class Rows:
    """All that is read: bounded, newest first where there is more."""

    now: datetime
    events: list[RunEvent]
    steps: list[StepRun]
    effects: list[SideEffect]
    requests: list[ApprovalRequest]
    decisions: list[ApprovalDecision]


def read(run: WorkflowRun) -> Rows:
    """Read them: five queries and the clock's, however long the run is."""
    alias = database()
    events = RunEvent.objects.using(alias).filter(run=run).select_related("step").order_by("-sequence")
    effects = SideEffect.objects.using(alias).filter(run=run).order_by("-created_at", "-id")
    decisions = ApprovalDecision.objects.using(alias).filter(request__run=run).order_by("-at", "-id")
    return Rows(
        now=clock.now(),
        events=list(events.defer("step__input", "step__output")[:EVENTS_SHOWN])[::-1],
        steps=list(
            StepRun.objects.using(alias).filter(run=run, state__in=[str(state) for state in STEP_OPEN])[:ROWS_READ]
        ),
        effects=list(effects.defer("arguments")[:ROWS_READ])[::-1],
        requests=list(ApprovalRequest.objects.using(alias).filter(run=run, state=ApprovalState.OPEN)[:ROWS_READ]),
        decisions=list(decisions[:ROWS_READ]),
    )
