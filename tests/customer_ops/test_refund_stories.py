"""Refunds from the form to the mail: the real engine, the real provider's sandbox, played time."""

import uuid
from collections.abc import Iterator

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Group, User
from django.core import mail
from django.test import Client
from django.utils import timezone

from customer_ops import policies, selectors, services
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import Charge, Customer, Mail, RefundRequest, RefundState, Ticket
from customer_ops.sandbox.control import RunningSandbox
from durableflows import Money, NotFoundError, api
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.testing import World, effect_states, open_request, virtual
from tests.support.desk import make_agent, make_charge, make_order, make_user, run_id_of, usd
from tests.support.payments import KEY, call
from tests.support.smtp_server import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(settings: LazySettings, sandbox: RunningSandbox) -> Iterator[World]:
    """Played workers and time; the sandbox takes the payments."""
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY
    with virtual() as world:
        yield world


@pytest.fixture
def agent() -> User:
    return make_agent()


@pytest.fixture
def manager() -> User:
    return make_user("approve_refund")


def charge_of(payments: PaymentsClient, amount: Money) -> Charge:
    """A charge that the provider knows."""
    receipt = payments.create_charge(key=str(uuid.uuid4()), amount=amount)
    return make_charge(amount, order=make_order(amount, number="R-1"), provider_id=receipt.id)


def ask(charge: Charge, amount: Money, by: User) -> RefundRequest:
    """Ask for a refund."""
    return services.request_refund(charge.pk, amount, "broken", by=by, form_token=uuid.uuid4())


def run_of(request: RefundRequest) -> WorkflowRun:
    """The run as it is now."""
    return WorkflowRun.objects.get(pk=run_id_of(request))


def answer(request: RefundRequest, verdict: str, by: User, *, comment: str = "") -> None:
    """Answer the open request of a run, for what is shown."""
    asked = open_request(run_id_of(request))
    api.answer(asked.pk, verdict, by=by, facts_digest=asked.facts_digest, comment=comment)


def test_a_small_refund_is_paid_once_and_the_customer_told(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User
) -> None:
    """S1.17."""
    charge = charge_of(payments, usd("100.00"))

    request = ask(charge, usd("60.00"), agent)
    world.run_until_idle()

    request.refresh_from_db()
    assert run_of(request).state == RunState.SUCCEEDED
    assert [act["amount"] for act in sandbox.books().refund_acts] == [6000]
    assert (request.state, request.refund_id) == ("REFUNDED", sandbox.books().refunds[0]["id"])
    assert selectors.balance(charge).refunded == usd("60.00")
    assert [sent.subject for sent in mail.outbox] == ["Your refund for order R-1"]
    assert "$60.00" in mail.outbox[0].body
    assert Mail.objects.get().sent_at is not None


def test_above_the_limit_nothing_is_paid_before_a_manager_agrees(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User
) -> None:
    request = ask(charge_of(payments, usd("900.00")), usd("600.00"), agent)
    world.run_until_idle()
    assert run_of(request).state == RunState.WAITING_HUMAN
    assert sandbox.books().refund_acts == []
    assert mail.outbox == []

    answer(request, "approve", manager)
    world.run_until_idle()

    assert run_of(request).state == RunState.SUCCEEDED
    assert len(sandbox.books().refund_acts) == 1


def test_a_rejected_refund_is_not_paid_and_frees_the_charge(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User
) -> None:
    charge = charge_of(payments, usd("900.00"))
    request = ask(charge, usd("600.00"), agent)
    world.run_until_idle()

    answer(request, "reject", manager, comment="see the photo")
    world.run_until_idle()

    request.refresh_from_db()
    assert request.state == "REJECTED"
    assert request.ended_because == f"rejected by {manager.username}: see the photo"
    assert run_of(request).state == RunState.SUCCEEDED
    assert sandbox.books().refund_acts == []
    assert selectors.balance(charge).left == usd("900.00")
    assert [sent.subject for sent in mail.outbox] == ["About your refund for order R-1"]


def test_a_refund_that_nobody_answers_is_denied_in_the_end(world: World, payments: PaymentsClient, agent: User) -> None:
    request = ask(charge_of(payments, usd("900.00")), usd("600.00"), agent)
    world.run_until_idle()

    for _ in range(3):
        world.clock.advance(days=3, seconds=1)
        world.run_until_idle()

    request.refresh_from_db()
    assert request.state == "REJECTED"
    assert request.ended_because == "rejected because nobody answered in time"


def test_a_lost_answer_pays_once(world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User) -> None:
    sandbox.fault("cut_after", path="/v1/refunds")

    request = ask(charge_of(payments, usd("100.00")), usd("60.00"), agent)
    world.run_through()

    request.refresh_from_db()
    assert request.state == "REFUNDED"
    assert len(sandbox.books().refund_acts) == 1
    assert len(mail.outbox) == 1


def test_a_refund_that_the_provider_refuses_frees_the_charge_and_is_handed_to_an_agent(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User
) -> None:
    """S3.34."""
    charge = charge_of(payments, usd("100.00"))
    payments.refund(call("df_by_hand"), charge_id=charge.provider_id, amount=usd("80.00"))

    request = ask(charge, usd("60.00"), agent)
    world.run_through()

    request.refresh_from_db()
    assert request.state == "FAILED"
    assert run_of(request).state == RunState.FAILED
    assert len(sandbox.books().refund_acts) == 1
    assert [sent.subject for sent in mail.outbox] == ["Your refund for order R-1 is delayed"]
    assert [ticket.subject for ticket in Ticket.objects.all()] == ["Refund of $60.00 for order R-1 could not be paid"]


def test_the_help_desk_has_a_ticket_before_the_customer_is_promised_a_colleague(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, settings: LazySettings
) -> None:
    settings.TICKETS_URL, settings.TICKETS_KEY = sandbox.url, KEY
    charge = charge_of(payments, usd("100.00"))
    payments.refund(call("df_by_hand"), charge_id=charge.provider_id, amount=usd("80.00"))
    sandbox.fault("rate_limited", path="/tickets")

    request = ask(charge, usd("60.00"), agent)
    world.run_until_idle()
    promised, tickets = list(mail.outbox), sandbox.books().tickets
    world.run_through()

    assert (promised, tickets) == ([], [])
    (ticket,) = sandbox.books().tickets
    assert ticket["subject"] == "Refund of $60.00 for order R-1 could not be paid"
    assert Ticket.objects.get().provider_id == ticket["id"]
    assert [sent.subject for sent in mail.outbox] == ["Your refund for order R-1 is delayed"]
    assert run_of(request).state == RunState.FAILED


def test_a_mail_that_is_refused_for_good_is_handed_to_an_agent_and_the_refund_stays_done(
    world: World, payments: PaymentsClient, agent: User, settings: LazySettings
) -> None:
    """S2.20."""
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = "customer_ops.gateways.smtp.TellingBackend", "127.0.0.1"
    with smtp_server(RCPT="550 no such mailbox") as server:
        settings.EMAIL_PORT = server.port
        request = ask(charge_of(payments, usd("100.00")), usd("60.00"), agent)
        world.run_through()

    request.refresh_from_db()
    assert (request.state, run_of(request).state) == ("REFUNDED", RunState.SUCCEEDED)
    ticket = Ticket.objects.get()
    assert ticket.subject == "Refund of $60.00 for order R-1 was not told to the customer"
    assert ticket.customer == request.charge.order.customer
    assert ticket.customer.mail_failed_at is not None
    assert Mail.objects.get().sent_at is None


def test_an_address_that_takes_a_mail_again_is_good_again(world: World, payments: PaymentsClient, agent: User) -> None:
    charge = charge_of(payments, usd("100.00"))
    Customer.objects.update(mail_failed_at=timezone.now())

    ask(charge, usd("60.00"), agent)
    world.run_until_idle()

    assert Customer.objects.get().mail_failed_at is None


def test_a_right_that_was_lost_while_the_manager_thought_keeps_the_money_here(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User
) -> None:
    """R26, S2.8: the run waits for a person, and goes on when the right is back and somebody says so."""
    request = ask(charge_of(payments, usd("900.00")), usd("600.00"), agent)
    world.run_until_idle()
    rights = list(agent.user_permissions.all())
    agent.user_permissions.clear()

    answer(request, "approve", manager)
    world.run_through()

    run = run_of(request)
    assert run.state == RunState.PARKED
    assert "no right to ask any more" in run.parked_detail
    assert sandbox.books().refund_acts == []

    agent.user_permissions.set(rights)
    api.retry(run.pk, reason="back from leave")
    world.run_through()

    request.refresh_from_db()
    assert request.state == "REFUNDED"
    assert len(sandbox.books().refund_acts) == 1


def test_a_pending_refund_is_not_told_as_done(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User
) -> None:
    """R17."""
    sandbox.fault("pending", path="/v1/refunds")
    request = ask(charge_of(payments, usd("100.00")), usd("60.00"), agent)
    world.run_until_idle()
    request.refresh_from_db()
    assert (request.state, mail.outbox) == ("PENDING", [])

    sandbox.settle(sandbox.books().refunds[0]["id"], "succeeded")
    world.run_through()

    request.refresh_from_db()
    assert request.state == "REFUNDED"
    assert len(mail.outbox) == 1


def test_a_pending_refund_that_fails_is_not_told_as_done(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User
) -> None:
    """R17."""
    sandbox.fault("pending", path="/v1/refunds")
    request = ask(charge_of(payments, usd("100.00")), usd("60.00"), agent)
    world.run_until_idle()

    sandbox.settle(sandbox.books().refunds[0]["id"], "failed")
    world.run_through()

    request.refresh_from_db()
    assert request.state == "FAILED"
    assert [sent.subject for sent in mail.outbox] == ["Your refund for order R-1 is delayed"]


def test_a_cancelled_refund_frees_the_charge(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User
) -> None:
    charge = charge_of(payments, usd("900.00"))
    request = ask(charge, usd("600.00"), agent)
    world.run_until_idle()

    api.cancel(run_id_of(request), reason="the customer changed her mind")
    world.run_through()

    request.refresh_from_db()
    assert run_of(request).state == RunState.CANCELLED
    assert request.state == "WITHDRAWN"
    assert request.ended_because == "called off by the system: the customer changed her mind"
    assert selectors.balance(charge).left == usd("900.00")
    assert sandbox.books().refund_acts == []


def test_a_request_that_was_closed_meanwhile_is_not_paid(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User
) -> None:
    request = ask(charge_of(payments, usd("900.00")), usd("600.00"), agent)
    world.run_until_idle()
    request.mark_rejected("withdrawn")

    answer(request, "approve", manager)
    world.run_through()

    request.refresh_from_db()
    assert request.state == "REJECTED"
    assert sandbox.books().refund_acts == []


@pytest.mark.parametrize("fault", ["pending", "cut_after"])
def test_the_limit_is_not_dodged_by_a_second_refund_while_the_first_is_open_or_unknown(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User, fault: str
) -> None:
    """R19: 300 and 300 dollars of one order; the manager is told why in words."""
    charge = charge_of(payments, usd("900.00"))
    sandbox.fault(fault, path="/v1/refunds")
    first = ask(charge, usd("300.00"), agent)
    world.run_until_idle()

    second = ask(charge, usd("300.00"), agent)
    world.run_until_idle()

    assert run_of(first).state in (RunState.WAITING, RunState.NEEDS_RECONCILIATION)
    assert run_of(second).state == RunState.WAITING_HUMAN
    context = open_request(run_id_of(second)).context
    assert context["rule"] == "more than $500.00 for one order within 24 hours, in 2 refunds"
    assert len(sandbox.books().refund_acts) == 1


def test_yen_reach_the_provider_as_yen(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, agent: User, manager: User
) -> None:
    """R18: 5800 yen, not 58 and not 580000. No rate is set, so a manager is asked."""
    request = ask(charge_of(payments, Money(5800, "JPY")), Money(5800, "JPY"), agent)
    world.run_until_idle()

    answer(request, "approve", manager)
    world.run_until_idle()

    assert [act["amount"] for act in sandbox.books().refund_acts] == [5800]
    assert "¥5,800" in mail.outbox[0].body


def test_the_page_tells_how_far_a_refund_is(
    world: World, payments: PaymentsClient, agent: User, manager: User, client: Client
) -> None:
    request = ask(charge_of(payments, usd("900.00")), usd("600.00"), agent)
    world.run_until_idle()
    client.force_login(agent)

    waiting = client.get("/orders/R-1/").content.decode()
    answer(request, "approve", manager)
    world.run_until_idle()
    done = client.get("/orders/R-1/").content.decode()

    assert "waiting for a manager" in waiting
    assert "refunded" in done
    assert waiting != done


def test_effects_of_a_refund_are_confirmed(world: World, payments: PaymentsClient, agent: User) -> None:
    """S3.19, S3.44."""
    request = ask(charge_of(payments, usd("100.00")), usd("60.00"), agent)
    world.run_until_idle()

    assert [(name, state.value) for name, state in effect_states(run_id_of(request))] == [
        ("payments.refund", "CONFIRMED"),
        ("mail.send", "CONFIRMED"),
    ]


def test_two_of_finance_sign_off_what_is_too_much_for_a_manager(
    world: World, payments: PaymentsClient, agent: User, manager: User
) -> None:
    finance = Group.objects.create(name=policies.FINANCE)
    first, second = make_user(name="fin-1"), make_user(name="fin-2")
    finance.user_set.add(first, second)
    amount = Money(500_001, "USD")
    request = ask(charge_of(payments, amount), amount, agent)
    world.run_until_idle()

    with pytest.raises(NotFoundError):
        answer(request, "approve", manager)
    answer(request, "approve", first)
    world.run_until_idle()
    request.refresh_from_db()
    assert request.state == RefundState.PENDING
    answer(request, "approve", second)
    world.run_until_idle()

    request.refresh_from_db()
    assert request.state == RefundState.REFUNDED
