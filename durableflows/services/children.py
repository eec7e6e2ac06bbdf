"""What crosses between a run and the child that one of its steps waits for: the start, the end, and a cancel.

Each crossing is due as long as the rows say so, whoever looks: a message for speed, the sweep for certainty. One
transaction waits for the lock of one run, never of both, so parents and children cannot deadlock: a hand-over, which
must see that the child stays ended, and a cancel, which must see that nobody waits for it again, take both locks if
they are free, and are left for later if they are not.
Source: design, section 4 (locks); R09.
"""

from datetime import datetime
from typing import cast
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from durableflows import claims, clock, endings, integrity, journal, progress, releases, undo_children, undoing
from durableflows.boundaries import Boundary, cross
from durableflows.core import decide, registry
from durableflows.core.decide import Decision
from durableflows.core.outcomes import ErrorInfo
from durableflows.core.payload import JSON
from durableflows.core.states import EndingReason, RunState, StepState, WaitsOn
from durableflows.errors import UnknownWorkflow
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.locks import lock_step, try_lock_run
from durableflows.models.step import GOES_ON
from durableflows.services import runs
from durableflows.transactions import database, transact

DEEPEST = 10


def carry(step_id: UUID) -> bool:
    """Do what is due between a step and its child. Safe to call at any time and by anybody; False: nothing was.

    Crash   before a commit nothing of it; after it the sweep finds what is due next
    """
    step = StepRun.objects.using(database()).select_related("run").filter(pk=step_id).first()
    if step is None:
        return False
    child = WorkflowRun.objects.using(database()).filter(parent_step=step).first()
    moved = _carry(step, child)
    cross(Boundary.CROSSING_AFTER_COMMIT)
    return moved


def _carry(step: StepRun, child: WorkflowRun | None) -> bool:
    waits = _waits(step)
    if waits and child is None:
        return _start(step.run_id, step.pk)
    if child is None:
        return False
    if waits and child.ended_at is not None:
        return _hand_back(step.run_id, step.pk, child.pk)
    if undo_children.due().filter(pk=child.pk).exists():
        return _undo(step.run_id, child.pk)
    if _is_to_be_cancelled(child, step, step.run):
        return _cancel(step.run_id, step.pk, child.pk)
    return False


def _waits(step: StepRun) -> bool:
    return step.state == StepState.WAITING and step.waits_on == WaitsOn.CHILD


def _is_to_be_cancelled(child: WorkflowRun, step: StepRun, parent: WorkflowRun) -> bool:
    """Is nobody waiting for the child any more, and does it go on?"""
    # A cancel is never taken back, and the parent may wait long for an effect of its own before it ends (P6).
    is_left = not _waits(step) or (parent.cancel_asked_at is not None and not step.of_cleanup)
    return is_left and child.ended_at is None and child.cancel_asked_at is None


def due() -> dict[str, QuerySet[StepRun]]:
    """The steps with something to carry, by what is due for their child. Few projects have children at all times."""
    waiting = StepRun.objects.using(database()).filter(state=StepState.WAITING, waits_on=WaitsOn.CHILD)
    children = WorkflowRun.objects.using(database()).filter(parent_step__isnull=False)
    found: dict[str, QuerySet[StepRun]] = {}
    if waiting.exists():
        found |= _due_where_one_waits(waiting.filter(GOES_ON).order_by("id"))
    if children.exists():
        found |= _due_of(children)
    return found


def _due_where_one_waits(steps: QuerySet[StepRun]) -> dict[str, QuerySet[StepRun]]:
    children = WorkflowRun.objects.using(database()).filter(parent_step=OuterRef("pk"))
    return {
        "start": steps.filter(~Exists(children)),
        "hand back": steps.filter(Exists(children.filter(ended_at__isnull=False))),
    }


def _due_of(children: QuerySet[WorkflowRun]) -> dict[str, QuerySet[StepRun]]:
    live = children.filter(ended_at__isnull=True, cancel_asked_at__isnull=True)
    cancelled = Q(parent__cancel_asked_at__isnull=False, parent_step__of_cleanup=False)
    left = live.filter(~Q(parent_step__state=StepState.WAITING) | cancelled)
    steps = StepRun.objects.using(database()).order_by("id")
    return {
        "cancel": steps.filter(pk__in=left.values("parent_step")),
        "undo": steps.filter(pk__in=undo_children.due().values("parent_step")),
    }


@transact
def _start(run_id: UUID, step_id: UUID) -> bool:
    """Start the child that the step has asked for; one, however often this is done."""
    parent, step, now = _waiting(run_id, step_id)
    if parent is None or step is None or _has_child(step):
        return False
    if claims.park_if_changed(parent, step, now):
        return True
    wanted = cast(dict[str, JSON], step.input["child"])
    try:
        definition = registry.get(str(wanted["workflow"]), cast(int, wanted["version"]))
    except UnknownWorkflow:  # left for a process that knows it, as a step is
        asked = (str(wanted["workflow"]), cast(int, wanted["version"]))
        return releases.park_if_unknown(parent, step, now, wanted=asked)
    if _depth(parent) >= DEEPEST:
        error = ErrorInfo("", "too_deep", f"children of children, more than {DEEPEST} deep: is there a loop?")
        _fail(parent, step, error, {}, now)
        return True
    runs.start_child(definition, cast(dict[str, JSON], wanted["data"]), parent, step, now)
    cross(Boundary.CROSSING_BEFORE_COMMIT)
    return True


def _has_child(step_locked: StepRun) -> bool:
    """Has somebody started it since its absence was seen?"""
    return WorkflowRun.objects.using(database()).filter(parent_step=step_locked).exists()


@transact
def _hand_back(run_id: UUID, step_id: UUID, child_id: UUID) -> bool:
    """Give the child's end to the step that waits for it, once: it waits no more afterwards.

    Under the child's lock: who lets a child go on looks, under the same lock, whether its end is awaited still.
    """
    parent, step, now = _waiting(run_id, step_id)
    if parent is None or step is None:
        return False
    child = try_lock_run(child_id)
    if child is None or child.ended_at is None:
        return False
    if claims.park_if_changed(parent, step, now):
        return True
    told: dict[str, JSON] = {"run": str(child.pk), "workflow": child.workflow, "state": str(child.state)}
    if child.state == RunState.SUCCEEDED:
        item = {"item": step.input["item"]} if "item" in step.input else {}
        integrity.give(step, {**item, "child": {**told, "result": child.result, "error": ""}})
        step.store("input", "input_seal")
        progress.apply(parent, step, Decision("make_ready", reason=f"{child.workflow} has ended well"), now=now)
    else:
        text = f"{child.workflow} {child.word}" + (f": {child.error_text}" if child.error_text else "")
        brings: dict[str, JSON] = {"child": {**told, "result": child.result, "error": text}}
        _fail(parent, step, ErrorInfo("", "child_failed", text), brings, now)
    cross(Boundary.CROSSING_BEFORE_COMMIT)
    return True


def _fail(parent: WorkflowRun, step: StepRun, error: ErrorInfo, brings: dict[str, JSON], now: datetime) -> None:
    wanted = cast(dict[str, JSON], step.input["child"])
    on_failure = cast("str | None", wanted["on_failure"])
    progress.apply(parent, step, decide.after_failed_child(error, on_failure, brings), now=now)


def _waiting(run_id: UUID, step_id: UUID) -> tuple[WorkflowRun | None, StepRun | None, datetime]:
    """Lock run and step, and look again: does the step still wait, in a run that goes on?"""
    run = try_lock_run(run_id)
    step = lock_step(step_id) if run is not None else None
    now = clock.now()
    if run is None or step is None or run.parked_reason or not run.lets(of_cleanup=step.of_cleanup):
        return None, None, now
    if not _waits(step):
        return None, None, now
    return run, step, now


@transact
def _cancel(run_id: UUID, step_id: UUID, child_id: UUID) -> bool:
    """Cancel a child whose parent does not wait for it any more, or is itself cancelled.

    Under the parent's lock: an extension may have let it go on since, and its step waits for this child again.
    """
    parent = try_lock_run(run_id)
    child = try_lock_run(child_id) if parent is not None else None
    if parent is None or child is None or not _is_to_be_cancelled(child, lock_step(step_id), parent):
        return False
    reason = f"{parent.workflow} run {parent.pk}, which started it, {parent.word}"
    runs.ask_cancel(child, "", reason, clock.now())
    cross(Boundary.CROSSING_BEFORE_COMMIT)
    return True


@transact
def _undo(run_id: UUID, child_id: UUID) -> bool:
    """Let a child undo itself, since the run that started it is undone; also one that has ended well.

    Under the parent's lock: it goes on to undo what it did itself only when every child has
    """
    parent = try_lock_run(run_id)
    child = try_lock_run(child_id) if parent is not None else None
    if parent is None or child is None or not undo_children.due().filter(pk=child_id).exists():
        return False
    now = clock.now()
    reason = f"{parent.workflow} run {parent.pk}, which started it, is undone"
    journal.record(child, "run.compensate_asked", at=now, data={"reason": reason})
    if child.ended_at is not None:
        undoing.begin_again(child)
    endings.begin(child, EndingReason.COMPENSATE, reason, now)
    progress.conclude(child, now)
    cross(Boundary.CROSSING_BEFORE_COMMIT)
    return True


def _depth(run: WorkflowRun) -> int:
    depth, parent_id = 0, run.parent_id
    while parent_id is not None and depth <= DEEPEST:
        parent_id = WorkflowRun.objects.using(database()).values_list("parent_id", flat=True).get(pk=parent_id)
        depth += 1
    return depth
