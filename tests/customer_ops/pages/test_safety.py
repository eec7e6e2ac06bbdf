"""Foreign text is text on every page of the desk (R28), and no answer of it leads to another site (R29)."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from customer_ops.models import Charge, Customer, RefundRequest, Ticket
from durableflows.models import RunEvent, StepRun, WorkflowRun
from tests.support.desk import PASSWORD, make_agent, make_charge, make_order, run_id_of
from tests.support.desk_pages import ELSEWHERE, HOSTILE, is_inert, leads_home, send, text, words

RIGHT_TO_LEFT = "Ada \u202enworB\u202c\u2066"
HIDDEN = "\u202e\u202c\u2066\u200b"


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_names_numbers_and_tickets_are_text(browser: Client, evil: str) -> None:
    """R28."""
    order = make_order(number=evil[:30], customer=evil)
    Ticket.objects.create(customer=order.customer, subject=evil, body=evil)
    make_charge(order=order, provider_id=evil)

    for page in (browser.get("/"), browser.get(reverse("order", args=[order.number]))):
        assert page.status_code == 200
        assert is_inert(text(page))
        assert evil[:30].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace(
            "'", "&#x27;"
        ) in text(page)


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_searches_and_filters_are_text(browser: Client, evil: str) -> None:
    """R28: field, title, empty state, and the links that keep the search."""
    for query in ({"q": evil}, {"show": evil}, {"q": evil, "show": "refunded"}, {"page": evil}):
        assert is_inert(text(browser.get("/", query)))


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_input_is_text_when_the_form_comes_back(browser: Client, charge: Charge, evil: str) -> None:
    """R28."""
    fields = dict.fromkeys(("amount", "reason", "form_token", "how", "shown_left"), evil)

    page = send(browser, charge, **fields)

    assert page.status_code == 422
    assert is_inert(text(page))


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_reasons_errors_and_history_are_text(browser: Client, charge: Charge, evil: str) -> None:
    """R28: the reason, what a provider said, the timeline, and the page that calls off."""
    send(browser, charge, reason=evil)
    request = RefundRequest.objects.get()
    RefundRequest.objects.update(requested_by_name=evil)
    WorkflowRun.objects.update(alert=evil, parked_detail=evil, state="PARKED")
    StepRun.objects.update(needs_person=True, waits_for=evil, retry_reason=evil)
    for kind in ("step.retry_scheduled", "run.note", "effect.alert", "unheard.of"):
        RunEvent.objects.create(
            run_id=run_id_of(request),
            sequence=RunEvent.objects.count() + 1,
            kind=kind,
            at=request.created_at,
            actor_name=evil,
            data={"reason": evil, "text": evil, "effect": evil, "step": evil},
        )

    for path in ("/orders/R-1/", f"/refunds/{request.pk}/call-off/", "/"):
        assert is_inert(text(browser.get(path)))


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_reasons_for_calling_off_are_text_in_message_and_page(
    browser: Client, charge: Charge, evil: str
) -> None:
    """R28: the second person is shown what the first one wrote."""
    send(browser, charge)
    address = f"/refunds/{RefundRequest.objects.get().pk}/call-off/"

    browser.post(address, {"reason": evil})
    operator = make_agent()
    operator.user_permissions.add(Permission.objects.get(codename="operate_run"))
    second = Client()
    second.force_login(operator)
    page = second.post(address, {"reason": "again"}, follow=True)

    assert "was not called off" in words(page)
    assert is_inert(text(page))


@pytest.mark.parametrize("evil", HOSTILE)
def test_a_hostile_account_name_is_text(client: Client, charge: Charge, agent: User, evil: str) -> None:
    """R28: in the frame of each page, and in the history."""
    User.objects.filter(pk=agent.pk).update(username=evil)
    client.force_login(User.objects.get(pk=agent.pk))
    send(client, charge)

    assert is_inert(text(client.get("/orders/R-1/")))


def test_text_that_turns_around_what_follows_is_spelled_out(browser: Client) -> None:
    """R28: a name must not disguise itself or its neighbours."""
    order = make_order(number="R-\u202e1", customer=RIGHT_TO_LEFT)
    Customer.objects.filter(pk=order.customer_id).update(email="a\u202e@example.com")
    Ticket.objects.create(customer=order.customer, subject=RIGHT_TO_LEFT, body="\u200bx")
    send(browser, make_charge(order=order, provider_id="ch_\u202e"), reason=RIGHT_TO_LEFT)

    for page in (browser.get("/"), browser.get(reverse("order", args=[order.number]))):
        shown = words(page)
        assert not any(mark in shown for mark in HIDDEN)
        assert "Ada ⟦U+202E⟧nworB" in shown


def test_every_page_forbids_scripts_of_others(browser: Client, charge: Charge) -> None:
    """R28."""
    for path in ("/", "/orders/R-1/", "/login/", "/nowhere/"):
        policy = browser.get(path)["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("target", ELSEWHERE)
def test_log_in_leads_to_a_page_of_the_site(client: Client, agent: User, target: str) -> None:
    """R29."""
    fields = {"username": agent.username, "password": PASSWORD}

    posted = client.post("/login/", {**fields, "next": target})
    client.logout()
    asked = client.post("/login/", fields, query_params={"next": target})

    for response in (posted, asked):
        assert response.status_code == 302
        assert leads_home(response["Location"]) or response["Location"].startswith("%2")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_who_is_logged_in_already_is_not_led_away_either(browser: Client, target: str) -> None:
    """R29."""
    response = browser.get("/login/", {"next": target})

    assert response.status_code == 302
    assert leads_home(response["Location"]) or response["Location"].startswith("%2")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_log_out_leads_to_a_page_of_the_site(browser: Client, target: str) -> None:
    """R29."""
    response = browser.post("/logout/", {"next": target})

    assert response.status_code == 302
    assert leads_home(response["Location"]) or response["Location"].startswith("%2")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_forms_of_the_desk_lead_back_to_the_order(browser: Client, charge: Charge, target: str) -> None:
    """R29."""
    form = {"charge": charge.pk, "amount": "60.00", "reason": "broken", "form_token": uuid.uuid4(), "next": target}

    asked = browser.post("/orders/R-1/refund/", form, query_params={"next": target})
    refund = RefundRequest.objects.get()
    called_off = browser.post(
        f"/refunds/{refund.pk}/call-off/", {"reason": "x", "next": target}, query_params={"next": target}
    )

    assert asked["Location"] == "/orders/R-1/"
    assert called_off["Location"] == f"/orders/R-1/#refund-{refund.pk}"


@pytest.mark.parametrize("number", ["//other.example", "/\\other.example", "https://other.example", ".//other.example"])
def test_a_hostile_order_number_leads_nowhere_else(browser: Client, number: str) -> None:
    """R29: the number is part of the address that a form leads to."""
    charge = make_charge(order=make_order(number=number))

    response = browser.post(
        reverse("request-refund", args=[number]),
        {"charge": charge.pk, "amount": "60.00", "reason": "broken", "form_token": uuid.uuid4()},
    )

    assert response.status_code == 302
    assert response["Location"].startswith("/orders/")


@pytest.mark.parametrize("number", ["R-1\nBcc: x", "R-1\r\n", "\n"], ids=repr)
def test_an_order_number_with_a_line_break_takes_no_page_down(browser: Client, number: str) -> None:
    """R28: one bad row of an import must not hide all other orders."""
    make_charge(order=make_order(number=number))

    assert browser.get("/").status_code == 200
    assert browser.get(reverse("order", args=[number])).status_code == 200
    assert browser.get(reverse("request-refund", args=[number])).status_code == 405


def test_a_path_that_looks_like_a_host_is_not_redirected_to(browser: Client) -> None:
    """R29: the missing slash is added to our own address only."""
    response = browser.get("/", PATH_INFO="//other.example")

    assert response.status_code == 404 or leads_home(response["Location"])


def test_log_in_leads_to_where_one_wanted_to_go(client: Client, agent: User, charge: Charge) -> None:
    """R29: a good target works."""
    fields = {"username": agent.username, "password": PASSWORD, "next": "/orders/R-1/"}

    assert client.post("/login/", fields)["Location"] == "/orders/R-1/"


def test_log_out_is_a_post(browser: Client) -> None:
    assert browser.get("/logout/").status_code == 405
    assert browser.post("/logout/").status_code == 302
    assert browser.get("/").status_code == 302
