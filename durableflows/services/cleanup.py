"""Removing runs that ended long ago, with all their rows and files. One run, one transaction; nothing else deletes.

Where an archive is named, a run is written there first, whole and read back; then its rows go, if they still are what
was written.

Nothing goes that somebody may still need: what is unsettled, contradicts itself, is looked up later, or belongs to a
run that stays. A parent goes before its children: a child that is gone would be started again. The history cannot show
that a whole run is gone (P13), so each removal is a line in the log, and its business key is free again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from durableflows import archives, artifacts
from durableflows.archives import Kept
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
    """How much went with a run; `left`: which of its files the storage did not remove; `archive`: where it is kept."""

    events: int
    files: int
    left: tuple[str, ...]
    archive: str = ""


def check_moment(ended_before: datetime, now: datetime) -> None:
    """Raise InvalidState for a moment that is too near: what has just ended is looked at, extended, or redriven."""
    if ended_before > now - SHORTEST:
        raise InvalidState("cleanup: only runs that have ended a day ago or earlier are removed")


def ended(before: datetime, workflow: str = "", state: str = "") -> QuerySet[WorkflowRun]:
    """The runs that ended before a moment, whatever of them is in the way."""
    runs = WorkflowRun.objects.using(database()).filter(ended_at__lt=before).order_by("pk")
    runs = runs.filter(workflow=workflow) if workflow else runs
    return runs.filter(state=state) if state else runs


def removable(before: datetime, workflow: str = "", state: str = "") -> QuerySet[WorkflowRun]:
    """Those that nothing is in the way of."""
    runs = ended(before, workflow, state)
    for in_the_way in _in_the_way().values():
        runs = runs.exclude(in_the_way)
    return runs


def kept(before: datetime, workflow: str = "", state: str = "") -> Mapping[str, int]:
    """Why others are kept -> how many; each counts once, for the first reason."""
    runs, counts = ended(before, workflow, state), {}
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


def following(before: datetime, workflow: str = "", state: str = "") -> int:
    """How many runs would go after the run that has started them has gone."""
    count, parents = 0, removable(before, workflow, state)
    *own, _ = _in_the_way().values()
    for _level in range(DEEPEST):
        children = ended(before, workflow, state).filter(parent__in=parents.order_by().values("pk"))
        for in_the_way in own:
            children = children.exclude(in_the_way)
        found = children.count()
        if not found:
            break
        count, parents = count + found, children
    return count


def remove(run_id: UUID, before: datetime, *, archive: str = "") -> Removed | None:
    """Remove a run with all its rows, then its files. None: something is in the way, or somebody holds it.

    archive          alias of the storage that keeps it; it is written and read back before anything is locked
    Raises           IntegrityError when a row of the project refers to the run and forbids it; NotArchived when the
                     storage fails. Nothing is removed then
    Writes / Locks   deletes from every table; locks the run. Its children lose their parent
    Crash            before the commit nothing of it, though its archive may be there: the next one finds it. After it
                     its files may remain in `durableflows/<run id>/`
    """
    keeping = _archived(run_id, before, archive) if archive else None
    if archive and keeping is None:
        return None
    gone = _remove(run_id, before, keeping)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    if gone is None:
        if keeping is not None:
            archives.let_go(keeping)
        return None
    run, names = gone
    left = artifacts.discard(names)
    logger.info("removed %s", _told(run, run_id, keeping))
    return Removed(run.event_sequence, len(names) - len(left), left, "" if keeping is None else keeping.name)


def _archived(run_id: UUID, before: datetime, alias: str) -> Kept | None:
    run = removable(before).filter(pk=run_id).first()
    return None if run is None else archives.keep_run(run, alias)


def _told(run: WorkflowRun, run_id: UUID, keeping: Kept | None) -> str:
    said = f"{run.workflow} run={run_id} key={run.business_key!r} {run.state} {run.ended_at}"
    said += f" events={run.event_sequence}"
    return said if keeping is None else f"{said} archive={keeping.name} sha256={keeping.sha256}"


class _ChangedMeanwhile(Exception):
    """Somebody wrote rows of the run while it was being removed."""


def _remove(run_id: UUID, before: datetime, keeping: Kept | None) -> tuple[WorkflowRun, frozenset[str]] | None:
    try:
        return _remove_locking(run_id, before, keeping)
    except _ChangedMeanwhile:
        return None


@transact
def _remove_locking(run_id: UUID, before: datetime, keeping: Kept | None) -> tuple[WorkflowRun, frozenset[str]] | None:
    run = try_lock_run(run_id)
    if run is None or not removable(before).filter(pk=run_id).exists():
        return None
    if keeping is not None and archives.digest_of_rows(run_id) != (keeping.rows, keeping.rows_sha256):
        return None  # it is not what was archived any more: the next one archives what it is now
    names = frozenset(Artifact.objects.using(database()).filter(run=run).values_list("storage_name", flat=True))
    WorkflowRun.objects.using(database()).filter(parent=run).update(parent=None, parent_step=None)
    removed = _remove_rows(run)
    if keeping is not None and removed != keeping.rows:
        raise _ChangedMeanwhile  # looks at requests are kept without the run's lock
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run, names


def _remove_rows(run: WorkflowRun) -> int:
    """Delete what refers to others before what is referred to. The run's own row goes by Django's rules for deletion:
    a row of the project may go with it, let go of it, or keep it. Returns how many of ours there were.
    """
    alias = database()
    effects, steps = SideEffect.objects.using(alias).filter(run=run), StepRun.objects.using(alias).filter(run=run)
    count = delete(EffectSend.objects.using(alias).filter(effect__run=run))
    count += delete(ProviderEvent.objects.using(alias).filter(effect__run=run))
    for rows in (ModelCall, Signal, Artifact, RunEvent):
        count += delete(rows.objects.using(alias).filter(run=run))
    count += delete(StepAttempt.objects.using(alias).filter(step__run=run))
    count += delete(ApprovalRequest.editors.through.objects.using(alias).filter(approvalrequest__run=run))
    count += delete(Addressee.objects.using(alias).filter(request__run=run))
    RequestNote.objects.using(alias).filter(request__run=run).update(answers=None)
    for of_requests in (RequestView, Notification, Announcement, ApprovalLink, RequestNote, ApprovalDecision):
        count += delete(of_requests.objects.using(alias).filter(request__run=run))
    count += delete(ApprovalRequest.objects.using(alias).filter(run=run))
    effects.update(undoes=None, replaces=None)
    count += delete(effects)
    steps.update(gather=None, came_from=None)
    count += delete(steps)
    run.delete(using=alias)
    return count + 1
