"""Calling off in the same instant as others act: one of two is told, no money leaves, and nobody waits for ever."""

import uuid
from functools import partial

import pytest
from django.contrib.auth.models import Permission, User

from customer_ops import selectors, services
from customer_ops.errors import CannotCallOff
from customer_ops.models import Charge, RefundRequest
from durableflows import TooLate, api
from durableflows.models import WorkflowRun
from durableflows.testing import open_request, virtual
from tests.support.desk import make_agent, make_charge, make_user, run_id_of, usd
from tests.support.rivals import at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 5


def ask(charge: Charge, amount: str, by: User) -> RefundRequest:
    return services.request_refund(charge.pk, usd(amount), "broken", by=by, form_token=uuid.uuid4())


def operator() -> User:
    person = make_user("view_order")
    person.user_permissions.add(Permission.objects.get(codename="operate_run"))
    return User.objects.get(pk=person.pk)


def calling_off(request: RefundRequest, by: User) -> "partial[RefundRequest]":
    own = RefundRequest.objects.get(pk=request.pk)  # each browser has read the row for itself
    return partial(services.call_off, own, f"by {by}", by=by)


def test_of_two_people_one_calls_it_off_and_the_other_is_told() -> None:
    agent, other = make_agent(), operator()
    for _ in range(ROUNDS):
        with virtual():
            request = ask(make_charge(usd("100.00")), "60.00", agent)
            outcomes = at_once(calling_off(request, agent), calling_off(request, other))

        request.refresh_from_db()
        first = WorkflowRun.objects.get(pk=run_id_of(request)).cancel_asked_by
        assert {type(outcome) for outcome in outcomes} == {RefundRequest, CannotCallOff}
        assert first in next(str(outcome) for outcome in outcomes if isinstance(outcome, CannotCallOff))
        assert (request.state, request.ended_because) == ("WITHDRAWN", f"called off by {first}: by {first}")


def test_a_manager_who_approves_in_the_same_instant_sends_nothing() -> None:
    agent, manager = make_agent(), make_user("approve_refund")
    for _ in range(ROUNDS):
        with virtual() as world:
            request = ask(make_charge(usd("900.00")), "600.00", agent)
            world.run_until_idle()
            asked = open_request(run_id_of(request))
            approving = partial(api.answer, asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)
            called_off, approved = at_once(calling_off(request, agent), approving)
            world.run_through()

        request.refresh_from_db()
        assert isinstance(called_off, RefundRequest), called_off
        assert not isinstance(approved, BaseException) or isinstance(approved, TooLate)
        assert request.state == "WITHDRAWN"
        assert not WorkflowRun.objects.get(pk=run_id_of(request)).effects.exists()


def test_another_refund_of_the_charge_in_the_same_instant_waits_for_nobody() -> None:
    agent = make_agent()
    for _ in range(ROUNDS):
        charge = make_charge(usd("100.00"))
        with virtual():
            request = ask(charge, "60.00", agent)
            called_off, asked = at_once(calling_off(request, agent), partial(ask, charge, "40.00", agent))

        assert isinstance(called_off, RefundRequest), called_off
        assert isinstance(asked, RefundRequest), asked
        assert selectors.balance(charge).left == usd("60.00")
