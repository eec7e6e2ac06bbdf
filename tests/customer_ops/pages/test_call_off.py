"""Calling a refund off: who is offered it and may, what it comes to, and what is said when it came too late."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from customer_ops import selectors
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import Charge, RefundRequest
from customer_ops.sandbox.control import RunningSandbox
from durableflows import api
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.desk import make_agent, make_charge, make_order, make_user, run_id_of, usd
from tests.support.desk_pages import errors_in, said, send, text, words

CUSTOM = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refund(browser: Client, charge: Charge) -> RefundRequest:
    """60 dollars, asked for by the agent; no worker has begun."""
    send(browser, charge)
    browser.get("/orders/R-1/")  # reads the message
    return RefundRequest.objects.get()


@pytest.fixture
def operator(db: None) -> Client:
    """Somebody who may operate workflows."""
    person = make_user("view_order")
    person.user_permissions.add(Permission.objects.get(codename="operate_run"))
    client = Client()
    client.force_login(person)
    return client


def address(refund: RefundRequest) -> str:
    return f"/refunds/{refund.pk}/call-off/"


def call_off(browser: Client, refund: RefundRequest, reason: str = "wrong customer") -> str:
    """Post it; returns what is said."""
    response = browser.post(address(refund), {"reason": reason})
    assert (response.status_code, response["Location"]) == (302, f"/orders/R-1/#refund-{refund.pk}")
    return said(response)


def large(world: World, payments: PaymentsClient, browser: Client) -> RefundRequest:
    """600 dollars that wait for a manager."""
    receipt = payments.create_charge(key="of R-1", amount=usd("900.00"))
    order = make_order(usd("900.00"), number="R-1")
    send(browser, make_charge(usd("900.00"), order=order, provider_id=receipt.id), amount="600.00")
    world.run_until_idle()
    return RefundRequest.objects.get()


def small(payments: PaymentsClient, browser: Client) -> RefundRequest:
    """60 dollars that no worker has seen."""
    receipt = payments.create_charge(key="of R-1", amount=usd("100.00"))
    order = make_order(usd("100.00"), number="R-1")
    send(browser, make_charge(usd("100.00"), order=order, provider_id=receipt.id))
    return RefundRequest.objects.get()


def test_the_page_asks_first_and_looking_changes_nothing(browser: Client, refund: RefundRequest) -> None:
    page = browser.get(address(refund))

    assert "Call off the refund of $60.00?" in words(page)
    assert "Nothing of it is at the payment provider." in words(page)
    assert WorkflowRun.objects.get().cancel_asked_at is None


def test_what_was_not_sent_is_called_off_and_the_amount_is_free(browser: Client, refund: RefundRequest) -> None:
    assert call_off(browser, refund) == (
        "The refund of $60.00 is called off. No money has left, and the amount is free."
    )

    refund.refresh_from_db()
    assert refund.state == "WITHDRAWN"
    assert refund.ended_because.endswith(": wrong customer")
    assert selectors.balance(refund.charge).left == usd("100.00")
    page = words(browser.get("/orders/R-1/"))
    assert "$60.00 called off" in page
    assert "Called off by" in page
    assert "Call this refund off" not in page


def test_others_may_not_and_are_not_offered_it(client: Client, refund: RefundRequest) -> None:
    client.force_login(make_agent())

    assert "call-off" not in text(client.get("/orders/R-1/"))
    assert client.get(address(refund)).status_code == 403
    response = client.post(address(refund), {"reason": "mine"})
    assert response.status_code == 403
    assert "Only who asked for a refund calls it off" in words(response)
    assert WorkflowRun.objects.get().cancel_asked_at is None


def test_an_operator_is_offered_what_others_asked_for(operator: Client, refund: RefundRequest) -> None:
    assert f'href="{address(refund)}"' in text(operator.get("/orders/R-1/"))

    assert "is called off" in call_off(operator, refund)


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "\x00", "\u200b\u200b"])
def test_a_bad_reason_is_refused_beside_its_field_and_kept(browser: Client, refund: RefundRequest, reason: str) -> None:
    """R30 for NUL."""
    response = browser.post(address(refund), {"reason": reason})

    assert response.status_code == 422
    assert errors_in(response)
    field = re.search(r"<textarea[^>]*>", text(response))
    assert field is not None
    assert 'aria-invalid="true"' in field[0]
    assert 'aria-describedby="id_reason_helptext id_reason_error"' in field[0]
    assert '<a href="#id_reason">' in text(response)
    assert WorkflowRun.objects.get().cancel_asked_at is None


def test_twice_by_the_same_person_is_one(browser: Client, refund: RefundRequest) -> None:
    first = call_off(browser, refund)
    browser.get("/orders/R-1/")

    assert call_off(browser, refund) == first


def test_the_second_of_two_people_is_told_who_was_first(
    browser: Client, operator: Client, refund: RefundRequest
) -> None:
    call_off(browser, refund)

    assert f"{refund.requested_by_name} has called it off already." in call_off(operator, refund)


def test_the_page_of_one_that_has_ended_leads_back_with_a_word(browser: Client, refund: RefundRequest) -> None:
    call_off(browser, refund)

    response = browser.get(address(refund))

    assert response.status_code == 302
    assert "nothing left to call off" in said(response)


@pytest.mark.parametrize("pk", ["0", "999999", "9" * 30])
def test_a_refund_that_is_not_there_is_not_found(browser: Client, pk: str) -> None:
    assert browser.get(f"/refunds/{pk}/call-off/").status_code == 404
    assert browser.post(f"/refunds/{pk}/call-off/", {"reason": "x"}).status_code == 404


def test_without_the_token_of_the_site_nothing_is_called_off(agent: User, refund: RefundRequest) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(agent)

    assert strict.post(address(refund), {"reason": "x"}).status_code == 403
    assert WorkflowRun.objects.get().cancel_asked_at is None


@CUSTOM
def test_what_a_manager_rejected_meanwhile_is_too_late(world: World, payments: PaymentsClient, browser: Client) -> None:
    refund = large(world, payments, browser)
    asked, manager = open_request(run_id_of(refund)), make_user("approve_refund", name="mia")
    api.answer(asked.pk, "reject", by=manager, facts_digest=asked.facts_digest, comment="no receipt")
    world.run_until_idle()

    message = call_off(browser, refund)

    assert "was not called off. Too late: it is rejected already (rejected by mia: no receipt)." in message


@CUSTOM
def test_what_is_called_off_while_a_manager_thinks_cannot_be_approved(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client
) -> None:
    refund = large(world, payments, browser)

    assert "is called off" in call_off(browser, refund)
    world.run_through()

    refund.refresh_from_db()
    assert refund.state == "WITHDRAWN"
    assert sandbox.books().refund_acts == []


@CUSTOM
def test_what_was_approved_and_not_sent_is_still_called_off(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client
) -> None:
    refund = large(world, payments, browser)
    asked = open_request(run_id_of(refund))
    api.answer(asked.pk, "approve", by=make_user("approve_refund"), facts_digest=asked.facts_digest)

    assert "is called off" in call_off(browser, refund)
    world.run_through()

    assert sandbox.books().refund_acts == []


@CUSTOM
def test_what_was_paid_meanwhile_is_too_late(world: World, payments: PaymentsClient, browser: Client) -> None:
    refund = small(payments, browser)
    world.run_until_idle()

    assert "Too late: it is refunded already." in call_off(browser, refund)


@CUSTOM
def test_what_is_in_doubt_is_settled_first_and_counts_when_it_was_paid(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client
) -> None:
    """A cancel never turns an unknown payment into one that did not happen."""
    refund = small(payments, browser)
    sandbox.fault("cut_after", path="/v1/refunds")
    sandbox.fault("error_before", times=50, path="/v1/refunds", method=None)
    world.run_until_idle()
    assert "was asked already" in words(browser.get(address(refund)))

    assert "first it is found out whether it was paid" in call_off(browser, refund)
    page = words(browser.get("/orders/R-1/"))
    assert "$60.00 in doubt" in page
    assert "first it is found out whether it was paid" in page
    assert "Call this refund off" not in page

    sandbox.clear_faults()
    world.run_through()
    refund.refresh_from_db()
    assert refund.state == "REFUNDED"
    assert len(sandbox.books().refund_acts) == 1
    page = words(browser.get("/orders/R-1/"))
    assert f"The customer got no mail about it: called off by {refund.requested_by_name}" in page


def test_what_was_abandoned_in_doubt_is_not_called_pending(browser: Client, refund: RefundRequest) -> None:
    WorkflowRun.objects.update(state="ABANDONED", ended_at=refund.created_at)
    run = WorkflowRun.objects.get()
    SideEffect.objects.create(
        run=run,
        step=run.steps.get(),
        step_name="pay",
        operation="payments.refund",
        effect="payments.refund",
        provider="payments",
        key="df_1",
        request_digest="0",
        state="UNKNOWN",
        in_doubt_since=refund.created_at,
        created_at=refund.created_at,
    )

    assert "its workflow has ended, and it may have been paid" in call_off(browser, refund)
    page = words(browser.get("/orders/R-1/"))
    assert "Sent, outcome unknown $60.00" in page
    assert "A person has taken over what is open" in page
