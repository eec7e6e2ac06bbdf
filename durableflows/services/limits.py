"""Giving a run more time or more of its budget, also when one of them has ended it: it goes on where it stood."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from durableflows import clock, journal, progress, reopening
from durableflows.boundaries import Boundary, cross
from durableflows.core import operate
from durableflows.core.budget import COUNTERS, is_over
from durableflows.core.payload import JSON, sha256
from durableflows.core.states import ENDS_BY_LIMIT, RUN_REOPENABLE, EndingReason
from durableflows.errors import InvalidState, TooLate
from durableflows.models import WorkflowRun
from durableflows.models.locks import lock_run
from durableflows.services.operations import Order, order
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use: until when, and how much."""

    deadline_at: datetime
    budget: dict[str, JSON]


def mark(run: WorkflowRun) -> str:
    """The limits of a run as they are: a page that is sent twice at once extends once."""
    return sha256({"deadline": run.deadline_at.astimezone(UTC).isoformat(), "budget": run.budget})


def extend(
    run_id: UUID | str, *, by: Any, reason: str, deadline: object, budget: Mapping[str, object], shown: str = ""
) -> WorkflowRun:
    """Give a run more time or budget. One that these had ended, or were about to end, goes on where it stood.

    shown            its limits as the person has seen them (`mark`), to be the same under the lock; "": no matter which
    Raises           NotFoundError, NotAllowed; InvalidState for what is no extension, or not enough to go on; TooLate
                     for a run whose limits matter no more, or are no longer as shown
    Writes / Locks   WorkflowRun, StepRun, RunEvent; locks run, then steps
    Crash            after the commit the sweep sends what nobody has
    """
    extended = _extend(order(run_id, "extend", by=by, reason=reason), deadline, dict(budget), shown)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return extended


@transact
def _extend(given: Order, deadline: object, more: Mapping[str, object], shown: str) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    if shown and mark(run) != shown:
        raise TooLate("the limits of the run were changed since they were shown: look at it again")
    new = check_extend(run, deadline, more, now)
    data: dict[str, JSON] = {"reason": given.reason}
    if deadline is not None:
        data["deadline_at"] = new.deadline_at.isoformat()
    if more:
        data["budget"] = {name: limit for name, limit in new.budget.items() if limit != run.budget.get(name)}
    run.deadline_at, run.budget = new.deadline_at, new.budget
    run.store("budget")
    journal.record(run, "run.extended", at=now, actor_name=given.name, data=data)
    if ended_by(run) is not None:
        reopening.take_back_end(run)
        reopening.go_on(run, now)
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def ended_by(run: WorkflowRun) -> EndingReason | None:
    """The limit that has ended the run, or is about to; None: no limit did."""
    return next((reason for reason in ENDS_BY_LIMIT if run.ending_reason == reason), None)


def check_extend(run: WorkflowRun, deadline: object, more: Mapping[str, object], now: datetime) -> Limits:
    """The new limits. Raises as `extend`."""
    _check_may_go_on(run)
    if deadline is None and not more:
        raise InvalidState("extend: say how much more, deadline=... or budget={...}")
    used = {name: getattr(run, column) for name, column in COUNTERS.items()}
    new = Limits(
        run.deadline_at if deadline is None else operate.later(run.deadline_at, deadline, now),
        operate.larger(run.budget, used, more),
    )
    _check_parent(run, new)
    _check_enough(run, new, more, now)
    return new


def _check_may_go_on(run: WorkflowRun) -> None:
    reason = ended_by(run)
    if run.ending_reason and reason is None and run.ended_at is None:
        raise TooLate(f"the run is ending ({run.ending_reason}): its limits matter no more")
    if run.ended_at is not None and run.state not in RUN_REOPENABLE:
        raise TooLate(f"the run is {run.word}: its limits matter no more")
    if run.ended_at is not None and reason is not None and not reopening.can_stand(run):
        raise TooLate("the run ended before it was kept where its steps stood: start a new one")
    check_may_reopen(run)


def check_may_reopen(run: WorkflowRun) -> None:
    """Raise TooLate for a run whose end somebody asked for (P6), or was handed over to the run that started it."""
    if run.cancel_asked_at is not None:
        raise TooLate(f"the end of the run was asked for by {run.cancel_asked_by or 'the system'}: that is final")
    if run.ended_at is not None and not reopening.is_awaited(run):
        parent = run.parent_id or "which is removed"
        raise TooLate(f"the run that started this one, {parent}, has gone on without it: start a new one")


def _check_parent(run: WorkflowRun, new: Limits) -> None:
    if run.parent_id is None or new.deadline_at == run.deadline_at:
        return
    parent = WorkflowRun.objects.using(database()).get(pk=run.parent_id)
    if new.deadline_at > parent.deadline_at:
        until = f"{parent.deadline_at:%Y-%m-%d %H:%M}"
        raise InvalidState(f"the run that started this one, {parent.pk}, ends {until} (UTC) at the latest: extend that")


def _check_enough(run: WorkflowRun, new: Limits, more: Mapping[str, object], now: datetime) -> None:
    """What ended the run must be extended, and nothing else may end it at once again."""
    if ended_by(run) is None:
        return
    if new.deadline_at <= now:
        raise InvalidState("the run's deadline has passed: it needs a later one to go on")
    if run.ending_reason == EndingReason.BUDGET and not more:
        raise InvalidState(f"the run stopped because {run.error_text}: give it more of that")
    check_iterations(run, new.budget)


def check_iterations(run: WorkflowRun, budget: Mapping[str, JSON]) -> None:
    """Raise InvalidState while a visit that the budget refused does not fit in: counted, it would be made (P7)."""
    if is_over(budget, "iterations", run.iterations_count):
        least = run.iterations_count - int(str(budget["iterations"]))
        raise InvalidState(f"budget: {least} more iterations at least: so many were come to already")
