"""What a run says aloud to people: texts beside each other in `run.alert`. In memory; whoever calls stores the run.

Called with the run locked. Decides nothing: what is loud, and until when, is each caller's.
"""

from datetime import datetime

from durableflows.models import StepRun, WorkflowRun
from durableflows.transactions import database

BETWEEN = "; "


def add(run_locked: WorkflowRun, text: str, now: datetime) -> None:
    """Say one thing more, once."""
    run = run_locked
    if _set_off(text) not in _set_off(run.alert):
        run.alert, run.alert_at = f"{run.alert}{BETWEEN}{text}" if run.alert else text, now


def drop(run_locked: WorkflowRun, text: str) -> None:
    """Say one thing no more; what else is said stays, also where this is a part of it."""
    run = run_locked
    left = _set_off(run.alert).replace(_set_off(text), BETWEEN, 1) if text else _set_off(run.alert)
    run.alert = left.removeprefix(BETWEEN).removesuffix(BETWEEN)
    run.alert_at = run.alert_at if run.alert else None


def drop_question(run_locked: WorkflowRun, step_locked: StepRun) -> None:
    """Say no more what this step needs a person for, unless another one needs a person for the same (P10)."""
    step = step_locked
    asks = StepRun.objects.using(database()).filter(run=run_locked, needs_person=True, ended_at__isnull=True)
    if not asks.filter(waits_for=step.waits_for).exclude(pk=step.pk).exists():
        drop(run_locked, step.waits_for)


def _set_off(text: str) -> str:
    return f"{BETWEEN}{text}{BETWEEN}"
