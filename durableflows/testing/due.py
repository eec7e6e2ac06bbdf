"""What is due in some runs, read from their rows in a few queries: the next moment, and which sweeps have work now.

A ticker asks each sweep each second; a simulation that did so would spend half its time asking. Reads only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from durableflows.core.ending import AT_WORK
from durableflows.core.states import RUN_MOVING, STEP_OPEN, ApprovalState, EffectState, RunState, StepState
from durableflows.models import ApprovalRequest, ProviderEvent, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import Question
from durableflows.transactions import database

MOVING = [str(state) for state in RUN_MOVING]
OPEN = [str(state) for state in STEP_OPEN]
_AFTER = timedelta(microseconds=1)
"""A lease is void when its last moment is over."""

LATE_CLEANUPS = ("late clean-ups",)
LIMITS = (("deadlines",), ("idle runs",), LATE_CLEANUPS)
"""What ends a run by a limit: nobody waits for that, and a run that only this would end has been forgotten (P10)."""
STEP_SWEEPS = {
    StepState.RUNNING: ("overdue leases",),
    StepState.RETRY_SCHEDULED: ("due retries",),
    StepState.READY: ("unsent steps",),
    StepState.NEEDS_RECONCILIATION: ("unsettled effects",),
    StepState.WAITING: ("unsettled effects", "timers"),
}


@dataclass
class Due:
    """Moments at which something happens by itself, and the sweeps that would do it."""

    moments: list[tuple[datetime, tuple[str, ...]]] = field(default_factory=list)
    always: set[str] = field(default_factory=set)
    """Sweeps whose work has no time of its own."""
    is_live: bool = False
    """Has a run not ended?"""
    asks: bool = False
    """Is a request open, or does a step wait for a signal?"""

    def next(self, now: datetime) -> datetime | None:
        """The next moment after now. None: only a person, or nobody, can make a run go on."""
        return min((moment for moment, sweeps in self.moments if moment > now and sweeps not in LIMITS), default=None)

    def sweeps(self, now: datetime) -> set[str]:
        """The sweeps that have something to do now."""
        return self.always.union(*(sweeps for moment, sweeps in self.moments if moment <= now))


def look(known: Sequence[UUID]) -> Due:
    """See what is due in all runs but the known ones."""
    due = Due()
    is_ending = False
    for state, deadline_at, idle_at, ended_at, phase, cleanup_until in _RUNS.rows(known):
        if ended_at is None and phase in AT_WORK and cleanup_until is not None:
            due.moments.append((cleanup_until, LATE_CLEANUPS))
        is_ending |= state in (RunState.ENDING, RunState.COMPENSATING)
        due.is_live |= ended_at is None
        if ended_at is None:
            due.moments.append((deadline_at, ("deadlines",)))
        if ended_at is None and idle_at is not None:
            due.moments.append((idle_at, ("idle runs",)))
    if is_ending:
        due.always.update(("quiet ends", "children"))
    due.moments += _steps(known, due)
    due.moments += _effects(known, is_ending=is_ending)
    due.moments += [(judge_at, ("provider events",)) for (judge_at,) in _EVENTS.rows(())]
    requests = [(expires_at, ("expired requests",)) for (expires_at,) in _REQUESTS.rows(known)]
    due.moments += requests
    due.asks |= bool(requests)
    return due


class _Rows:
    """Columns of the rows of all runs but the known ones; of all runs by a statement made once."""

    def __init__(self, model: type[Model], by: str, *names: str, **filters: object) -> None:
        self._model, self._by, self._names, self._filters = model, by, names, filters
        self._of_all = Question(lambda alias, _: self._chosen(alias))

    def rows(self, known: Sequence[UUID]) -> Iterable[Sequence[Any]]:
        """Read them."""
        if not known:
            return self._of_all.answers(database(), "")
        return self._chosen(database()).exclude(**{f"{self._by}__in": known})

    def _chosen(self, alias: str) -> QuerySet[Any, Any]:
        return self._model._base_manager.using(alias).filter(**self._filters).order_by().values_list(*self._names)


_RUNS = _Rows(WorkflowRun, "pk", "state", "deadline_at", "idle_at", "ended_at", "ending_phase", "cleanup_until")
_STEPS = _Rows(*(StepRun, "run", "state", "waits_on", "wake_at", "resend_at", "must_end_by", "run__state", "held_by"))
_EFFECTS = _Rows(SideEffect, "run", "state", "settles_at", "audit_at", "lookup_must_end_by")
_EVENTS = _Rows(ProviderEvent, "effect__run", "judge_at", judge_at__isnull=False)
_REQUESTS = _Rows(ApprovalRequest, "run", "expires_at", state=ApprovalState.OPEN)


def _steps(known: Sequence[UUID], due: Due) -> Iterator[tuple[datetime, tuple[str, ...]]]:
    for state, waits_on, wake_at, resend_at, must_end_by, run_state, held_by in _STEPS.rows(known):
        if held_by:
            due.always.add("held steps")
        due.asks |= waits_on == "signal"
        if waits_on == "child" or state == StepState.CANCELLED:
            due.always.add("children")
        if state not in OPEN or run_state not in MOVING:
            continue
        moment = wake_at
        if state == StepState.RUNNING:
            moment = must_end_by and must_end_by + _AFTER
        elif state == StepState.READY:
            moment = resend_at and max(resend_at, wake_at or resend_at)
        if moment is not None and state in STEP_SWEEPS:
            yield moment, STEP_SWEEPS[StepState(state)]


def _effects(known: Sequence[UUID], *, is_ending: bool) -> Iterator[tuple[datetime, tuple[str, ...]]]:
    for state, settles_at, audit_at, asked_until in _EFFECTS.rows(known):
        if is_ending and settles_at is not None:
            yield settles_at, ("quiet ends",)
        if asked_until is not None:
            yield asked_until + _AFTER, ("unsettled effects", "audits")
        if state == EffectState.ABSENT and audit_at is not None:
            yield audit_at, ("audits", "lost audits")
