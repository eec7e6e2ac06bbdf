"""Do the counters of a run's budget say what its rows say? (P7)"""

from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from durableflows.core.decide import HELD
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
    tries = StepAttempt.objects.using(alias).filter(step__run=OuterRef("pk")).exclude(outcome=HELD).order_by()
    sends = EffectSend.objects.using(alias).filter(effect__run=OuterRef("pk"), kind="send").order_by()
    calls = ModelCall.objects.using(alias).filter(run=OuterRef("pk")).order_by()
    counted = {
        "attempts_count": tries.values("step__run").annotate(rows=Count("pk")).values("rows"),
        "tool_calls_count": sends.values("effect__run").annotate(rows=Count("pk")).values("rows"),
        "model_calls_count": calls.values("run").annotate(rows=Count("pk")).values("rows"),
    }
    spent = calls.values("run").annotate(spent=Sum(Coalesce("cost_usd", "estimate_usd"))).values("spent")
    found = {f"found_{column}": Coalesce(Subquery(rows), 0) for column, rows in counted.items()}
    runs = scope.runs().annotate(**found, spent=Subquery(spent)).values("pk", *counted, *found, "cost_usd", "spent")
    for run in runs.iterator(chunk_size=CHUNK):
        for column in counted:
            if run[column] != run[f"found_{column}"]:
                yield run["pk"], f"{column} is {run[column]}, its rows say {run[f'found_{column}']}"
        if run["cost_usd"] != (run["spent"] or Decimal(0)):
            yield run["pk"], f"cost_usd is {run['cost_usd']}, its calls say {run['spent'] or 0}"
