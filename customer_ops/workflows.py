"""The refund, from the request to the mail. Found by the engine when Django starts; runs in Celery workers."""

from datetime import timedelta
from decimal import Decimal
from typing import cast

from customer_ops import policies
from customer_ops.effects import give_address_up, open_ticket, refund_payment, send_mail
from customer_ops.models import RefundRequest
from customer_ops.models import RefundState as RequestState
from durableflows import (
    Budget,
    Escalate,
    InvalidState,
    Money,
    NotFoundError,
    Retry,
    Run,
    StepRef,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    fail,
    step,
)

# Within the time for which the help desk knows a token.
TICKET_RETRY = Retry(attempts=12, base_seconds=2, cap_seconds=600, within=timedelta(minutes=110))


class RefundState(WorkflowState):
    """What a refund remembers between its steps."""

    request_id: int
    charge_id: str
    amount: Money
    refund_id: str | None = None


class Refund(Workflow[RefundState]):
    """Return a customer's money, with a manager's sign-off above the limit."""

    name, version = "refund", 1
    deadline = timedelta(days=14)
    budget = Budget(tool_calls=20, model_calls=10, cost_usd=Decimal("2.00"), iterations=50)

    @step(start=True, to=("sign_off", "pay"))
    def assess(self, run: Run[RefundState]) -> StepRef:
        return self.sign_off if policies.needs_sign_off(_request(run)) else self.pay

    sign_off = approval(
        title="Refund {amount} for order {order}",
        shows=policies.refund_facts,
        bands=policies.BANDS,
        amount="amount",
        edits=policies.Approved,
        exclude_requester=True,
        expires=timedelta(days=3),
        on_expiry=Escalate("customer_ops.approve_any_refund", then="deny"),
        approved="pay",
        rejected="turn_down",
    )

    @step(
        to="settle",
        effects=(refund_payment,),
        recheck=policies.still_refundable,
        on_refused="give_up",
        on_failure="give_up",
        retry=Retry(attempts=6, base_seconds=2, cap_seconds=300, within=timedelta(hours=20)),
    )
    def pay(self, run: Run[RefundState]) -> None:
        request = _request(run)
        approved = _approved(run)
        if approved is not None:
            request.lower_to(approved.amount)
        receipt = run.effect(refund_payment, charge_id=run.state.charge_id, amount=request.amount)
        run.state.refund_id = receipt.id

    # Atomic steps: the row and the checkpoint are committed together, so each happens exactly once.

    @step(to="tell_customer", atomic=True)
    def settle(self, run: Run[RefundState]) -> None:
        if run.state.refund_id is None:
            raise InvalidState("settle is reached without a refund")
        _request(run).mark_refunded(run.state.refund_id)

    @step(to="tell_customer", atomic=True)
    def turn_down(self, run: Run[RefundState]) -> None:
        decision = run.decision(self.sign_off)
        who = f"by {decision.actor_name}" if decision.actor_name else "because nobody answered in time"
        _request(run).mark_rejected(f"rejected {who}{f': {decision.comment}' if decision.comment else ''}")

    @step(to=("ask_agent", "tell_customer"), atomic=True)
    def give_up(self, run: Run[RefundState]) -> StepRef:
        request = _request(run)
        if not request.is_pending:  # a recheck also refuses what has ended otherwise meanwhile
            return self.tell_customer
        request.mark_failed("the refund could not be paid; its history says why")
        return self.ask_agent

    # Before the mail, which promises that somebody will get in touch.
    @step(to="tell_customer", effects=(open_ticket,), retry=TICKET_RETRY)
    def ask_agent(self, run: Run[RefundState]) -> None:
        run.effect(open_ticket, about="unpaid", request_id=run.state.request_id)

    @step(end=True, effects=(send_mail,), on_failure="hand_over")
    def tell_customer(self, run: Run[RefundState]) -> StepReturn:
        request = _request(run)
        run.effect(send_mail, template=request.state.lower(), request_id=request.pk)
        return _end(request)

    @step(end=True, effects=(give_address_up, open_ticket), retry=TICKET_RETRY)
    def hand_over(self, run: Run[RefundState]) -> StepReturn:
        run.effect(give_address_up, request_id=run.state.request_id)
        run.effect(open_ticket, about="untold", request_id=run.state.request_id)
        return _end(_request(run))


def _end(request: RefundRequest) -> StepReturn:
    """A refund that could not be paid is no success, however well that went."""
    return fail(request.ended_because) if request.state == RequestState.FAILED else None


def _approved(run: Run[RefundState]) -> policies.Approved | None:
    """What a manager has changed; None where nothing was, or nobody had to be asked."""
    try:
        return cast(policies.Approved | None, run.decision(Refund.sign_off).edits)
    except NotFoundError:
        return None


def _request(run: Run[RefundState]) -> RefundRequest:
    requests = RefundRequest.objects.select_related("charge__order__customer")
    return requests.get(pk=run.state.request_id)
