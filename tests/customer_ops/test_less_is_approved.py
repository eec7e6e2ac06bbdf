"""A manager approves less than was asked for: the provider, the charge, the customer and the desk go by what was."""

import uuid

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from customer_ops import selectors, services
from customer_ops.errors import RequestEnded
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import RefundState
from customer_ops.sandbox.control import RunningSandbox
from durableflows import InvalidState, Money, api
from durableflows.testing import open_request, virtual
from tests.support.desk import make_agent, make_charge, make_order, make_request, make_user, run_id_of, usd
from tests.support.desk_pages import words
from tests.support.payments import KEY


@pytest.fixture
def agent(db: None) -> User:
    return make_agent()


@pytest.fixture
def manager(db: None) -> User:
    return make_user("approve_refund", name="mona")


@pytest.mark.django_db(transaction=True)
def test_less_is_paid_once_and_the_rest_is_free_again(
    sandbox: RunningSandbox,
    payments: PaymentsClient,
    agent: User,
    manager: User,
    client: Client,
    settings: LazySettings,
) -> None:
    """The answer is lost, so the payment is looked at again after the request was lowered."""
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    receipt = payments.create_charge(key="less", amount=usd("900.00"))
    charge = make_charge(usd("900.00"), order=make_order(usd("900.00"), number="R-1"), provider_id=receipt.id)
    token = uuid.uuid4()
    sandbox.fault("cut_after", path="/v1/refunds")

    with virtual() as world:
        request = services.request_refund(charge.pk, usd("800.00"), "broken", by=agent, form_token=token)
        world.run_until_idle()
        asked = open_request(run_id_of(request))
        edits = {"amount": usd("550.00")}
        api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, edits=edits, comment="one lamp")
        world.run_through()

    request.refresh_from_db()
    assert (request.state, request.amount, request.asked) == (RefundState.REFUNDED, usd("550.00"), usd("800.00"))
    assert [act["amount"] for act in sandbox.books().refund_acts] == [550_00]
    assert selectors.balance(charge).left == usd("350.00")
    assert "returned $550.00 for your order R-1, of $800.00 that you asked for" in mail.outbox[0].body
    client.force_login(agent)
    page = words(client.get("/orders/R-1/"))
    assert "$800.00 were asked for; $550.00 were approved." in page
    assert "Approved by mona with changes (amount: USD 550.00): one lamp" in page
    again = services.request_refund(charge.pk, usd("800.00"), "broken", by=agent, form_token=token)
    assert again == request


@pytest.mark.django_db
def test_more_than_was_asked_is_not_approved(agent: User, manager: User) -> None:
    charge = make_charge(usd("9000.00"))
    with virtual() as world:
        request = services.request_refund(charge.pk, usd("800.00"), "broken", by=agent, form_token=uuid.uuid4())
        world.run_until_idle()
        asked = open_request(run_id_of(request))

        with pytest.raises(InvalidState, match=r"may be at most USD 800\.00"):
            api.answer(
                asked.pk,
                "approve",
                by=manager,
                facts_digest=asked.facts_digest,
                edits={"amount": usd("800.01")},
            )


@pytest.mark.django_db
def test_a_request_becomes_less_and_never_more() -> None:
    request = make_request(usd("80.00"))

    request.lower_to(usd("80.00"))
    assert request.asked == request.amount
    request.lower_to(usd("50.00"))
    request.lower_to(usd("50.00"))
    request.lower_to(usd("40.00"))

    assert (request.amount, request.asked_for) == (usd("40.00"), usd("80.00"))
    for other in (usd("41.00"), Money(30_00, "EUR")):
        with pytest.raises(RequestEnded):
            request.lower_to(other)


@pytest.mark.django_db
def test_a_request_that_was_called_off_meanwhile_stays_as_it_was() -> None:
    request = make_request(usd("80.00"))
    request.mark_withdrawn("called off")

    with pytest.raises(RequestEnded):
        request.lower_to(usd("50.00"))

    assert (request.amount, request.asked_for) == (usd("80.00"), None)
