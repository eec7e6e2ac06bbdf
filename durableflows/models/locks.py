"""Row locks, always in the order run, step, effect or request; one transaction locks one run.

On SQLite the lock is the transaction itself (BEGIN IMMEDIATE); `select_for_update` is ignored there.
"""

from uuid import UUID

from durableflows.conf import settings
from durableflows.core.states import STEP_OPEN, StepState
from durableflows.errors import NotFoundError
from durableflows.models.approval import ApprovalRequest
from durableflows.models.compiled import LockBy
from durableflows.models.effect import ProviderEvent, SideEffect
from durableflows.models.run import WorkflowRun
from durableflows.models.step import StepRun

# A step that is being undone is moved by its undo, a step of its own.
_OPEN = [str(state) for state in sorted(STEP_OPEN - {StepState.COMPENSATING})]
_RUN = LockBy(WorkflowRun, lambda rows, run_id: rows.filter(pk=run_id).order_by())
_RUN_IF_FREE = LockBy(WorkflowRun, lambda rows, run_id: rows.filter(pk=run_id).order_by(), skip_locked=True)
_STEP = LockBy(StepRun, lambda rows, step_id: rows.filter(pk=step_id).order_by())
_OPEN_STEPS = LockBy(StepRun, lambda rows, run_id: rows.filter(run=run_id, state__in=_OPEN).order_by("id"))
_EFFECT = LockBy(SideEffect, lambda rows, effect_id: rows.filter(pk=effect_id).order_by())
_EFFECTS = LockBy(SideEffect, lambda rows, step_id: rows.filter(step=step_id).order_by("id"))


def lock_run(run_id: UUID) -> WorkflowRun:
    """Lock the run. Raises NotFoundError."""
    for run in _RUN.rows(settings().DATABASE, run_id):
        return run
    raise NotFoundError(f"there is no run {run_id}")


def try_lock_run(run_id: UUID) -> WorkflowRun | None:
    """Lock the run unless somebody else holds it; sweeps come back later instead of waiting."""
    return next(iter(_RUN_IF_FREE.rows(settings().DATABASE, run_id)), None)


def lock_step(step_id: UUID) -> StepRun:
    """Lock the step; the caller holds its run. Raises NotFoundError."""
    for step in _STEP.rows(settings().DATABASE, step_id):
        return step
    raise NotFoundError(f"there is no step {step_id}")


def lock_steps(run: WorkflowRun) -> list[StepRun]:
    """Lock the open steps of a locked run, in one order; those that ended do not change, and may be many.

    Without those that are being undone
    """
    return _OPEN_STEPS.rows(settings().DATABASE, run.pk)


def lock_all_steps(run: WorkflowRun) -> list[StepRun]:
    """Lock every step of a locked run, those that have ended too, in one order."""
    rows = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(run=run).order_by("id"))


def lock_closed_steps(run: WorkflowRun, *, of_cleanup: bool) -> list[StepRun]:
    """Lock the steps of a locked run that its end closed, in one order: those that stand again when it goes on."""
    rows = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(run=run, of_cleanup=of_cleanup, stood__isnull=False).order_by("id"))


def lock_effect(effect_id: UUID) -> SideEffect:
    """Lock the effect; the caller holds its run and step. Raises NotFoundError."""
    for row in _EFFECT.rows(settings().DATABASE, effect_id):
        return row
    raise NotFoundError(f"there is no effect {effect_id}")


def lock_effects(step: StepRun) -> list[SideEffect]:
    """Lock all effects of a locked step, in one order."""
    return _EFFECTS.rows(settings().DATABASE, step.pk)


def lock_request(request_id: UUID) -> ApprovalRequest:
    """Lock the request; the caller holds its run and step. Raises NotFoundError."""
    rows = ApprovalRequest.objects.using(settings().DATABASE).select_for_update(no_key=True)
    request = rows.filter(pk=request_id).first()
    if request is None:
        raise NotFoundError(f"there is no request {request_id}")
    return request


def lock_event(event_id: UUID) -> ProviderEvent:
    """Lock a provider's event; the caller holds run, step and effect, where it has one. Raises NotFoundError."""
    rows = ProviderEvent.objects.using(settings().DATABASE).select_for_update(no_key=True)
    event = rows.filter(pk=event_id).first()
    if event is None:
        raise NotFoundError(f"there is no provider event {event_id}")
    return event
