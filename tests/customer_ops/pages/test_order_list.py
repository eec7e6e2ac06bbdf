"""The list of orders: what a search and a filter find, what each row says, and that it costs the same for any row."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from customer_ops.models import Charge, Customer, RefundRequest, RefundState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from tests.support.desk import make_agent, make_charge, make_order, make_request, run_id_of, usd
from tests.support.desk_pages import errors_in, send, text, words


def numbers(response: Any) -> list[str]:
    return [row.order.number for row in response.context["rows"]]


def order_with(state: RefundState, number: str) -> RefundRequest:
    charge = make_charge(usd("100.00"), order=make_order(usd("100.00"), number=number))
    return make_request(usd("60.00"), charge=charge, state=state)


def started(browser: Client, number: str, **run: object) -> RefundRequest:
    """A refund of 60 dollars with a run that looks like this."""
    send(browser, make_charge(usd("100.00"), order=make_order(usd("100.00"), number=number)))
    request = RefundRequest.objects.get(charge__order__number=number)
    WorkflowRun.objects.filter(pk=run_id_of(request)).update(**run)
    return request


def pay(request: RefundRequest, state: str, *, step: str = "WAITING") -> None:
    """Bring a request's payment to a state, without a worker."""
    run_id = run_id_of(request)
    StepRun.objects.filter(run_id=run_id).update(state=step)
    SideEffect.objects.create(
        run_id=run_id,
        step=StepRun.objects.get(run_id=run_id),
        step_name="pay",
        operation="payments.refund",
        effect="payments.refund",
        provider="payments",
        key=f"df_{request.pk}",
        request_digest="0",
        state=state,
        in_doubt_since=timezone.now() if state == "UNKNOWN" else None,
        created_at=timezone.now(),
    )


def test_orders_are_listed_newest_first_in_pages_of_twenty(browser: Client) -> None:
    for index in range(21):
        make_order(number=f"N-{index}")

    first, second = browser.get("/"), browser.get("/?page=2")

    assert numbers(first)[:2] == ["N-20", "N-19"]
    assert len(numbers(first)) == 20
    assert numbers(second) == ["N-0"]
    assert browser.get("/?page=3").status_code == browser.get("/?page=x").status_code == 404
    assert browser.get("/?page=" + "9" * 30).status_code == 404


@pytest.mark.parametrize("wanted", ["R-77", "r-77", "Zoe", "ZOE@example.com"])
def test_orders_are_found_by_number_customer_and_mail(browser: Client, wanted: str) -> None:
    other, found = make_order(number="R-1"), make_order(number="R-77", customer="Zoe")
    Customer.objects.filter(pk=other.customer_id).update(email="ada@example.com")
    Customer.objects.filter(pk=found.customer_id).update(email="zoe@example.com")

    assert numbers(browser.get("/", {"q": wanted})) == ["R-77"]


@pytest.mark.parametrize("wanted", ["%", "_", "\\"])
def test_a_search_has_no_wildcards(browser: Client, wanted: str) -> None:
    make_order(number="R-1")

    page = browser.get("/", {"q": wanted})

    assert (page.status_code, numbers(page)) == (200, [])


@pytest.mark.parametrize(("wanted", "says"), [("\x00", "Null characters"), ("x" * 101, "at most 100 letters")])
def test_a_search_that_cannot_be_done_says_so_at_its_field(browser: Client, wanted: str, says: str) -> None:
    make_order(number="R-1")

    page = browser.get("/", {"q": wanted})

    assert (page.status_code, numbers(page)) == (200, [])
    assert says in errors_in(page)
    assert 'aria-invalid="true"' in text(page)
    assert "Show all orders" in words(page)


@pytest.mark.parametrize(
    ("show", "found"),
    [
        ("", {"PENDING", "WAITS", "DOUBT", "LOST", "PARKED", "ASKS", "REFUNDED", "REJECTED", "FAILED", "WITHDRAWN"}),
        ("under-way", {"PENDING", "WAITS", "DOUBT", "LOST", "PARKED", "ASKS"}),
        ("waiting", {"WAITS"}),
        ("look", {"DOUBT", "LOST", "PARKED", "ASKS"}),
        ("refunded", {"REFUNDED"}),
        ("refused", {"REJECTED", "FAILED", "WITHDRAWN"}),
    ],
)
def test_filters_show_orders_by_where_their_refunds_are(browser: Client, show: str, found: set[str]) -> None:
    started(browser, "PENDING")
    started(browser, "WAITS", state="WAITING_HUMAN")
    pay(started(browser, "DOUBT"), "UNKNOWN")
    pay(started(browser, "LOST"), "DISPATCHED", step="READY")
    started(browser, "PARKED", state="PARKED")
    StepRun.objects.filter(run_id=started(browser, "ASKS").run_id).update(needs_person=True)
    for state in (RefundState.REFUNDED, RefundState.REJECTED, RefundState.FAILED, RefundState.WITHDRAWN):
        order_with(state, state.value)
    make_order(number="NOTHING")

    listed = set(numbers(browser.get("/", {"show": show})))

    assert listed == (found if show else found | {"NOTHING"})


def test_a_payment_that_a_worker_is_at_is_not_in_doubt(browser: Client) -> None:
    request = started(browser, "R-1")
    pay(request, "DISPATCHED", step="READY")
    token = "00000000-0000-4000-8000-000000000000"
    StepRun.objects.filter(run_id=request.run_id).update(state="RUNNING", lease_token=token, must_end_by=timezone.now())

    assert numbers(browser.get("/", {"show": "look"})) == []
    assert "$60.00 sent, no answer yet" in words(browser.get("/"))


def test_an_unknown_filter_finds_nothing_and_says_so(browser: Client) -> None:
    make_order()

    page = browser.get("/", {"show": "nonsense"})

    assert (page.status_code, numbers(page)) == (200, [])
    assert "There is no such filter" in errors_in(page)


def test_pages_and_filters_keep_the_search(browser: Client) -> None:
    for index in range(21):
        order_with(RefundState.REFUNDED, f"A&B={index}")

    page = browser.get("/", {"q": "A&B=", "show": "refunded"})
    older = re.search(r'rel="next" href="(\?[^"]+)"', text(page))

    assert older is not None
    assert numbers(browser.get("/" + older[1].replace("&amp;", "&"))) == ["A&B=0"]
    assert 'href="/?q=A%26B%3D&amp;show=waiting"' in text(page)
    assert 'name="show" value="refunded"' in text(page)


def test_a_row_says_what_is_refunded_and_what_is_under_way(browser: Client) -> None:
    charge = make_charge(usd("100.00"), order=make_order(usd("100.00"), number="R-1"))
    make_request(usd("10.00"), charge=charge, state=RefundState.REFUNDED)
    make_request(usd("20.00"), charge=charge, state=RefundState.REFUNDED)
    send(browser, charge, amount="5.00")

    row = words(browser.get("/"))

    assert "$5.00 under way $30.00 refunded" in row


def test_a_refunded_order_whose_mail_is_in_doubt_needs_a_look(browser: Client) -> None:
    request = started(browser, "R-1", state="NEEDS_RECONCILIATION")
    request.mark_refunded("re_1")

    assert "$60.00 refunded needs a look" in words(browser.get("/", {"show": "look"}))


def test_nothing_yet_and_nothing_found_are_told_apart_and_lead_out(browser: Client) -> None:
    assert "There are no orders yet." in words(browser.get("/"))

    make_order(number="R-1")
    searched, filtered = browser.get("/", {"q": "zebra"}), browser.get("/", {"show": "refunded"})
    both = browser.get("/", {"q": "R-1", "show": "refunded"})

    assert "with “ zebra ”" in words(searched)
    assert "No order is under “Refunded”." in words(filtered)
    assert 'href="/?q=R-1"' in text(both)
    assert all('href="/">Show all orders' in text(page) for page in (searched, filtered, both))


def test_the_list_asks_the_database_the_same_for_twenty_orders_as_for_one(browser: Client, agent: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            browser.get("/")
        return len(captured)

    started(browser, "R-0")
    first = queries()
    for index in range(1, 20):
        pay(started(browser, f"R-{index}"), "UNKNOWN")

    assert queries() == first == 12  # session, user, rights (2), count, orders, charges, requests, runs and theirs (4)


def test_who_may_not_see_a_run_is_still_told_where_it_stands(browser: Client, client: Client, charge: Charge) -> None:
    send(browser, charge)
    client.force_login(make_agent())

    assert "$60.00 under way" in words(client.get("/"))
