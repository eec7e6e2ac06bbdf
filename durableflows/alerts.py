"""What a run says aloud to people: texts beside each other in `run.alert`. In memory; whoever calls stores the run.

Called with the run locked. Decides nothing: what is loud, and until when, is each caller's.
"""

from datetime import datetime

from durableflows.models import WorkflowRun

BETWEEN = "; "


def add(run_locked: WorkflowRun, text: str, now: datetime) -> None:
    """Say one thing more, once."""
    run = run_locked
    if text not in run.alert:
        run.alert, run.alert_at = f"{run.alert}{BETWEEN}{text}" if run.alert else text, now


def drop(run_locked: WorkflowRun, text: str) -> None:
    """Say one thing no more; what else is said stays."""
    run = run_locked
    for part in (f"{BETWEEN}{text}", f"{text}{BETWEEN}", text):
        if text and part in run.alert:
            run.alert = run.alert.replace(part, "", 1)
            break
    run.alert_at = run.alert_at if run.alert else None
