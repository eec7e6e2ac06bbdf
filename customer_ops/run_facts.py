"""Reads of the engine's rows for the desk: what the runs of many refunds say of themselves, in five queries.

Called by `cards` and the page that calls off; `standing` and `situation` work with what it gives. Never writes, never
locks. It tells nothing that only those may know who see a run: no history, no names of workers.
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeVar
from uuid import UUID

from customer_ops.standing import Outside, Question, RunFacts
from durableflows.models import ApprovalRequest, RequestNote, SideEffect, StepRun, WorkflowRun

PAYMENT, MAIL = "payments.refund", "mail.send"
T = TypeVar("T")

# In the order in which a run's steps are looked at: what needs somebody first.
_URGENT = ("NEEDS_RECONCILIATION", "RUNNING", "RETRY_SCHEDULED", "WAITING_HUMAN", "WAITING", "READY")


def facts_of(run_ids: Collection[UUID]) -> dict[UUID, RunFacts]:
    """What each run says of itself. A run that is gone is left out."""
    if not run_ids:
        return {}
    steps = _by_run(_open_steps(run_ids))
    effects = _by_run(_effects(run_ids))
    questions = _questions(run_ids)
    columns = ("state", "ended_at", "parked_detail", "ending_reason", "cancel_asked_by", "alert")
    return {
        run.pk: _facts(run, steps.get(run.pk, []), effects.get(run.pk, []), questions.get(run.pk))
        for run in WorkflowRun.objects.filter(pk__in=run_ids).only(*columns)
    }


def _questions(run_ids: Collection[UUID]) -> dict[UUID, Question]:
    rows = list(ApprovalRequest.objects.filter(run_id__in=run_ids, state="OPEN"))
    notes = RequestNote.objects.filter(request__in=rows, kind=RequestNote.QUESTION, replies__isnull=True)
    asked_back = dict(notes.order_by("number").values_list("request", "author_name")) if rows else {}
    return {row.run_id: _question(row, asked_back.get(row.pk, "")) for row in rows}


def _open_steps(run_ids: Collection[UUID]) -> Iterable[StepRun]:
    columns = ("run_id", "name", "state", "wake_at", "needs_person", "waits_for", "retry_reason", "created_at")
    return StepRun.objects.filter(run_id__in=run_ids, state__in=_URGENT).only(*columns)


def _effects(run_ids: Collection[UUID]) -> Iterable[SideEffect]:
    columns = ("run_id", "effect", "state", "dispatched_at", "next_lookup_at", "settles_at", "created_at")
    return SideEffect.objects.filter(run_id__in=run_ids, effect__in=(PAYMENT, MAIL)).only(*columns)


def _by_run(rows: Iterable[T]) -> dict[UUID, list[T]]:
    grouped: dict[UUID, list[T]] = {}
    for row in rows:
        run_id: UUID = row.run_id  # type: ignore[attr-defined]
        grouped.setdefault(run_id, []).append(row)
    return grouped


def _facts(run: WorkflowRun, steps: list[StepRun], effects: list[SideEffect], question: Question | None) -> RunFacts:
    step = min(steps, key=lambda one: _URGENT.index(one.state), default=None)
    at: dict[str, Any] = {}
    if step is not None:
        at = {
            "step": step.name,
            "step_state": step.state,
            "wake_at": step.wake_at,
            "needs_person": any(one.needs_person for one in steps),
            "waits_for": step.waits_for,
            "retry_reason": step.retry_reason,
        }
    return RunFacts(
        state=run.state,
        is_ended=run.is_ended,
        parked_detail=run.parked_detail,
        ending=run.ending_reason,
        cancelled_by=run.cancel_asked_by,
        alert=run.alert,
        payment=_latest(effects, PAYMENT),
        mail=_latest(effects, MAIL),
        question=question,
        **at,
    )


def _latest(effects: list[SideEffect], name: str) -> Outside | None:
    """The newest row of an effect, but an open one first: an older issue may still be in doubt."""
    rows = [row for row in effects if row.effect == name]
    row = next((row for row in rows if row.is_in_doubt), rows[-1] if rows else None)
    return None if row is None else Outside(row.state, row.dispatched_at, row.next_lookup_at, row.settles_at)


def _question(row: ApprovalRequest, asked_back: str) -> Question:
    return Question(
        str(row.pk),
        row.created_at,
        row.expires_at,
        asks_others=row.ladder_position < len(row.ladder),
        asked_back=asked_back,
    )
