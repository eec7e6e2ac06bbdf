"""What an explanation of a run is made of: its rows, bounded, in a few queries. Reads only; for `explain` alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db.models import QuerySet

from durableflows import provider_state
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


def read(run: WorkflowRun, now: datetime) -> Rows:
    """Read them: five queries, however long the run is; one more while a step waits for a worker, and one while it
    waits for a provider."""
    return _with_history(read_standing(run, now), run)


def read_for_page(
    run: WorkflowRun, now: datetime, requests: Iterable[ApprovalRequest], steps: Sequence[StepRun]
) -> Rows:
    """The same, with what each effect was asked for. `requests`, `steps`: the run's newest, which the page has read."""
    # An old step may still be open when the page shows only newer ones.
    known = _open(run) if len(steps) >= ROWS_READ else [step for step in steps if step.state in STEP_OPEN]
    return _with_history(_standing(run, now, _effects(run), requests, known), run)


def _with_history(rows: Rows, run: WorkflowRun) -> Rows:
    alias = database()
    events = RunEvent.objects.using(alias).filter(run=run).select_related("step").order_by("-sequence")
    decisions = ApprovalDecision.objects.using(alias).filter(request__run=run).order_by("-at", "-id")
    return replace(
        rows,
        events=list(events.defer("step__input", "step__output")[:EVENTS_SHOWN])[::-1],
        decisions=list(decisions[:ROWS_READ]),
    )


def read_standing(run: WorkflowRun, now: datetime) -> Rows:
    """The same without events and decisions: what the run's standing is read from. Three queries, and two as there."""
    requests = ApprovalRequest.objects.using(database()).filter(run=run, state=ApprovalState.OPEN)[:ROWS_READ]
    effects = _effects(run).defer("arguments", "step__input", "step__output")
    return _standing(run, now, effects, requests, _open(run))


def _open(run: WorkflowRun) -> list[StepRun]:
    states = [str(state) for state in STEP_OPEN]
    return list(StepRun.objects.using(database()).filter(run=run, state__in=states)[:ROWS_READ])


def _effects(run: WorkflowRun) -> QuerySet[SideEffect]:
    effects = SideEffect.objects.using(database()).filter(run=run).select_related("step")
    return effects.defer("step__input", "step__output").order_by("-created_at", "-id")


def _standing(
    run: WorkflowRun,
    now: datetime,
    effects: QuerySet[SideEffect],
    requests: Iterable[ApprovalRequest],
    steps: list[StepRun],
) -> Rows:
    known = list(effects[:ROWS_READ])[::-1]
    return Rows(
        now=now,
        events=[],
        steps=steps,
        effects=known,
        requests=[one for one in requests if one.state == ApprovalState.OPEN],
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
