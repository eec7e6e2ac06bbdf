"""What an explanation of a run is made of: its rows, bounded, in a few queries. Reads only; for `explain` alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from durableflows import clock, provider_state
from durableflows.conf import settings
from durableflows.core.breaker import Breaker
from durableflows.core.states import STEP_OPEN, ApprovalState, EffectState, StepState
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, Worker, WorkflowRun
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
    release_unknown: str = ""
    """The run's workflow and version when a step waits for a worker, and those that are alive do not have it."""
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    """Of the providers that a step waits for."""


def read(run: WorkflowRun) -> Rows:
    """Read them: five queries and the clock's, however long the run is; one more while a step waits for a worker, and
    one while it waits for a provider."""
    alias = database()
    events = RunEvent.objects.using(alias).filter(run=run).select_related("step").order_by("-sequence")
    decisions = ApprovalDecision.objects.using(alias).filter(request__run=run).order_by("-at", "-id")
    return replace(
        read_standing(run, clock.now()),
        events=list(events.defer("step__input", "step__output")[:EVENTS_SHOWN])[::-1],
        decisions=list(decisions[:ROWS_READ]),
    )


def read_standing(run: WorkflowRun, now: datetime) -> Rows:
    """The same without events and decisions: what the run's standing is read from. Three queries, and two as there."""
    alias = database()
    effects = SideEffect.objects.using(alias).filter(run=run).select_related("step").order_by("-created_at", "-id")
    steps = list(
        StepRun.objects.using(alias).filter(run=run, state__in=[str(state) for state in STEP_OPEN])[:ROWS_READ]
    )
    known = list(effects.defer("arguments", "step__input", "step__output")[:ROWS_READ])[::-1]
    return Rows(
        now=now,
        events=[],
        steps=steps,
        effects=known,
        requests=list(ApprovalRequest.objects.using(alias).filter(run=run, state=ApprovalState.OPEN)[:ROWS_READ]),
        decisions=[],
        release_unknown=_unknown_release(run, now) if any(step.state == StepState.READY for step in steps) else "",
        breakers=_breakers(steps, known),
    )


def _breakers(steps: list[StepRun], effects: list[SideEffect]) -> Mapping[str, Breaker]:
    """Of the providers that a step waits for, and of those that are to be asked what happened."""
    asked = {row.provider for row in effects if row.state == EffectState.UNKNOWN}
    names = asked | {step.held_by for step in steps if step.held_by}
    return provider_state.read_all(names) if names else {}


def _unknown_release(run: WorkflowRun, now: datetime) -> str:
    since = now - timedelta(seconds=settings().STALE_SECONDS)
    alive = list(Worker.objects.using(database()).filter(stopped_at__isnull=True, heartbeat_at__gt=since)[:ROWS_READ])
    if not alive or any([run.workflow, run.version] in worker.knows for worker in alive):
        return ""
    return f"{run.workflow} version {run.version}"
