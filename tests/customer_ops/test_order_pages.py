"""The desk's pages by test client: who sees what, what a form refuses, and that foreign text stays text (R28, R29)."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from customer_ops.models import Charge, Customer, Order, RefundRequest, Ticket
from durableflows import Money
from durableflows.models import WorkflowRun
from tests.support.desk import PASSWORD, make_agent, make_charge, make_order, make_user, usd

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7|add:7 }}'


@pytest.fixture
def agent(db: None) -> User:
    return make_agent()


@pytest.fixture
def browser(client: Client, agent: User) -> Client:
    """The browser of an agent who has logged in."""
    client.force_login(agent)
    return client


@pytest.fixture
def charge(db: None) -> Charge:
    """A charge of 100 dollars, for order R-1."""
    return make_charge(usd("100.00"), order=make_order(usd("100.00"), number="R-1"))


def send(browser: Client, of: Charge, **fields: str) -> HttpResponse:
    """Send the refund form of a charge."""
    form = {"charge": str(of.pk), "amount": "60.00", "reason": "broken", "form_token": str(uuid.uuid4())}
    return browser.post(f"/orders/{of.order.number}/refund/", {**form, **fields})  # type: ignore[return-value]


def errors_in(response: HttpResponse) -> str:
    """The errors that a page shows."""
    return " ".join(re.findall(r'<ul class="co-errors".*?</ul>', response.content.decode(), re.DOTALL))


def test_a_refund_is_asked_for_and_shown_with_its_progress(browser: Client, charge: Charge) -> None:
    """B.7."""
    response = send(browser, charge)

    assert (response.status_code, response["Location"]) == (302, "/orders/R-1/")
    page = browser.get("/orders/R-1/").content.decode()
    assert "$60.00" in page
    assert "$40.00" in page
    assert "is under way" in page
    assert 'value="40.00"' in page


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ("NaN", "is not an amount"),
        ("1e2", "is not an amount"),
        ("-5.00", "without a sign"),
        ("0", "more than nothing"),
        ("10.005", "nothing is rounded"),
        ("XXX 10.00", "ISO 4217"),
        ("EUR 10.00", "must be in USD"),
        ("100.01", "$100.00 left"),
        ("", "required"),
    ],
)
def test_a_bad_amount_is_refused_beside_its_field(browser: Client, charge: Charge, amount: str, says: str) -> None:
    response = send(browser, charge, amount=amount)

    assert response.status_code == 422
    assert says in errors_in(response)
    assert not RefundRequest.objects.exists()


@pytest.mark.parametrize("fields", [{"reason": "  "}, {"reason": "x" * 501}, {"form_token": ""}, {"form_token": "1"}])
def test_other_bad_fields_are_refused(browser: Client, charge: Charge, fields: dict[str, str]) -> None:
    response = send(browser, charge, **fields)

    assert response.status_code == 422
    assert errors_in(response)
    assert not RefundRequest.objects.exists()


def test_a_form_sent_twice_asks_once(browser: Client, charge: Charge) -> None:
    token = str(uuid.uuid4())

    assert [send(browser, charge, form_token=token).status_code for _ in range(2)] == [302, 302]

    assert RefundRequest.objects.count() == WorkflowRun.objects.count() == 1


def test_a_form_sent_twice_with_other_content_is_refused(browser: Client, charge: Charge) -> None:
    token = str(uuid.uuid4())
    send(browser, charge, form_token=token)

    response = send(browser, charge, form_token=token, amount="10.00")

    assert response.status_code == 422
    assert "sent before" in errors_in(response)


def test_without_the_right_nobody_asks_or_is_offered_to(client: Client, charge: Charge) -> None:
    client.force_login(make_user("approve_refund"))

    assert send(client, charge).status_code == 403
    assert b"Refund from this charge" not in client.get("/orders/R-1/").content
    assert not RefundRequest.objects.exists()


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


@pytest.mark.parametrize("path", ["/", "/orders/R-1/", "/orders/R-1/refund/"])
def test_strangers_are_sent_to_log_in(client: Client, charge: Charge, path: str) -> None:
    response = client.post(path) if path.endswith("refund/") else client.get(path)

    assert response.status_code == 302
    assert "login" in response["Location"]


@pytest.mark.parametrize("number", ["R-2", "R-1%00", "%2e%2e", "R-1/refund"])
def test_an_unknown_order_is_not_found(browser: Client, charge: Charge, number: str) -> None:
    assert browser.get(f"/orders/{number}/").status_code in (404, 405)
    assert browser.post(f"/orders/{number}/refund/").status_code == 404


@pytest.mark.parametrize("key", ["", "0", "-1", "abc", "9" * 30, "1\x00", "\u0663"])
def test_a_charge_of_no_order_is_not_found(browser: Client, charge: Charge, key: str) -> None:
    assert send(browser, charge, charge=key).status_code == 404


def test_a_charge_of_another_order_is_not_found(browser: Client, charge: Charge) -> None:
    assert send(browser, charge, charge=str(make_charge().pk)).status_code == 404


def test_looking_never_asks(browser: Client, charge: Charge) -> None:
    assert browser.get("/orders/R-1/refund/").status_code == 405
    assert browser.put("/orders/R-1/refund/").status_code == 405
    assert browser.post("/orders/R-1/").status_code == 405


def test_a_form_without_the_token_of_the_site_is_refused(agent: User, charge: Charge) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(agent)

    assert send(strict, charge).status_code == 403


def test_foreign_text_stays_text(browser: Client) -> None:
    order = make_order(number=EVIL[:30], customer=EVIL)
    Ticket.objects.create(customer=order.customer, subject=EVIL, body=EVIL)
    charge = make_charge(order=order, provider_id=EVIL)
    address = reverse("request-refund", args=[order.number])
    form = {"charge": str(charge.pk), "amount": EVIL, "reason": EVIL, "form_token": EVIL}

    for page in (browser.post(address, form), browser.get("/"), browser.get("/", {"q": EVIL[:90]})):
        text = page.content.decode()
        assert "<script>" not in text
        assert "<img" not in text
        assert ">14<" not in text


def test_the_reason_of_a_refund_stays_text(browser: Client, charge: Charge) -> None:
    send(browser, charge, reason=EVIL)

    assert "<script>" not in browser.get("/orders/R-1/").content.decode()


def test_orders_are_listed_newest_first_in_pages_of_twenty(browser: Client) -> None:
    for index in range(21):
        make_order(number=f"N-{index}")

    first, second = browser.get("/"), browser.get("/?page=2")

    assert [order.number for order in first.context["orders"]][:2] == ["N-20", "N-19"]
    assert len(first.context["orders"]) == 20
    assert [order.number for order in second.context["orders"]] == ["N-0"]
    assert browser.get("/?page=3").status_code == browser.get("/?page=x").status_code == 404


@pytest.mark.parametrize("text", ["R-77", "r-77", "Zoe", "ZOE@example.com"])
def test_orders_are_found_by_number_and_customer(browser: Client, text: str) -> None:
    make_order(number="R-1")
    found = make_order(number="R-77", customer="Zoe")
    Customer.objects.filter(pk=found.customer_id).update(email="zoe@example.com")

    assert [order.number for order in browser.get("/", {"q": text}).context["orders"]] == ["R-77"]


@pytest.mark.parametrize("text", ["\x00", "x" * 101, "%", "_"])
def test_an_odd_search_finds_nothing_and_breaks_nothing(browser: Client, text: str) -> None:
    make_order(number="R-1")

    response = browser.get("/", {"q": text})

    assert response.status_code == 200
    assert list(response.context["orders"]) == []


def test_the_list_asks_the_database_the_same_for_twenty_orders_as_for_one(
    browser: Client, django_assert_num_queries: object
) -> None:
    make_order()
    browser.get("/")
    with django_assert_num_queries(7):  # type: ignore[operator]  # session, user, rights (2), count, orders, charges
        browser.get("/")
    for _ in range(15):
        make_order()

    with django_assert_num_queries(7):  # type: ignore[operator]
        browser.get("/")


@pytest.mark.parametrize(
    "target",
    [
        *("https://other.example", "//other.example", "///other.example", "/\\other.example", "http:other.example"),
        *("javascript:alert(1)", "https://testserver@other.example", "/x\r\nLocation: https://other.example"),
        "%2f%2fother.example",
    ],
)
def test_log_in_leads_to_a_page_of_the_site(client: Client, agent: User, target: str) -> None:
    response = client.post("/login/", {"username": agent.username, "password": PASSWORD, "next": target})

    assert response.status_code == 302
    assert re.fullmatch(r"/[^/\\].*|/|%2f%2fother\.example", response["Location"])
    assert "\n" not in response["Location"]


def test_log_in_leads_to_where_one_wanted_to_go(client: Client, agent: User, charge: Charge) -> None:
    fields = {"username": agent.username, "password": PASSWORD, "next": "/orders/R-1/"}

    assert client.post("/login/", fields)["Location"] == "/orders/R-1/"


def test_log_out_is_a_post(browser: Client) -> None:
    assert browser.get("/logout/").status_code == 405
    assert browser.post("/logout/").status_code == 302
    assert browser.get("/").status_code == 302


def test_somebody_elses_progress_is_not_told(browser: Client, client: Client, charge: Charge) -> None:
    send(browser, charge)
    client.force_login(make_agent())

    page = client.get("/orders/R-1/").content.decode()

    assert "history is shown to the person who asked" in page


def test_yen_are_shown_and_asked_for_without_decimals(browser: Client) -> None:
    charge = make_charge(Money(5800, "JPY"))

    assert 'value="5800"' in browser.get(f"/orders/{charge.order.number}/").content.decode()
    assert send(browser, charge, amount="10.5").status_code == 422
    assert send(browser, charge, amount="5800").status_code == 302
    assert RefundRequest.objects.get().amount == Money(5800, "JPY")


def test_an_order_without_a_charge_says_so(browser: Client) -> None:
    order: Order = make_order()

    assert b"Nothing was charged" in browser.get(f"/orders/{order.number}/").content
