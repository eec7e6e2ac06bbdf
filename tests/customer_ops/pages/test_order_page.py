"""The page of one order: who sees it, where the money is, and how far each refund is, in words."""

import re

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.test import Client

from customer_ops.gateways.payments import PaymentsClient
from customer_ops.models import Charge, Customer, Order, RefundRequest, Ticket
from customer_ops.sandbox.control import RunningSandbox
from durableflows import api
from durableflows.models import WorkflowRun
from durableflows.testing import World, open_request, virtual
from tests.support.desk import make_agent, make_charge, make_order, make_user, run_id_of, usd
from tests.support.desk_pages import send, text, words
from tests.support.mail_office import BACKEND
from tests.support.payments import KEY, call
from tests.support.smtp_server import smtp_server

REFUNDS = "/v1/refunds"
CUSTOM = pytest.mark.django_db(transaction=True)


def charge_of(payments: PaymentsClient, amount: str) -> Charge:
    """A charge that the provider knows, for order R-1."""
    receipt = payments.create_charge(key="of R-1", amount=usd(amount))
    return make_charge(usd(amount), order=make_order(usd(amount), number="R-1"), provider_id=receipt.id)


def page(browser: Client) -> str:
    return words(browser.get("/orders/R-1/"))


def refund() -> RefundRequest:
    return RefundRequest.objects.get()


@pytest.mark.parametrize("path", ["/", "/orders/R-1/", "/orders/R-2/"])
def test_who_has_no_right_at_all_sees_no_customer(client: Client, charge: Charge, path: str) -> None:
    client.force_login(make_user())

    response = client.get(path)

    assert response.status_code == 403
    assert b"example.com" not in response.content


@pytest.mark.parametrize("right", ["request_refund", "approve_refund", "approve_any_refund", "view_order"])
def test_who_works_with_orders_sees_them(client: Client, charge: Charge, right: str) -> None:
    client.force_login(make_user(right))

    assert [client.get(path).status_code for path in ("/", "/orders/R-1/")] == [200, 200]


@pytest.mark.parametrize("path", ["/", "/orders/R-1/", "/orders/R-1/refund/", "/refunds/1/call-off/"])
def test_strangers_are_sent_to_log_in(client: Client, charge: Charge, path: str) -> None:
    response = client.post(path) if path.endswith(("refund/", "off/")) else client.get(path)

    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


@pytest.mark.parametrize("number", ["R-2", "R-1%00", "%2e%2e", "R-1/refund"])
def test_an_unknown_order_is_not_found(browser: Client, charge: Charge, number: str) -> None:
    assert browser.get(f"/orders/{number}/").status_code in (404, 405)
    assert browser.post(f"/orders/{number}/refund/").status_code == 404


def test_looking_never_asks(browser: Client, charge: Charge) -> None:
    assert browser.get("/orders/R-1/refund/").status_code == 405
    assert browser.put("/orders/R-1/refund/").status_code == 405
    assert browser.post("/orders/R-1/").status_code == 405


def test_pages_with_customers_are_kept_by_no_browser(browser: Client, charge: Charge) -> None:
    assert all("no-store" in browser.get(path)["Cache-Control"] for path in ("/", "/orders/R-1/"))


def test_an_order_without_a_charge_says_so(browser: Client) -> None:
    order: Order = make_order()

    assert b"Nothing was charged" in browser.get(f"/orders/{order.number}/").content


def test_tickets_of_the_customer_stand_below(browser: Client, charge: Charge) -> None:
    Ticket.objects.create(customer=charge.order.customer, subject="Broken", body="one\ntwo")

    assert "one<br>two" in text(browser.get("/orders/R-1/"))


def test_the_page_says_when_it_was_read_and_refreshes_with_and_without_scripts(browser: Client, charge: Charge) -> None:
    quiet = text(browser.get("/orders/R-1/"))
    send(browser, charge)
    busy = text(browser.get("/orders/R-1/"))

    assert re.search(r'Read at <time datetime="[^"]+" title="[^"]+ UTC">\d\d:\d\d:\d\d</time> \(UTC\)', quiet)
    assert '<a href="/orders/R-1/">Refresh</a>' in quiet
    assert 'data-url="/orders/R-1/" data-seconds="0"' in quiet
    assert 'data-url="/orders/R-1/" data-seconds="3"' in busy
    assert re.findall(r'<script src="/static/([^"]*)" defer>', busy) == [
        "durableflows/inbox.js",
        "customer_ops/desk.js",
    ]
    assert len(re.findall("<script", busy)) == 2
    assert "style=" not in busy


def test_times_are_in_the_time_zone_of_the_site(browser: Client, charge: Charge, settings: LazySettings) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"

    assert "+09:00" in text(browser.get("/orders/R-1/"))
    assert "(JST)" in page(browser)


def test_somebody_elses_progress_is_told_in_words_and_its_history_is_not(
    browser: Client, client: Client, charge: Charge
) -> None:
    send(browser, charge)
    client.force_login(make_agent())

    shown = page(client)

    assert "$60.00 under way" in shown
    assert "Certain No money has left" in shown
    assert "history is shown to the person who asked" in shown
    assert "co-progress" not in text(client.get("/orders/R-1/"))


def test_who_may_see_every_run_sees_its_history(browser: Client, client: Client, charge: Charge) -> None:
    send(browser, charge)
    manager = make_user("approve_refund")
    manager.user_permissions.add(Permission.objects.get(codename="view_workflowrun"))
    client.force_login(manager)

    assert '<ol class="co-progress">' in text(client.get("/orders/R-1/"))


@CUSTOM
def test_a_refund_is_told_from_the_form_to_the_mail(world: World, payments: PaymentsClient, browser: Client) -> None:
    send(browser, charge_of(payments, "100.00"))
    world.run_until_idle()

    shown = page(browser)
    number = refund().refund_id

    assert f"$60.00 refunded Asked for by {refund().requested_by_name}" in shown
    assert f"Certain The money went back, as {number}" in shown
    steps = ["Asked for by", "No manager is needed", "Sent to the payment provider", f"Refunded, {number}"]
    steps += ["Customer told by mail", "Finished"]
    assert [shown.index(step, shown.index("Certain")) for step in steps] == sorted(
        shown.index(step, shown.index("Certain")) for step in steps
    )
    assert 'data-seconds="0"' in text(browser.get("/orders/R-1/"))
    assert "Refunded $60.00 Under way, not sent $0.00 Sent, outcome unknown $0.00 Left $40.00" in shown


@CUSTOM
def test_a_ticket_is_told_as_a_ticket_and_never_as_money(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client, settings: LazySettings
) -> None:
    """The payment is refused, the help desk's answer is lost once, and what it is called is no refund."""
    settings.TICKETS_URL, settings.TICKETS_KEY = sandbox.url, KEY
    charge = charge_of(payments, "100.00")
    payments.refund(call("df_by_hand"), charge_id=charge.provider_id, amount=usd("80.00"))
    sandbox.fault("cut_after", path="/tickets")
    send(browser, charge)
    world.run_until_idle()
    lost = page(browser)
    world.run_through()

    shown = page(browser)
    ticket = Ticket.objects.get()

    assert "The help desk’s answer was lost: it may have the ticket" in lost
    assert "Ticket sent to the help desk again, under the same key" in shown
    assert f"An agent got a ticket, {ticket.provider_id}" in shown
    assert f"{ticket.provider_id} at the help desk" in shown
    assert "Refunded," not in shown
    assert shown.count("Sent to the payment provider") == 1


@CUSTOM
def test_an_address_that_mail_does_not_reach_is_shown_until_it_is_another(
    world: World, payments: PaymentsClient, browser: Client, settings: LazySettings
) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = BACKEND, "127.0.0.1"
    with smtp_server(RCPT="550 no such mailbox") as server:
        settings.EMAIL_PORT = server.port
        send(browser, charge_of(payments, "100.00"))
        world.run_through()

    given_up = page(browser)
    boss = Client()
    boss.force_login(make_user(is_superuser=True, name="boss"))
    User.objects.filter(username="boss").update(is_staff=True)
    customer = Customer.objects.get()
    change = f"/admin/customer_ops/customer/{customer.pk}/change/"
    boss.post(change, {"name": "Ada B.", "email": customer.email})
    renamed = page(browser)
    boss.post(change, {"name": "Ada B.", "email": "ada@elsewhere.example"})

    assert "Mail does not reach this address since" in given_up
    assert "Noted in the customer’s record that mail does not reach the address" in given_up
    assert "Ada B." in renamed
    assert "Mail does not reach" in renamed
    assert "Mail does not reach" not in page(browser).partition("Charge of")[0]


@CUSTOM
def test_a_large_refund_waits_for_a_manager_and_says_until_when(
    world: World, payments: PaymentsClient, browser: Client, client: Client
) -> None:
    send(browser, charge_of(payments, "900.00"), amount="600.00")
    world.run_until_idle()

    shown = page(browser)

    assert "$600.00 waiting for a manager" in shown
    assert "A manager decides; if nobody answers, others are asked on Thursday, 8 January, 09:00" in shown
    assert 'data-seconds="15"' in text(browser.get("/orders/R-1/"))
    world.clock.advance(days=3, seconds=1)
    world.run_until_idle()
    assert "if nobody answers, it is rejected by itself on" in page(browser)
    world.clock.advance(days=3, seconds=1)
    world.run_until_idle()
    assert "rejected because nobody answered in time" in page(browser).lower()


@CUSTOM
def test_only_who_may_decide_is_led_to_the_decision(
    world: World, payments: PaymentsClient, browser: Client, agent: User
) -> None:
    send(browser, charge_of(payments, "900.00"), amount="600.00")
    world.run_until_idle()
    manager = make_user("approve_refund")
    theirs = Client()
    theirs.force_login(manager)
    address = f"/durableflows/inbox/{open_request(run_id_of(refund())).pk}/"

    assert f'href="{address}"' in text(theirs.get("/orders/R-1/"))
    assert f'href="{address}"' not in text(browser.get("/orders/R-1/"))
    assert theirs.get(address).status_code == 200


@CUSTOM
def test_what_is_in_doubt_is_told_apart_from_what_is_pending(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client
) -> None:
    """Sent, and nobody knows whether it was paid."""
    charge = charge_of(payments, "100.00")
    sandbox.fault("cut_after", path=REFUNDS)
    sandbox.fault("error_before", times=50, path=REFUNDS, method=None)
    send(browser, charge, amount="20.00")
    world.run_until_idle()
    send(browser, charge, amount="5.00")

    shown = page(browser)

    assert "Under way, not sent $5.00 Sent, outcome unknown $20.00 Left $75.00" in shown
    assert "$20.00 in doubt" in shown
    assert "Unknown Whether the money went back" in shown
    assert "The provider’s answer was lost: looking it up" in shown
    assert "payments.refund" not in shown

    sandbox.clear_faults()
    world.run_through()
    assert "Refunded $25.00 Under way, not sent $0.00 Sent, outcome unknown $0.00 Left $75.00" in page(browser)


@CUSTOM
def test_a_long_history_is_folded(
    world: World, sandbox: RunningSandbox, payments: PaymentsClient, browser: Client
) -> None:
    charge = charge_of(payments, "100.00")
    sandbox.fault("rate_limited", times=4, path=REFUNDS)
    send(browser, charge)
    world.run_through()

    html = text(browser.get("/orders/R-1/"))
    folded = re.search(r'<details class="co-fold" id="refund-\d+-earlier">.*?</details>', html, re.DOTALL)

    assert folded is not None
    assert "Asked for by" in folded[0]
    assert "Finished" not in folded[0]
    assert html.count('<ol class="co-progress">') == 2


@CUSTOM
def test_a_run_that_stopped_says_that_a_person_is_needed_and_why(
    world: World, payments: PaymentsClient, browser: Client, agent: User
) -> None:
    send(browser, charge_of(payments, "900.00"), amount="600.00")
    world.run_until_idle()
    asked = open_request(run_id_of(refund()))
    agent.user_permissions.set(Permission.objects.filter(codename="view_order"))

    api.answer(asked.pk, "approve", by=make_user("approve_refund"), facts_digest=asked.facts_digest)
    world.run_through()

    shown = page(browser)
    assert "$600.00 needs a person" in shown
    assert "Certain No money has left" in shown
    assert "has no right to ask any more" in shown


def test_a_request_without_a_run_is_told_too(browser: Client, charge: Charge) -> None:
    send(browser, charge)
    RefundRequest.objects.update(run_id=None)

    assert "$60.00 under way" in page(browser)
    assert WorkflowRun.objects.count() == 1


def test_who_asked_is_led_to_how_far_the_decision_is_and_to_a_managers_question(
    browser: Client, client: Client, agent: User, settings: LazySettings
) -> None:
    send(browser, make_charge(usd("900.00"), order=make_order(usd("900.00"), number="R-1")), amount="600.00")
    with virtual() as world:
        world.run_until_idle()
        asked = open_request(run_id_of(refund()))
        leads = f'href="/durableflows/inbox/{asked.pk}/asked/"'
        manager = make_user("approve_refund", name="mona")

        assert leads in text(browser.get("/orders/R-1/"))
        assert "See whom it waits for" in page(browser)
        api.ask_requester(asked.pk, "Which of the two lamps?", by=manager)
        assert "mona has asked you something before deciding, and waits for your reply." in page(browser)
        assert "Read the question and reply" in page(browser)
        api.reply(asked.pk, "The left one.", by=agent)
        assert "See whom it waits for" in page(browser)
        client.force_login(manager)
        assert leads not in text(client.get("/orders/R-1/"))
        api.answer(asked.pk, "reject", by=manager, facts_digest=asked.facts_digest)
        client.force_login(agent)
        assert leads not in text(client.get("/orders/R-1/"))
