"""What all sweeps share: ids are picked without locks, then each row has its own transaction and is looked at again.

Called by the sweeps alone.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from durableflows import dispatch, progress, releases
from durableflows.core import log_lines, registry
from durableflows.core.states import RUN_MOVING
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.locks import lock_step, try_lock_run
from durableflows.transactions import database, is_away

logger = log_lines.logger("durableflows.sweeps")

Row = TypeVar("Row", bound=Model)

BATCH = 200
MOVING = [str(state) for state in RUN_MOVING]


def all_steps() -> QuerySet[StepRun]:
    """All steps, in the engine's database."""
    return StepRun.objects.using(database())


def while_open(send: Callable[[UUID], bool]) -> Callable[[UUID], bool]:
    """A broker that failed is left alone for a while: what it would refuse stays due, and is not counted as sent."""
    return lambda pk: dispatch.is_open() and send(pk)


def each(rows: QuerySet[Row], act: Callable[[UUID], bool]) -> int:
    """Act on each id of a batch, one transaction a row; a row that fails does not hold up the others."""
    done = 0
    for pk in list(rows.values_list("pk", flat=True)[:BATCH]):
        try:
            done += bool(act(pk))
        except Exception as error:  # a bad row waits for the next sweep
            if is_away(error):
                raise
            logger.exception("%s %s could not be swept", rows.model.__name__, pk)
    return done


def lock_going_on(step_id: UUID) -> tuple[WorkflowRun, StepRun] | None:
    """Lock a step and its run; None when somebody holds the run, or it does not go on by itself."""
    run_id = progress.run_of(step_id)
    run = try_lock_run(run_id) if run_id else None
    if run is None or run.parked_reason:
        return None
    step = lock_step(step_id)
    return (run, step) if run.lets(of_cleanup=step.of_cleanup) else None


def judged_here(now: datetime, run: str) -> Q:
    """Rows of runs whose release this process knows, or nobody (`releases.may_judge`): the others' turn comes there."""
    here, known = registry.known(), releases.known_releases(now)
    if known is None:
        return _of_releases(run, here)
    return ~_of_releases(run, known.difference(here))


def _of_releases(run: str, releases: Iterable[tuple[str, int]]) -> Q:
    found = Q(pk__in=[])
    for workflow, version in releases:
        found |= Q(**{f"{run}__workflow": workflow, f"{run}__version": version})
    return found
