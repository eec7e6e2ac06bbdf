"""Removing runs that ended long ago, with all their rows and files. One run, one transaction; nothing else deletes.

Nothing goes that somebody may still need: what is unsettled, contradicts itself, is looked up later, or belongs to a
run that stays. A parent goes before its children: a child that is gone would be started again. The history cannot show
that a whole run is gone (P13), so each removal is a line in the log, and its business key is free again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from durableflows import artifacts
from durableflows.boundaries import Boundary, cross
from durableflows.core import log_lines
from durableflows.core.states import EFFECT_OPEN, EffectState
from durableflows.errors import InvalidState
from durableflows.models import (
    Addressee,
    Announcement,
    ApprovalDecision,
    ApprovalLink,
    ApprovalRequest,
    Artifact,
    EffectSend,
    ModelCall,
    Notification,
    ProviderEvent,
    RequestNote,
    RequestView,
    RunEvent,
    SideEffect,
    Signal,
    StepAttempt,
    StepRun,
    WorkflowRun,
)
from durableflows.models.compiled import delete
from durableflows.models.locks import try_lock_run
from durableflows.transactions import database, transact

logger = log_lines.logger("durableflows.cleanup")

SHORTEST = timedelta(days=1)
DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Removed:
    """How much went with a run; `left`: which of its files the storage did not remove."""

    events: int
    files: int
    left: tuple[str, ...]


def check_moment(ended_before: datetime, now: datetime) -> None:
    """Raise InvalidState for a moment that is too near: what has just ended is looked at, extended, or redriven."""
    if ended_before > now - SHORTEST:
        raise InvalidState("cleanup: only runs that have ended a day ago or earlier are removed")


def ended(before: datetime, workflow: str = "") -> QuerySet[WorkflowRun]:
    """The runs that ended before a moment, whatever of them is in the way."""
    runs = WorkflowRun.objects.using(database()).filter(ended_at__lt=before).order_by("pk")
    return runs.filter(workflow=workflow) if workflow else runs


def removable(before: datetime, workflow: str = "") -> QuerySet[WorkflowRun]:
    """Those that nothing is in the way of."""
    runs = ended(before, workflow)
    for in_the_way in _in_the_way().values():
        runs = runs.exclude(in_the_way)
    return runs


def kept(before: datetime, workflow: str = "") -> Mapping[str, int]:
    """Why others are kept -> how many; each counts once, for the first reason."""
    runs, counts = ended(before, workflow), {}
    for words, in_the_way in _in_the_way().items():
        counts[words] = runs.filter(in_the_way).count()
        runs = runs.exclude(in_the_way)
    return {words: count for words, count in counts.items() if count}


def _in_the_way() -> Mapping[str, Q | Exists]:
    """What keeps a run, in words for people."""
    effects = SideEffect.objects.using(database()).filter(run=OuterRef("pk"))
    children = WorkflowRun.objects.using(database()).filter(parent=OuterRef("pk"))
    return {
        "an effect of it is not settled": Exists(effects.filter(state__in=[str(state) for state in EFFECT_OPEN])),
        "an effect of it is looked up once more": Exists(effects.filter(audit_at__isnull=False)),
        "a person has to look at a contradiction": Exists(effects.exclude(contradiction="")),
        "a person has to say what became of what could not be undone": Exists(
            effects.filter(state=EffectState.UNDO_FAILED)
        ),
        "a run that it has started goes on": Exists(children.filter(ended_at__isnull=True)),
        "the run that has started it is kept, or goes first": Q(parent__isnull=False),
    }


def following(before: datetime, workflow: str = "") -> int:
    """How many runs would go after the run that has started them has gone."""
    count, parents = 0, removable(before, workflow)
    *own, _ = _in_the_way().values()
    for _level in range(DEEPEST):
        children = ended(before, workflow).filter(parent__in=parents.order_by().values("pk"))
        for in_the_way in own:
            children = children.exclude(in_the_way)
        found = children.count()
        if not found:
            break
        count, parents = count + found, children
    return count


def remove(run_id: UUID, before: datetime) -> Removed | None:
    """Remove a run with all its rows, then its files. None: something is in the way, or somebody holds it.

    Raises           IntegrityError when a row of the project refers to the run and forbids it; nothing is removed then
    Writes / Locks   deletes from every table; locks the run. Its children lose their parent
    Crash            before the commit nothing of it; after it its files may remain in `durableflows/<run id>/`
    """
    gone = _remove(run_id, before)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    if gone is None:
        return None
    run, names = gone
    left = artifacts.discard(names)
    logger.info("removed %s", _told(run, run_id))
    return Removed(run.event_sequence, len(names) - len(left), left)


def _told(run: WorkflowRun, run_id: UUID) -> str:
    return (
        f"{run.workflow} run={run_id} key={run.business_key!r} {run.state} {run.ended_at} events={run.event_sequence}"
    )


@transact
def _remove(run_id: UUID, before: datetime) -> tuple[WorkflowRun, frozenset[str]] | None:
    run = try_lock_run(run_id)
    if run is None or not removable(before).filter(pk=run_id).exists():
        return None
    names = frozenset(Artifact.objects.using(database()).filter(run=run).values_list("storage_name", flat=True))
    WorkflowRun.objects.using(database()).filter(parent=run).update(parent=None, parent_step=None)
    _remove_rows(run)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run, names


def _remove_rows(run: WorkflowRun) -> None:
    """Delete what refers to others before what is referred to. The run's own row goes by Django's rules for deletion:
    a row of the project may go with it, let go of it, or keep it.
    """
    alias = database()
    effects, steps = SideEffect.objects.using(alias).filter(run=run), StepRun.objects.using(alias).filter(run=run)
    delete(EffectSend.objects.using(alias).filter(effect__run=run))
    delete(ProviderEvent.objects.using(alias).filter(effect__run=run))
    for rows in (ModelCall, Signal, Artifact, RunEvent):
        delete(rows.objects.using(alias).filter(run=run))
    delete(StepAttempt.objects.using(alias).filter(step__run=run))
    delete(ApprovalRequest.editors.through.objects.using(alias).filter(approvalrequest__run=run))
    delete(Addressee.objects.using(alias).filter(request__run=run))
    RequestNote.objects.using(alias).filter(request__run=run).update(answers=None)
    for of_requests in (RequestView, Notification, Announcement, ApprovalLink, RequestNote, ApprovalDecision):
        delete(of_requests.objects.using(alias).filter(request__run=run))
    delete(ApprovalRequest.objects.using(alias).filter(run=run))
    effects.update(undoes=None, replaces=None)
    delete(effects)
    steps.update(gather=None, came_from=None)
    delete(steps)
    run.delete(using=alias)
