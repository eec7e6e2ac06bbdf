"""Row locks, always in the order run, step, effect or request; one transaction locks one run.

On SQLite the lock is the transaction itself (BEGIN IMMEDIATE); `select_for_update` is ignored there.
"""

from uuid import UUID

from django.db import connections

from durableflows.conf import settings
from durableflows.core.states import STEP_OPEN
from durableflows.errors import NotFoundError
from durableflows.models.approval import ApprovalRequest
from durableflows.models.effect import SideEffect
from durableflows.models.run import WorkflowRun
from durableflows.models.step import StepRun


def lock_run(run_id: UUID) -> WorkflowRun:
    """Lock the run. Raises NotFoundError."""
    run = WorkflowRun.objects.using(settings().DATABASE).select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise NotFoundError(f"there is no run {run_id}")
    return run


def try_lock_run(run_id: UUID) -> WorkflowRun | None:
    """Lock the run unless somebody else holds it; sweeps come back later instead of waiting."""
    alias = settings().DATABASE
    skips = connections[alias].features.has_select_for_update_skip_locked
    rows = WorkflowRun.objects.using(alias).select_for_update(no_key=True, skip_locked=skips)
    return rows.filter(pk=run_id).first()


def lock_step(step_id: UUID) -> StepRun:
    """Lock the step; the caller holds its run. Raises NotFoundError."""
    step = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True).filter(pk=step_id).first()
    if step is None:
        raise NotFoundError(f"there is no step {step_id}")
    return step


def lock_steps(run: WorkflowRun) -> list[StepRun]:
    """Lock the open steps of a locked run, in one order; those that ended do not change, and may be many."""
    rows = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(run=run, state__in=[str(state) for state in STEP_OPEN]).order_by("id"))


def lock_all_steps(run: WorkflowRun) -> list[StepRun]:
    """Lock every step of a locked run, those that have ended too, in one order."""
    rows = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(run=run).order_by("id"))


def lock_closed_steps(run: WorkflowRun) -> list[StepRun]:
    """Lock the steps of a locked run that its end closed, in one order: those that stand again when it goes on."""
    rows = StepRun.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(run=run, stood__isnull=False).order_by("id"))


def lock_effect(effect_id: UUID) -> SideEffect:
    """Lock the effect; the caller holds its run and step. Raises NotFoundError."""
    row = SideEffect.objects.using(settings().DATABASE).select_for_update(no_key=True).filter(pk=effect_id).first()
    if row is None:
        raise NotFoundError(f"there is no effect {effect_id}")
    return row


def lock_effects(step: StepRun) -> list[SideEffect]:
    """Lock all effects of a locked step, in one order."""
    rows = SideEffect.objects.using(settings().DATABASE).select_for_update(no_key=True)
    return list(rows.filter(step=step).order_by("id"))


def lock_request(request_id: UUID) -> ApprovalRequest:
    """Lock the request; the caller holds its run and step. Raises NotFoundError."""
    rows = ApprovalRequest.objects.using(settings().DATABASE).select_for_update(no_key=True)
    request = rows.filter(pk=request_id).first()
    if request is None:
        raise NotFoundError(f"there is no request {request_id}")
    return request
