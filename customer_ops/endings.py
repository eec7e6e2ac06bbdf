"""What becomes of a reservation whose run ended without its own last steps: cancelled, out of time, abandoned.

Without this, a cancelled refund would take from its charge for ever. Called after the end of a run (a hint, which may
be lost) and by `services` before the left of a charge is counted (which cannot). Calls nothing outside.
"""

from typing import Any
from uuid import UUID

from django.db import transaction

from customer_ops.models import Charge, RefundRequest, RefundState
from durableflows import api
from durableflows.models import SideEffect, WorkflowRun

NOT_PAID = frozenset({"PLANNED", "REJECTED", "ABSENT", "UNDONE", "REVERSED"})
"""States of the payment in which no money has gone back. In all others it has, or may have."""


def on_run_event(*, run_id: UUID, kind: str, **_: Any) -> None:
    """Receive the engine's signal."""
    if kind == "run.ended":
        close_run(run_id)


@transaction.atomic
def close_run(run_id: UUID) -> None:
    """Close the request of a run that has ended, if it is still pending. Locks the charge."""
    request = RefundRequest.objects.filter(run_id=run_id, state=RefundState.PENDING).first()
    if request is not None:
        close_ended(Charge.objects.select_for_update().get(pk=request.charge_id))


def close_ended(charge_locked: Charge) -> None:
    """Close each pending request of a charge whose run has ended."""
    for request in charge_locked.refund_requests.filter(state=RefundState.PENDING, run_id__isnull=False):
        assert request.run_id is not None
        run = api.get(request.run_id, by=None)
        if run.is_ended:
            _close(request, run)


def _close(request: RefundRequest, run: WorkflowRun) -> None:
    payments = list(SideEffect.objects.filter(run=run, effect="payments.refund"))
    paid = next((payment for payment in payments if payment.state == "CONFIRMED"), None)
    if paid is not None:
        request.mark_refunded(_refund_id(paid))
    elif all(payment.state in NOT_PAID for payment in payments):
        _close_unpaid(request, run)
    # Otherwise it may have been paid, and who abandoned the run has taken that over: it goes on counting.


def _close_unpaid(request: RefundRequest, run: WorkflowRun) -> None:
    if run.state == "CANCELLED":
        request.mark_withdrawn(f"called off by {run.cancel_asked_by or 'the system'}: {run.cancel_reason}"[:500])
    else:
        request.mark_failed(f"its workflow ended before the payment: {run.word}")


def _refund_id(paid: SideEffect) -> str:
    # A person may have confirmed a payment with a receipt of another form.
    found = paid.receipt.get("id") if isinstance(paid.receipt, dict) else None
    return str(found or paid.key)[:100]
