"""What a run started is undone with it: each child undoes itself, before the run undoes what it did. Reads only.

A child is a run of its own: nobody locks it here. Whether it is to be undone follows from the rows, as all that crosses
between runs; `services.children` carries it. Called by `undoing`, `endings` and the doctor.
Source: docs/decisions/009.
"""

from django.db.models import Exists, OuterRef, Q, QuerySet

from durableflows.core.states import RUN_COMPENSABLE, EffectState, EndingPhase, EndingReason, RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.transactions import database

UNDONE = (RunState.COMPENSATED, RunState.COMPENSATION_FAILED)
"""Ends of a child that has undone itself, as far as it could."""
TO_UNDO = [str(state) for state in sorted(RUN_COMPENSABLE) if state not in UNDONE]


def _children(run: WorkflowRun) -> QuerySet[WorkflowRun]:
    """Those of the main path: what a clean-up has started stays."""
    return WorkflowRun.objects.using(database()).filter(parent=run, parent_step__of_cleanup=False)


def waits(run: WorkflowRun) -> bool:
    """Has a child not undone itself yet? An abandoned one never will."""
    return _children(run).filter(Q(ended_at__isnull=True) | Q(state__in=TO_UNDO)).exists()


def left(run: WorkflowRun) -> list[WorkflowRun]:
    """The children that could not undo all that they did, or of which an undo did not last, or that were given up."""
    failed = SideEffect.objects.using(database()).filter(run=OuterRef("pk"), state=EffectState.UNDO_FAILED)
    ends = Q(state__in=[RunState.COMPENSATION_FAILED, RunState.ABANDONED])
    return list(_children(run).filter(ends | Q(Exists(failed), state=RunState.COMPENSATED)).order_by("id"))


def due() -> QuerySet[WorkflowRun]:
    """The children that are to be undone, since the runs that started them are.

    A parent that settles what is open is ENDING: by that an index finds it among all runs
    """
    parent = Q(parent__ending_reason=EndingReason.COMPENSATE)
    for reason in (EndingReason.FAILURE, EndingReason.CANCEL):
        parent |= Q(**{"parent__ending_reason": reason, f"parent__manifest__undo__{reason}": True})
    rows = WorkflowRun.objects.using(database()).filter(
        parent, parent__state=RunState.ENDING, parent__ending_phase=EndingPhase.SETTLING, parent_step__of_cleanup=False
    )
    live = Q(ended_at__isnull=True, ending_phase=EndingPhase.SETTLING) & ~Q(ending_reason=EndingReason.COMPENSATE)
    return rows.filter(live | Q(state__in=TO_UNDO))
