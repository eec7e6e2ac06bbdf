"""The business rules of refunds: which need a sign-off, what a manager is shown, whether one may still be paid.

Called by the steps in `workflows`, before and after a wait. Reads rows, writes none, calls nothing outside.
"""

from typing import TYPE_CHECKING

from django.db.models import QuerySet
from pydantic import BaseModel, Field

from customer_ops import selectors
from customer_ops.limits import rule_that_asks
from customer_ops.models import MAY_ASK, RefundRequest
from durableflows import Approvers, Band, Facts, Money, NeedsHuman, Run

if TYPE_CHECKING:
    from customer_ops.workflows import RefundState

EARLIER_SHOWN = 5
FINANCE = "finance"
"""The group of those who sign off what is too much for a manager."""
MANAGER = Approvers(permission="customer_ops.approve_refund")
BANDS = (
    *(Band(up_to=limit, by=MANAGER) for limit in (Money(500_000, "USD"), Money(500_000, "EUR"), Money(750_000, "JPY"))),
    Band(up_to=None, by=Approvers(groups=[FINANCE], quorum=2)),
)
"""Who signs a refund off: a manager up to 5,000 dollars; above that, or in another currency, two of finance."""


class Approved(BaseModel):
    """What a manager may change while approving. The engine lets an amount be lowered, never raised."""

    amount: Money = Field(title="Amount to refund")


def needs_sign_off(request: RefundRequest) -> bool:
    """Say whether a manager must agree: above the limit, alone or with the order's other refunds of the window."""
    return rule_that_asks(request) is not None


def refund_facts(run: "Run[RefundState]") -> Facts:
    """Collect what a manager decides on. A decision holds for `binding`; `context` may change meanwhile."""
    request = _request_of(run)
    order = request.charge.order
    return Facts(
        binding={
            "amount": request.amount,
            "charge": request.charge.provider_id,
            "order": order.number,
            "customer": f"{order.customer.name} <{order.customer.email}>",
        },
        context={
            "reason": request.reason,
            "requested by": request.requested_by_name,
            "rule": rule_that_asks(request) or "below the limit now",
            "order total": order.total,
            "earlier refunds": _told(selectors.earlier_refunds(request)),
            # A limit counts these too, and one whose answer was lost may have been paid.
            "other refunds not settled yet": _told(selectors.open_refunds(request)),
        },
    )


def _told(refunds: "QuerySet[RefundRequest]") -> list[str]:
    """Say the newest in a line each, and how many more there are."""
    shown = [
        f"{one.amount.display} of order {one.charge.order.number} on {one.created_at:%Y-%m-%d}: {one.reason}"
        for one in refunds[:EARLIER_SHOWN]
    ]
    more = refunds.count() - len(shown)
    return [*shown, f"and {more} more"] if more > 0 else shown


def still_refundable(run: "Run[RefundState]") -> bool | str:
    """Say whether the refund may still be sent; otherwise why not.

    Raises NeedsHuman when whoever asked has lost the right meanwhile: the run waits, and goes on once a person who has
    looked at it retries it with the right given back, or ends when one cancels it.
    """
    request = _request_of(run)
    if not request.is_pending:
        return f"the request is {request.get_state_display()} already"
    # Before what was changed or is left: a refusal would tell the customer, and nobody has decided that.
    if not _may_ask(request):
        raise NeedsHuman(f"{request.requested_by_name} asked for this refund and has no right to ask any more")
    if (request.asked, request.charge.provider_id) != (run.state.amount, run.state.charge_id):
        return "the request was changed after it was made"
    # Its own reservation is left out, else a refund of the whole charge would refuse itself.
    left = selectors.left_without(request)
    if request.amount > left:
        return f"the charge has only {left.display} left"
    return True


def _may_ask(request: RefundRequest) -> bool:
    # False as well for an account that was deactivated or deleted.
    return request.requested_by is not None and request.requested_by.has_perm(MAY_ASK)


def _request_of(run: "Run[RefundState]") -> RefundRequest:
    requests = RefundRequest.objects.select_related("charge__order__customer", "requested_by")
    return requests.get(pk=run.state.request_id)
