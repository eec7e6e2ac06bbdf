"""What this worker holds, and giving back what it has received and nobody has claimed. For `control`, in its parent."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import connections

from durableflows import clock, dispatch, leases
from durableflows.core.states import StepState
from durableflows.models import StepRun
from durableflows.transactions import database


def held() -> list[dict[str, Any]]:
    """The steps under way here: since when, in which process, and until when the lease lasts."""
    try:
        now = clock.now()
        rows = StepRun.objects.using(database()).filter(state=StepState.RUNNING, lease_worker=leases.boot_id())
        return [_line(step, now) for step in rows.select_related("run").order_by("must_end_by")]
    finally:
        connections[database()].close()  # the pool forks from this process


def _line(step: StepRun, now: Any) -> dict[str, Any]:
    claimed_at, pid = step.tries.order_by("-number").values_list("started_at", "pid")[0]
    return {
        "run": str(step.run_id),
        "step": f"{step.run.workflow}.{step.name}",
        "step_id": str(step.pk),
        "attempt": step.attempts,
        "pid": pid,
        "task": step.lease_task_id,
        "since": claimed_at.isoformat(),
        "seconds": round((now - claimed_at).total_seconds(), 1),
        "must_end_by": None if step.must_end_by is None else step.must_end_by.isoformat(),
    }


def give_back(steps: Iterable[UUID]) -> int:
    """Let a ticker send these again at once. Those that are claimed are not READY, and stay where they are."""
    try:
        return sum(1 for step_id in steps if dispatch.give_back(step_id))
    finally:
        connections[database()].close()
