"""What a run still says aloud after a person has dealt with one thing of it. Called with the run locked; in memory."""

from collections.abc import Iterator
from datetime import datetime

from durableflows import alerts, endings, undoing
from durableflows.core.states import EFFECT_PENDING, RunState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.transactions import database

COMPENSATED = (RunState.COMPENSATED, RunState.COMPENSATION_FAILED)


def after_verdict(run_locked: WorkflowRun, now: datetime) -> None:
    """Say what still waits for a person, and no more; beside a contradiction that nobody has seen all that was said."""
    run = run_locked
    if not SideEffect.objects.using(database()).filter(run=run).exclude(contradiction="").exists():
        run.alert, run.alert_at = "", None
    for text in _still(run):
        alerts.add(run, text, now)
    endings.alert_of_cleanup(run, now)


def _still(run: WorkflowRun) -> Iterator[str]:
    """What is read from the rows: steps that ask, what could not be undone, what an heir has to settle."""
    asks = StepRun.objects.using(database()).filter(run=run, needs_person=True, ended_at__isnull=True)
    yield from asks.order_by("id").values_list("waits_for", flat=True)
    if run.state in COMPENSATED and (left := undoing.names_left(run)):
        yield f"not undone: {', '.join(left)}"
    if run.state == RunState.ABANDONED:
        rows = SideEffect.objects.using(database()).filter(run=run, state__in=[str(one) for one in EFFECT_PENDING])
        for row in rows.filter(next_lookup_at__isnull=True).order_by("id"):
            yield f"{row} is {row.state}: {run.heir_name} has inherited it"
