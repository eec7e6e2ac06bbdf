"""What is undone, in the ledger: which effect comes next, and what the row of its undo makes of it.

An effect is UNDONE in the commit that stores the receipt of its undo, whoever brings it: from then on nobody can take
it for done, and nobody undoes it again. With `ledger` and `ledger_answers` the only writer of `SideEffect`. Called with
the run locked. Source: P6, P15; docs/decisions/009.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F, QuerySet

from durableflows import alerts, journal
from durableflows.core.payload import JSON
from durableflows.core.reconcile import REPEAT
from durableflows.core.states import EFFECT_PENDING, EffectState
from durableflows.core.undo import undo_of
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_effect
from durableflows.transactions import database

_ANEW = {EffectState.REJECTED: "did_not_happen", EffectState.ABSENT: "did_not_happen", EffectState.REVERSED: REPEAT}
"""Of an undo that did not happen, or happened and did not last: the verdict with which it is sent under a new key."""
LEFT = (EffectState.CONFIRMED, EffectState.UNDOING, EffectState.UNDO_FAILED)
"""States in which what has happened stands."""
BY_HAND = "undone"
"""The verdict of a person who has undone what the engine could not."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What of a run's effects is undone, what should be and is not, and what nobody can undo."""

    undone: tuple[SideEffect, ...]
    left: tuple[SideEffect, ...]
    not_reversible: tuple[SideEffect, ...]


def next_to_undo(run: WorkflowRun) -> SideEffect | None:
    """The effect that is undone next: of those that happened and have an undo, the one confirmed last."""
    return _to_undo(run).order_by(F("confirmed_number").desc(nulls_last=True), "-settled_at", "-id").first()


def _to_undo(run: WorkflowRun) -> QuerySet[SideEffect]:
    undoable = list(undo_of(run.manifest).effects)
    return _done(run).filter(state=EffectState.CONFIRMED, effect__in=undoable)


def _done(run: WorkflowRun) -> QuerySet[SideEffect]:
    """What the run was started for: neither its clean-up nor an undo."""
    return SideEffect.objects.using(database()).filter(run=run, step__of_cleanup=False)


def tally(run: WorkflowRun) -> Tally:
    """Sort the run's effects. Reads only."""
    undoable = undo_of(run.manifest).effects
    rows = list(_done(run).order_by(F("confirmed_number").asc(nulls_first=True), "settled_at", "id"))
    done = [row for row in rows if row.state == EffectState.CONFIRMED]
    not_reversible = [row for row in done if row.effect not in undoable]
    return Tally(
        undone=tuple(row for row in rows if row.state == EffectState.UNDONE),
        left=tuple(row for row in rows if row.state in LEFT and row not in not_reversible),
        not_reversible=tuple(not_reversible),
    )


def begin(row: SideEffect) -> None:
    """An undo of it begins."""
    row.undo()
    row.store("state")


def fail(effect_id: UUID, why: str) -> SideEffect | None:
    """It could not be undone. None: it is undone, or was given up before; what is in doubt is left as it is."""
    row = lock_effect(effect_id)
    if row.state != EffectState.UNDOING or has_open_undo(row):
        return None
    row.fail_undo()
    row.reason = why[:2000]
    row.store("state", "reason")
    return row


def has_open_undo(row: SideEffect) -> bool:
    """May an undo of it be under way, or have happened?"""
    undos = SideEffect.objects.using(database()).filter(undoes=row)
    return undos.filter(state__in=[str(state) for state in (*EFFECT_PENDING, EffectState.CONFIRMED)]).exists()


def try_again(run: WorkflowRun, by: str, reason: str, now: datetime) -> int:
    """Let what could not be undone be undone anew. An undo that was refused, or did not last, gets a new key."""
    rows = list(_done(run).filter(state=EffectState.UNDO_FAILED).order_by("id"))
    for row in rows:
        row.undo_again()
        row.store("state")
        last = SideEffect.objects.using(database()).filter(undoes=row).order_by("-issue").first()
        verdict = _ANEW.get(EffectState(last.state), "") if last is not None else ""
        if last is not None and verdict and not last.verdict:
            last.verdict, last.verdict_by, last.verdict_reason, last.verdict_at = verdict, by, reason, now
            last.store("verdict", "verdict_by", "verdict_reason", "verdict_at")
    return len(rows)


def follow(run_locked: WorkflowRun, step_locked: StepRun, undo_locked: SideEffect, now: datetime) -> None:
    """Write what the row of an undo makes of the effect that it undoes: in the same commit.

    Late too: an undo may be found to have happened, or not, or be taken back by its provider, when its step is closed
    and its run has ended; and while what it undoes waits to be undone anew
    """
    if undo_locked.undoes_id is None:
        return
    row = lock_effect(undo_locked.undoes_id)
    if undo_locked.state == EffectState.CONFIRMED and row.state in LEFT:
        row.finish_undo()
        row.store("state")
        _note(run_locked, step_locked, "effect.undone", row, now)
    elif undo_locked.state == EffectState.CONFIRMED and row.verdict == BY_HAND:
        _given_back_twice(run_locked, step_locked, row, now)
    elif _has_failed(row, step_locked, undo_locked) and not has_open_undo(row):
        row.fail_undo()
        row.reason = undo_locked.reason[:2000]
        row.store("state", "reason")
        _note(run_locked, step_locked, "effect.undo_failed", row, now)


def _has_failed(row: SideEffect, step: StepRun, undo: SideEffect) -> bool:
    if undo.state == EffectState.REVERSED and row.state == EffectState.UNDONE:
        return True
    return row.state == EffectState.UNDOING and step.ended_at is not None


def _given_back_twice(run: WorkflowRun, step: StepRun, row: SideEffect, now: datetime) -> None:
    """Loud: an undo that was believed not to have happened has happened after all."""
    row.contradiction = f"{row.verdict_by or 'somebody'} undid it by hand, and its undo has happened too"
    row.store("contradiction")
    alerts.add(run, f"{row.effect}: {row.contradiction}", now)
    data: dict[str, JSON] = {"effect": row.effect, "text": row.contradiction}
    journal.record(run, "effect.alert", at=now, step=step, data=data)
    run.store("alert", "alert_at", *journal.FIELDS)


def _note(run: WorkflowRun, step: StepRun, kind: str, row: SideEffect, now: datetime) -> None:
    data: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "of": row.step_name}
    journal.record(run, kind, at=now, step=step, data=data)
    run.store(*journal.FIELDS)
