"""Model calls against a run's budget: counted and held before they leave, settled at their real cost.

The only writer of ModelCall. A call is no effect: nothing outside changes by it, a body that runs again asks again and
pays again. So a crash loop uses its budget up instead of running for ever (R35).
Source: P7; specification S2.2, S3.13, S3.29.
"""

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from durableflows import clock, journal
from durableflows.core.budget import is_over, is_used_up
from durableflows.core.payload import JSON
from durableflows.errors import LimitReached, RunHalted
from durableflows.leases import Lease
from durableflows.ledger import check_lease
from durableflows.models import ModelCall, StepRun, WorkflowRun
from durableflows.models.compiled import insert, write
from durableflows.models.locks import lock_run, lock_step
from durableflows.transactions import database, transact, transact_durably


@transact_durably
def hold(lease: Lease, model: str, estimate_usd: Decimal) -> UUID:
    """Count a call and hold what it may cost, before it leaves.

    Writes / Locks   ModelCall, WorkflowRun, RunEvent; locks run, step: branches that ask at once are counted one by one
    Raises           LeaseLost, RunHalted; LimitReached when the call or its estimate exceeds the budget
    Crash            before the commit nothing; after it the estimate counts until the attempt is known to be over
    """
    run, step = lock_run(lease.run_id), lock_step(lease.step_id)
    now = clock.now()
    check_lease(step, lease)
    goes_on = run.lets(of_cleanup=step.of_cleanup) and not run.parked_reason
    if not goes_on or now >= run.ends_by(of_cleanup=step.of_cleanup):
        raise RunHalted(f"run {run.pk} was stopped: no model is called any more")
    _check_limits(run, estimate_usd)
    call = ModelCall(
        run=run, step=step, attempt_id=lease.attempt_id, model=model, estimate_usd=estimate_usd, started_at=now
    )
    insert(call, database())
    run.model_calls_count += 1
    run.cost_usd += estimate_usd
    facts: dict[str, JSON] = {"step": step.name, "model": model, "estimate_usd": str(estimate_usd)}
    journal.record(run, "model.called", at=now, step=step, data=facts)
    run.store("model_calls_count", "cost_usd", *journal.FIELDS)
    return call.pk


def _check_limits(run: WorkflowRun, estimate_usd: Decimal) -> None:
    if is_used_up(run.budget, "model_calls", run.model_calls_count):
        raise LimitReached(f"the budget of {run.budget['model_calls']} model calls is used up", limit="model_calls")
    if is_used_up(run.budget, "cost_usd", run.cost_usd) or is_over(run.budget, "cost_usd", run.cost_usd + estimate_usd):
        raise LimitReached(
            f"the budget of {run.budget['cost_usd']} USD is used up: {run.cost_usd:f} are spent or held, "
            f"and this call may cost {estimate_usd:f}",
            limit="cost_usd",
        )


@transact
def settle(run_id: UUID, call_id: UUID, cost_usd: Decimal | None, *, failed: bool = False) -> None:
    """Put a call's real cost in the place of its estimate; None: the estimate stays. Needs no lease: it is a fact (P2).

    A call whose attempt was given up as lost is corrected too, whenever its cost becomes known.
    """
    run = lock_run(run_id)
    call = ModelCall.objects.using(database()).select_for_update(no_key=True).get(pk=call_id)
    if call.cost_usd is not None:
        return
    cost = call.estimate_usd if cost_usd is None else cost_usd
    run.cost_usd += cost - call.estimate_usd
    call.cost_usd, call.outcome, call.ended_at = cost, "failed" if failed else "done", clock.now()
    write(call, database(), "cost_usd", "outcome", "ended_at")
    run.store("cost_usd")


def lose(run_locked: WorkflowRun, step_locked: StepRun, now: datetime) -> None:
    """Close the calls of an attempt that is over without having said their cost: the estimate counts."""
    if not run_locked.model_calls_count:
        return
    ModelCall.objects.using(database()).filter(step=step_locked, outcome="").update(outcome="lost", ended_at=now)
