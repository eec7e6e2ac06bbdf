"""Judges the rows and the provider's books at the end of a simulation: which promise of the design does not hold?

Reads only. The promises are those of docs/concepts/guarantees.md; the doctor's findings of severity `broken` count too.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import api, clock, doctor
from durableflows.core import registry
from durableflows.core.states import EffectState, RunState, StepState, WaitsOn
from durableflows.core.undo import undo_of
from durableflows.doctor import Finding, Severity
from durableflows.doctor.budgets import examine_budgets
from durableflows.doctor.effects import examine_ledger
from durableflows.doctor.history import examine_history
from durableflows.doctor.rows import Scope
from durableflows.doctor.states import examine_ends
from durableflows.models import RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.models.compiled import Question
from durableflows.testing.provider import Books
from durableflows.transactions import database

Blame = Callable[[str, str], None]

ENDS = ("step.succeeded", "step.failed", "step.cancelled")
PROMISE_OF = {"budget-count": "P7", "event-chain": "P13", "state-digest": "P13", "operation-twice": "P3"}
PROMISE_OF |= {"key-gone": "P13", "rolled-back": "P13"}
NOT_DONE = (EffectState.PLANNED, EffectState.REJECTED, EffectState.ABSENT)


class Standing(StrEnum):
    """How a schedule ended. WAITS: for a person, for a reason that the run says."""

    OK = "ok"
    WAITS = "waits"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise of the design, by its number, and how it does not hold."""

    promise: str
    text: str


def judge(runs: Sequence[WorkflowRun], books: Books, blame: Blame) -> Standing:
    """Check every promise that can be read from rows and books. Whatever does not hold goes to `blame`."""
    _acts_once(books, blame)
    effects = _outside(runs)
    _books_agree(effects, books, blame)
    _undone_once(runs, effects, books, blame)
    _doctor(runs, blame)
    standings = [_stands(run, blame) for run in runs]
    for run in runs:
        _budget(run, blame)
        _one_settlement(run, blame)
    return Standing.WAITS if Standing.WAITS in standings else Standing.OK


def explained(run: WorkflowRun) -> list[str]:
    """The run's story as `manage.py durableflows explain` tells it."""
    story = api.explain(run.pk)
    lines = [f"{run.workflow}: {story.sentence}", *(f"  {line.text}" for line in story.lines)]
    return [*lines, f"  next: {story.next}"] if story.next else lines


def _acts_once(books: Books, blame: Blame) -> None:
    for operation, keys in books.acts.items():
        if len(keys) > 1:
            blame("P3", f"the provider acted {len(keys)} times for one operation: {operation}")


def _books_agree(effects: Sequence[SideEffect], books: Books, blame: Blame) -> None:
    """CONFIRMED means that it happened; what is known not to have happened has not (protocol, I5)."""
    for row in [one for one in effects if not one.verdict]:
        done = row.key in books.entries
        if row.state == EffectState.CONFIRMED and not done:
            blame("P5", f"{row.effect} is CONFIRMED, and the provider knows nothing of it")
        if row.state in NOT_DONE and done and not row.contradiction:
            blame("P5", f"{row.effect} is {row.state}, and the provider has done it")


def _outside(runs: Sequence[WorkflowRun]) -> list[SideEffect]:
    """The effects that a provider knows of: not those that are rows of our own database."""
    declared = [effect for run in runs for effect in registry.get(run.workflow, run.version).effects.values()]
    here = {effect.name for effect in declared if effect.transactional}
    rows = SideEffect.objects.using(database()).filter(run__in=[run.pk for run in runs]).select_related("step")
    known = {row.pk: row for row in rows}
    return [
        row
        for row in known.values()
        if row.effect not in here and not (row.undoes_id and known[row.undoes_id].effect in here)
    ]


def _undone_once(runs: Sequence[WorkflowRun], effects: Sequence[SideEffect], books: Books, blame: Blame) -> None:
    """What ended as undone is undone, once, and nothing that was not done; a receipt that came too late is loud."""
    undos = Counter(row.undoes_id for row in effects if row.undoes_id is not None and row.key in books.entries)
    ended = {run.pk for run in runs if run.state == RunState.COMPENSATED}
    undoable = {run.pk: undo_of(run.manifest).effects for run in runs}
    for row in [one for one in effects if one.undoes_id is None and not one.step.of_cleanup]:
        done, times = row.key in books.entries, undos.get(row.pk, 0)
        if times > 1 or (times and not done):
            blame("P3", f"{row.effect} was done {int(done)} times and undone {times} times")
        if row.state == EffectState.UNDONE and not times:
            blame("P5", f"{row.effect} is UNDONE, and the provider has not undone it")
        if row.run_id in ended and done and not times and row.effect in undoable[row.run_id] and not row.contradiction:
            blame("P6", f"the run ended as undone, and {row.effect} is not")


def _doctor(runs: Sequence[WorkflowRun], blame: Blame) -> None:
    ours = {run.pk for run in runs}
    if not ours:
        return
    for finding in _examined(runs):
        if finding.severity is Severity.BROKEN and (finding.run_id is None or finding.run_id in ours):
            blame(PROMISE_OF.get(finding.code, "doctor"), f"{finding.code}: {finding.text}")


def _examined(runs: Sequence[WorkflowRun]) -> Sequence[Finding]:
    """What the doctor finds; of runs that have ended it need not ask what comes next."""
    run_id = runs[0].pk if len(runs) == 1 else None
    if any(run.ended_at is None for run in runs):
        return doctor.examine(run_id)
    scope = Scope(run_id, clock.now(), None)
    return [*examine_ends(scope), *examine_ledger(scope), *examine_budgets(scope), *examine_history(scope)]


def _stands(run: WorkflowRun, blame: Blame) -> Standing:
    """A run that is left alone has ended, or waits for a person and says why (P10)."""
    if run.ended_at is not None:
        return Standing.OK
    if run.parked_reason:
        if not run.parked_detail:
            blame("P10", "the run is parked and nothing says why")
        return Standing.WAITS
    steps = list(StepRun.objects.using(database()).filter(run=run, ended_at__isnull=True))
    asks = [step for step in steps if step.needs_person]
    if asks and not run.alert:
        blame("P10", f"{asks[0].name} needs a person, and nobody is told")
    waiting = [step for step in steps if step.needs_person or _is_outside(step)]
    if not waiting:
        names = ", ".join(f"{step.name} is {step.state}" for step in steps) or "no step is open"
        blame("P10", f"the run is {run.state} and nothing would ever move it: {names}")
    return Standing.WAITS


def _is_outside(step: StepRun) -> bool:
    """Waits for somebody outside: an answer, a signal without a time-out, a child that waits itself, other branches."""
    return step.state == StepState.WAITING_HUMAN or (
        step.state == StepState.WAITING
        and step.waits_on in (str(WaitsOn.SIGNAL), str(WaitsOn.CHILD), str(WaitsOn.BRANCHES), str(WaitsOn.TURN))
    )


def _budget(run: WorkflowRun, blame: Blame) -> None:
    """No limit is passed (P7); that the counters are exact, the doctor sees from the rows."""
    for name, used in (("attempts", run.attempts_count), ("iterations", run.iterations_count)):
        limit = run.budget.get(name)
        if limit is not None and Decimal(used) > Decimal(str(limit)):
            blame("P7", f"{used} {name} were used, of {limit}")


def _one_settlement(run: WorkflowRun, blame: Blame) -> None:
    """Each step ends once, by one attempt (P2)."""
    for step, times in Counter(map(tuple, _ENDED.answers(database(), run.pk))).items():
        if times > 1:
            blame("P2", f"the step {step[0]} ended {times} times")
    for step, times in Counter(map(tuple, _SETTLED.answers(database(), run.pk))).items():
        if times > 1:
            blame("P2", f"{times} attempts settled the step {step[0]}")


def _ended(alias: str, run_id: UUID) -> "QuerySet[RunEvent, Any]":
    events = RunEvent.objects.using(alias).filter(run=run_id, kind__in=ENDS, step__isnull=False)
    return events.order_by().values_list("step__name", "step_id")


def _settled(alias: str, run_id: UUID) -> "QuerySet[StepAttempt, Any]":
    attempts = StepAttempt.objects.using(alias).filter(step__run=run_id, outcome="done")
    return attempts.order_by().values_list("step__name", "step_id")


_ENDED, _SETTLED = Question(_ended), Question(_settled)
