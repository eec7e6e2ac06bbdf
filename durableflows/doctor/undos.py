"""Is what is undone undone once, and known so; and is what an end left standing said? (P6, P15)"""

from collections.abc import Iterator
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q

from durableflows import ledger_undo, undoing
from durableflows.core.states import EffectState, RunState
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import CHUNK, Query, Rows, Scope, asked
from durableflows.models import SideEffect, WorkflowRun
from durableflows.transactions import database

Found = Iterator[tuple[UUID, str]]

UNDONE = (EffectState.UNDOING, EffectState.UNDONE, EffectState.UNDO_FAILED)
COMPENSATED = (RunState.COMPENSATED, RunState.COMPENSATION_FAILED)


def examine_undos(scope: Scope) -> list[Finding]:
    """All findings about what is undone."""
    if not (any(asked(scope, _touched)) or any(asked(scope, _compensated))):
        return []
    return [
        *listed("undo-astray", _astray(scope)),
        *listed("undone-twice", _twice(scope)),
        *listed("not-undone", _left(scope)),
    ]


def _touched(rows: Rows) -> Query:
    return rows.effects().filter(Q(undoes__isnull=False) | Q(state__in=UNDONE)).order_by().values_list("run_id")[:1]


def _compensated(rows: Rows) -> Query:
    return rows.runs().filter(state__in=COMPENSATED).order_by().values_list("pk")[:1]


def _astray(scope: Scope) -> Found:
    """An effect is UNDONE in the commit that confirms its undo: the one without the other was never written by us,
    but for a person's word that it was undone by hand.
    """
    undone = SideEffect.objects.using(database()).filter(undoes=OuterRef("pk"), state=EffectState.CONFIRMED)
    rows = scope.effects().annotate(has_undo=Exists(undone))
    wrong = rows.filter(state=EffectState.UNDONE, has_undo=False).exclude(verdict=ledger_undo.BY_HAND) | rows.filter(
        has_undo=True
    ).exclude(state=EffectState.UNDONE)
    for run_id, effect, pk, state in wrong.values_list("run_id", "effect", "pk", "state").iterator(chunk_size=CHUNK):
        yield run_id, f"{effect} ({pk}) is {state}, and that is not what the row of its undo says"
    at_work = scope.steps().filter(run=OuterRef("run"), of_cleanup=True, ended_at__isnull=True)
    nobody = scope.effects().filter(~Exists(at_work), state=EffectState.UNDOING, run__ended_at__isnull=True)
    for run_id, effect, pk in nobody.values_list("run_id", "effect", "pk").iterator(chunk_size=CHUNK):
        yield run_id, f"{effect} ({pk}) is UNDOING, and no step undoes it"


def _twice(scope: Scope) -> Found:
    rows = scope.effects().filter(undoes__isnull=False, state=EffectState.CONFIRMED).order_by()
    counted = rows.values("run_id", "undoes").annotate(times=Count("pk")).filter(times__gt=1)
    for row in counted.order_by("run_id", "undoes").iterator(chunk_size=CHUNK):
        yield row["run_id"], f"effect {row['undoes']} was undone {row['times']} times"


def _left(scope: Scope) -> Found:
    """What an end left standing that could be undone; also what came to light after it."""
    for pk in scope.runs().filter(state__in=COMPENSATED).values_list("pk", flat=True).iterator(chunk_size=CHUNK):
        left = undoing.names_left(WorkflowRun.objects.using(database()).get(pk=pk))
        if left:
            yield pk, f"not undone: {', '.join(left)}"
