"""Looking a refund up: it was made, it was not, or nobody can tell; never a guess."""

import json

import pytest

from customer_ops.gateways import payments as gateway
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.sandbox.control import RunningSandbox
from durableflows import CannotTell, Found, Money
from tests.support.payments import KEY, TEN, USD, call
from tests.support.raw_server import http, raw_server


def test_two_refunds_under_one_key_are_for_a_person(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    first = payments.refund(call(), charge_id=charge, amount=TEN)
    sandbox.advance_clock(25 * 3600)  # the provider has forgotten the key
    second = payments.refund(call(), charge_id=charge, amount=TEN)

    answer = payments.find_refund(call(), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)
    assert first.id in answer.reason
    assert second.id in answer.reason


def test_refund_that_differs_from_what_was_asked_is_for_a_person(payments: PaymentsClient, charge: str) -> None:
    payments.refund(call(), charge_id=charge, amount=TEN)

    answer = payments.find_refund(call(), charge_id=charge, amount=Money(999, USD))

    assert isinstance(answer, CannotTell)


def test_lookup_reads_all_pages(
    payments: PaymentsClient, sandbox: RunningSandbox, charge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = [payments.refund(call(f"df_{number}"), charge_id=charge, amount=TEN) for number in range(5)]
    monkeypatch.setattr(gateway, "PAGE_SIZE", 2)

    answer = payments.find_refund(call("df_0"), charge_id=charge, amount=TEN)

    assert answer == Found(receipts[0])
    assert len(sandbox.books().requests_to("/v1/refunds", method="GET")) == 3


def test_lookup_that_breaks_off_on_a_later_page_cannot_tell(
    payments: PaymentsClient, sandbox: RunningSandbox, charge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.refund(call("df_0"), charge_id=charge, amount=TEN)
    payments.refund(call("df_1"), charge_id=charge, amount=TEN)
    monkeypatch.setattr(gateway, "PAGE_SIZE", 1)
    sandbox.fault("half_answer", method="GET", skip=1)

    answer = payments.find_refund(call("df_1"), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)  # df_1 was on the first page; a second one of it may be on the next


LOOKUP_FAULTS = ["refuse", "cut_after", "timeout_after", "rate_limited", "error_before", "unauthorized", "forbidden",
                 "half_answer", "html_answer", "bad_json"]  # fmt: skip


@pytest.mark.parametrize("fault", LOOKUP_FAULTS)
def test_provider_that_cannot_be_asked_is_no_answer(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str, fault: str
) -> None:
    """S3.9: absent is only what the provider says is absent."""
    sandbox.fault(fault, method="GET")

    answer = payments.find_refund(call(timeout_seconds=0.3), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)
    assert answer.reason


def test_closed_provider_is_no_answer(sandbox: RunningSandbox, payments: PaymentsClient, charge: str) -> None:
    sandbox.stop_listening()

    assert isinstance(payments.find_refund(call(), charge_id=charge, amount=TEN), CannotTell)


def test_charge_that_the_provider_does_not_know_is_no_answer(payments: PaymentsClient) -> None:
    """The key of another account sees none of our charges: that says nothing about our refund."""
    assert isinstance(payments.find_refund(call(), charge_id="ch_none", amount=TEN), CannotTell)


def test_list_that_never_ends_is_no_answer() -> None:
    page = {"object": "list", "data": [], "has_more": True}
    with raw_server(http("200 OK", json.dumps(page))) as server:
        answer = PaymentsClient(server.url, KEY).find_refund(call(), charge_id="ch_1", amount=TEN)

    assert isinstance(answer, CannotTell)
