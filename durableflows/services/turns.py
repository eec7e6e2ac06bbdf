"""What all sweeps share: ids are picked without locks, then each row has its own transaction and is looked at again.

Called by the sweeps alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
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
MOST_SAID = 10_000
MOVING = [str(state) for state in RUN_MOVING]


def all_steps() -> QuerySet[StepRun]:
    """All steps, in the engine's database."""
    return StepRun.objects.using(database())


def while_open(send: Callable[[UUID], bool]) -> Callable[[UUID], bool]:
    """A broker that failed is left alone for a while: what it would refuse stays due, and is not counted as sent."""
    return lambda pk: dispatch.is_open() and send(pk)


@dataclass(slots=True)
class _Line:
    """What this process remembers of the rows that wait for one sweep.

    passed   so many of them, behind the front half, have been passed by
    said     what those have failed with that fail: it is said once, not at each turn
    """

    passed: int = 0
    said: dict[UUID, str] = field(default_factory=dict)


_lines: dict[str, _Line] = defaultdict(_Line)


def each(rows: QuerySet[Row], act: Callable[[UUID], bool], *, line: str) -> int:
    """Act on each id of a batch, one transaction a row; a row that fails does not hold up the others.

    Half of a batch are those in front; the other half goes round from turn to turn. Rows that always fail, or that
    nobody can move now, may be many, and must not stand before all others.

    line   names where these rows wait: each process has a place in it of its own
    """
    known, half = _lines[line], BATCH // 2
    front, others, is_round = _batch(rows.values_list("pk", flat=True), half, known.passed)
    moved, moved_others = (sum(_moved(rows.model.__name__, pk, act, known) for pk in part) for part in (front, others))
    known.passed = 0 if is_round else max(0, known.passed - moved + len(others) - moved_others)
    return moved + moved_others


def _batch(ids: "QuerySet[Any, UUID]", half: int, passed: int) -> tuple[list[UUID], list[UUID], bool]:
    """Those in front, those whose turn it is of the others, and whether the end of the line was reached."""
    if not passed:
        batch = list(ids[:BATCH])
        return batch[:half], batch[half:], len(batch) < BATCH
    front, begin = list(ids[:half]), half + passed
    others = list(ids[begin : begin + BATCH - half])
    is_round = len(others) < BATCH - half
    if is_round:  # it begins again behind the front
        others += ids[half : min(begin, BATCH - len(others))]
    return front, others, is_round


def _moved(what: str, pk: UUID, act: Callable[[UUID], bool], known: _Line) -> bool:
    try:
        done = bool(act(pk))
    except Exception as error:  # a bad row waits for the next sweep
        if is_away(error):
            raise
        text = f"{type(error).__name__}: {error}"
        if known.said.get(pk) != text:
            logger.exception("%s %s could not be swept; it is tried again, and not said again", what, pk)
        if len(known.said) >= MOST_SAID:
            known.said.clear()
        known.said[pk] = text
        return False
    known.said.pop(pk, None)
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
