"""A reservation whose run ended without its own last steps: the charge is freed only when it is safe."""

import uuid

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from customer_ops import endings, selectors, services
from customer_ops.models import Charge, RefundRequest
from durableflows import api
from durableflows.models import SideEffect, StepRun, WorkflowRun
from tests.support.desk import make_agent, make_charge, run_id_of, usd


@pytest.fixture
def agent(db: None) -> User:
    return make_agent()


@pytest.fixture
def charge(db: None) -> Charge:
    """A charge of 100 dollars."""
    return make_charge(usd("100.00"))


@pytest.fixture
def request_(agent: User, charge: Charge) -> RefundRequest:
    """A refund of 60 dollars whose run was started."""
    return services.request_refund(charge.pk, usd("60.00"), "broken", by=agent, form_token=uuid.uuid4())


def end(request: RefundRequest, payment: str = "", *, receipt: object = None) -> None:
    """End the run as cancelled, after its payment came to a state; the engine's own ways are tested elsewhere."""
    now = timezone.now()
    if payment:
        SideEffect.objects.create(
            run_id=run_id_of(request),
            step=StepRun.objects.get(run_id=run_id_of(request)),
            step_name="pay",
            operation="payments.refund",
            effect="payments.refund",
            provider="payments",
            key=f"df_{request.pk}",
            request_digest="0",
            state=payment,
            in_doubt_since=now if payment == "UNKNOWN" else None,
            receipt=receipt,
            created_at=now,
        )
    WorkflowRun.objects.filter(pk=run_id_of(request)).update(state="CANCELLED", ended_at=now)


@pytest.mark.parametrize("payment", ["", "PLANNED", "REJECTED", "ABSENT", "REVERSED"])
def test_what_was_not_paid_frees_the_charge(request_: RefundRequest, charge: Charge, payment: str) -> None:
    end(request_, payment)

    endings.close_ended(charge)

    request_.refresh_from_db()
    assert request_.state == "WITHDRAWN"
    assert selectors.balance(charge).left == usd("100.00")


@pytest.mark.parametrize("payment", ["UNKNOWN", "DISPATCHED", "ACCEPTED"])
def test_what_may_have_been_paid_goes_on_counting(request_: RefundRequest, charge: Charge, payment: str) -> None:
    end(request_, payment)

    endings.close_ended(charge)

    request_.refresh_from_db()
    assert request_.state == "PENDING"
    assert selectors.balance(charge).left == usd("40.00")


@pytest.mark.parametrize(("receipt", "refund_id"), [({"id": "re_7"}, "re_7"), ({"note": "seen"}, "df_"), ("x", "df_")])
def test_what_was_paid_is_refunded(request_: RefundRequest, charge: Charge, receipt: object, refund_id: str) -> None:
    end(request_, "CONFIRMED", receipt=receipt)

    endings.close_ended(charge)

    request_.refresh_from_db()
    assert request_.state == "REFUNDED"
    assert request_.refund_id.startswith(refund_id)


def test_a_run_under_way_keeps_its_reservation(request_: RefundRequest, charge: Charge) -> None:
    endings.on_run_event(run_id=run_id_of(request_), kind="run.ended")
    endings.on_run_event(run_id=uuid.uuid4(), kind="run.ended")
    endings.on_run_event(run_id=run_id_of(request_), kind="step.ready")

    request_.refresh_from_db()
    assert request_.state == "PENDING"


def test_the_next_request_frees_what_a_lost_signal_left(agent: User, request_: RefundRequest, charge: Charge) -> None:
    end(request_)

    second = services.request_refund(charge.pk, usd("100.00"), "all of it", by=agent, form_token=uuid.uuid4())

    assert second.is_pending
    request_.refresh_from_db()
    assert request_.state == "WITHDRAWN"


@pytest.mark.django_db(transaction=True)
def test_a_cancel_frees_the_charge_after_its_commit() -> None:
    charge = make_charge(usd("100.00"))
    request = services.request_refund(charge.pk, usd("60.00"), "broken", by=make_agent(), form_token=uuid.uuid4())

    api.cancel(run_id_of(request), reason="not wanted any more")

    request.refresh_from_db()
    assert (request.state, api.get(run_id_of(request), by=None).state) == ("WITHDRAWN", "CANCELLED")
