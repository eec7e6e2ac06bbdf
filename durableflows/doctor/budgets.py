"""Do the counters of a run's budget say what its rows say? (P7)"""

from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from durableflows.core.decide import HELD
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import Query, Rows, Scope, asked
from durableflows.models import EffectSend, ModelCall, StepAttempt
from durableflows.transactions import database

COUNTERS = ("attempts_count", "tool_calls_count", "model_calls_count")
Found = Iterator[tuple[UUID, str]]


def examine_budgets(scope: Scope) -> list[Finding]:
    """All findings about counters."""
    return listed("budget-count", _counters(scope))


def _counters(scope: Scope) -> Found:
    for run_id, cost, spent, *counts in asked(scope, _counted):
        for column, kept, found in zip(COUNTERS, counts[::2], counts[1::2], strict=True):
            if kept != found:
                yield run_id, f"{column} is {kept}, its rows say {found}"
        if cost != (spent or Decimal(0)):
            yield run_id, f"cost_usd is {cost}, its calls say {spent or 0}"


def _counted(rows: Rows) -> Query:
    alias = database()
    tries = StepAttempt.objects.using(alias).filter(step__run=OuterRef("pk")).exclude(outcome=HELD).order_by()
    sends = EffectSend.objects.using(alias).filter(effect__run=OuterRef("pk"), kind="send").order_by()
    calls = ModelCall.objects.using(alias).filter(run=OuterRef("pk")).order_by()
    counted = (
        tries.values("step__run").annotate(rows=Count("pk")).values("rows"),
        sends.values("effect__run").annotate(rows=Count("pk")).values("rows"),
        calls.values("run").annotate(rows=Count("pk")).values("rows"),
    )
    spent = calls.values("run").annotate(spent=Sum(Coalesce("cost_usd", "estimate_usd"))).values("spent")
    found = {f"found_{column}": Coalesce(Subquery(each), 0) for column, each in zip(COUNTERS, counted, strict=True)}
    pairs = [name for column in COUNTERS for name in (column, f"found_{column}")]
    return rows.runs().annotate(**found, spent=Subquery(spent)).values_list("pk", "cost_usd", "spent", *pairs)
