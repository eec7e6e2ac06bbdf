"""Do the counters of a run's budget say what its rows say? (P7)"""

from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import CHUNK, Scope
from durableflows.models import EffectSend, ModelCall, StepAttempt
from durableflows.transactions import database

Found = Iterator[tuple[UUID, str]]


def examine_budgets(scope: Scope) -> list[Finding]:
    """All findings about counters."""
    return listed("budget-count", _counters(scope))


def _counters(scope: Scope) -> Found:
    alias = database()
    tries = StepAttempt.objects.using(alias).filter(step__run=OuterRef("pk")).order_by()
    sends = EffectSend.objects.using(alias).filter(effect__run=OuterRef("pk"), kind="send").order_by()
    calls = ModelCall.objects.using(alias).filter(run=OuterRef("pk")).order_by()
    counted = {
        "attempts_count": tries.values("step__run").annotate(rows=Count("pk")).values("rows"),
        "tool_calls_count": sends.values("effect__run").annotate(rows=Count("pk")).values("rows"),
        "model_calls_count": calls.values("run").annotate(rows=Count("pk")).values("rows"),
    }
    for column, rows in counted.items():
        values = scope.runs().annotate(found=Coalesce(Subquery(rows), 0)).values_list("pk", column, "found")
        for run_id, says, found in values.iterator(chunk_size=CHUNK):
            if says != found:
                yield run_id, f"{column} is {says}, its rows say {found}"
    yield from _costs(scope)


def _costs(scope: Scope) -> Found:
    calls = ModelCall.objects.using(database()).filter(run=OuterRef("pk")).order_by().values("run")
    spent = calls.annotate(spent=Sum(Coalesce("cost_usd", "estimate_usd"))).values("spent")
    values = scope.runs().annotate(spent=Subquery(spent)).values_list("pk", "cost_usd", "spent")
    for run_id, says, found in values.iterator(chunk_size=CHUNK):
        if says != (found or Decimal(0)):
            yield run_id, f"cost_usd is {says}, its calls say {found or 0}"
