"""What an explanation of a run is made of: its rows, bounded, in a few queries. Reads only; for `explain` alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from durableflows import models, provider_state
from durableflows.conf import settings
from durableflows.core.breaker import Breaker
from durableflows.core.states import STEP_OPEN, ApprovalState, EffectState, StepState
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, Worker, WorkflowRun
from durableflows.models.together import Few, fields_of, read_together
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
    """Read them by one statement, however long the run is; one more while a step waits for a worker or a provider."""
    return read_beside(run, now)[0]


def read_beside(run: WorkflowRun, now: datetime, *others: Few) -> tuple[Rows, list[list[Any]]]:
    """The same, and by the same statement other short lists, for the page around it."""
    lists = (Few(_events(run), _EVENT), Few(_decisions(run), fields_of(ApprovalDecision)))
    rows, (events, decisions, *more) = _read(run, now, *lists, *others)
    events.sort(key=lambda event: event.sequence)
    decisions.sort(key=lambda one: (one.at, one.pk), reverse=True)
    return replace(rows, events=events, decisions=decisions), more


def read_for_page(
    run: WorkflowRun, now: datetime, requests: Iterable[ApprovalRequest], steps: Sequence[StepRun]
) -> Rows:
    """The same, with what each effect was asked for. `requests`, `steps`: the run's newest, which the page has read."""
    # An old step may still be open when the page shows only newer ones.
    known = list(_open(run)) if len(steps) >= ROWS_READ else [step for step in steps if step.state in STEP_OPEN]
    effects = _effects(run).select_related("step").defer("step__input", "step__output")
    events = _events(run).select_related("step").defer("step__input", "step__output")
    rows = _standing(run, now, list(effects)[::-1], requests, known)
    return replace(rows, events=list(events)[::-1], decisions=list(_decisions(run)))


def read_standing(run: WorkflowRun, now: datetime) -> Rows:
    """The same without events and decisions: what the run's standing is read from. One statement, and one as there."""
    return _read(run, now)[0]


def _read(run: WorkflowRun, now: datetime, *others: Few) -> tuple[Rows, list[list[Any]]]:
    requests = ApprovalRequest.objects.using(database()).filter(run=run, state=ApprovalState.OPEN)[:ROWS_READ]
    lists = (Few(_open(run), _STEP), Few(_effects(run), _EFFECT), Few(requests, _REQUEST))
    steps, effects, asked, *more = read_together(database(), *lists, *others)
    steps.sort(key=lambda step: (step.created_at, step.pk))
    effects.sort(key=lambda row: (row.created_at, row.pk))
    asked.sort(key=lambda one: (one.created_at, one.pk), reverse=True)
    return _standing(run, now, effects, asked, steps), more


_STEP = fields_of(StepRun, but=("output", "stood", "joined", "input_seal", "error_text"))
_EFFECT = (*fields_of(SideEffect, but=("arguments", "request_digest")), "step__id", "step__of_cleanup")
_REQUEST = fields_of(ApprovalRequest, but=("binding", "context", "edit_schema"))
_EVENT = (
    *("id", "run_id", "sequence", "kind", "actor_name", "data", "at", "step_id"),
    *("step__id", "step__name", "step__visit", "step__item_key", "step__of_cleanup"),
)


def _open(run: WorkflowRun) -> QuerySet[StepRun]:
    states = [str(state) for state in STEP_OPEN]
    return StepRun.objects.using(database()).filter(run=run, state__in=states)[:ROWS_READ]


def _effects(run: WorkflowRun) -> QuerySet[SideEffect]:
    return SideEffect.objects.using(database()).filter(run=run).order_by("-created_at", "-id")[:ROWS_READ]


def _events(run: WorkflowRun) -> QuerySet[RunEvent]:
    return RunEvent.objects.using(database()).filter(run=run).order_by("-sequence")[:EVENTS_SHOWN]


def _decisions(run: WorkflowRun) -> QuerySet[ApprovalDecision]:
    rows = ApprovalDecision.objects.using(database()).filter(request__run=run)
    return rows.order_by("-at", "-id")[:ROWS_READ]


def _standing(
    run: WorkflowRun,
    now: datetime,
    effects: list[SideEffect],
    requests: Iterable[ApprovalRequest],
    steps: list[StepRun],
) -> Rows:
    release_unknown, breakers = _surroundings(run, now, steps, effects)
    return Rows(
        now=now,
        events=[],
        steps=steps,
        effects=effects,
        requests=[one for one in requests if one.state == ApprovalState.OPEN],
        decisions=[],
        release_unknown=release_unknown,
        breakers=breakers,
    )


def _surroundings(
    run: WorkflowRun, now: datetime, steps: list[StepRun], effects: list[SideEffect]
) -> tuple[str, Mapping[str, Breaker]]:
    """What a step waits for: a release that no worker has, while one is to be taken by a worker; and the breakers of
    the providers that a step waits for, and of those that are to be asked what happened.
    """
    is_ready = any(step.state == StepState.READY for step in steps)
    names = {row.provider for row in effects if row.state == EffectState.UNKNOWN}
    names |= {step.held_by for step in steps if step.held_by}
    if not is_ready and not names:
        return "", {}
    since = now - timedelta(seconds=settings().STALE_SECONDS)
    alive = Worker.objects.using(database()).filter(stopped_at__isnull=True, heartbeat_at__gt=since)[:ROWS_READ]
    lists = [Few(alive, ("boot_id", "knows"))] if is_ready else []
    lists += [Few(provider_state.rows_of(names), fields_of(models.Breaker))] if names else []
    found = read_together(database(), *lists)
    workers = found.pop(0) if is_ready else []
    breakers = {row.provider: provider_state.value(row) for row in (found.pop() if names else [])}
    return _unknown_release(run, workers) if is_ready else "", breakers


def _unknown_release(run: WorkflowRun, alive: list[Worker]) -> str:
    if not alive or any([run.workflow, run.version] in worker.knows for worker in alive):
        return ""
    return f"{run.workflow} version {run.version}"
