"""The payment gateway says how far each request got, acts once for each key, and finds what it did.

Against the sandbox, against a provider that others wrote, and against answers that no provider should give.
"""

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import override_settings

from customer_ops.gateways import payments as gateway
from customer_ops.gateways.payment_amounts import from_provider, to_provider
from customer_ops.gateways.payments import ChargeReceipt, PaymentsClient, RefundReceipt
from customer_ops.gateways.retry_after import parse_retry_after
from customer_ops.sandbox.control import RunningSandbox, running_sandbox
from durableflows import (
    CannotTell,
    DurableflowsError,
    EffectCall,
    Found,
    KeyConflict,
    KeyInUse,
    Money,
    NeedsHuman,
    NeverSent,
    NotFound,
    Permanent,
    StepFailure,
    Transient,
    UnknownOutcome,
)
from tests.support.raw_server import http, raw_server
from tests.support.stripe_mock import KEY, foreign_stripe

USD = "USD"
TEN = Money(1000, USD)
REFUND = {
    "id": "re_1", "object": "refund", "status": "succeeded", "charge": "ch_1", "amount": 1000, "currency": "usd",
    "metadata": {},
}  # fmt: skip


def call(key: str = "df_1", *, timeout_seconds: float = 5.0, send_in_seconds: float = 60.0) -> EffectCall:
    return EffectCall(
        key=key,
        operation="payments.refund",
        effect="payments.refund",
        provider="payments",
        run_id="018f-run",
        step="pay",
        send=1,
        first_dispatched_at=None,
        timeout_seconds=timeout_seconds,
        send_by=time.monotonic() + send_in_seconds,
    )


def failure(
    url: str, key: str = KEY, *, timeout_seconds: float = 5.0, send_in_seconds: float = 60.0
) -> DurableflowsError:
    """The error of one refund at this address."""
    with pytest.raises(DurableflowsError) as caught:
        PaymentsClient(url, key).refund(
            call(timeout_seconds=timeout_seconds, send_in_seconds=send_in_seconds), charge_id="ch_1", amount=TEN
        )
    return caught.value


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(books=tmp_path_factory.mktemp("sandbox") / "books.sqlite3") as running:
        yield running


@pytest.fixture
def sandbox(process: RunningSandbox) -> RunningSandbox:
    process.reset()
    return process


@pytest.fixture
def payments(sandbox: RunningSandbox) -> PaymentsClient:
    return PaymentsClient(sandbox.url, KEY)


@pytest.fixture
def charge(payments: PaymentsClient) -> str:
    return payments.create_charge(key="charge", amount=Money(10_000, USD)).id


@pytest.fixture(scope="module")
def foreign_url() -> Iterator[str]:
    with foreign_stripe() as url:
        yield url


@pytest.fixture(params=["sandbox", "foreign"])
def provider(request: pytest.FixtureRequest) -> PaymentsClient:
    """Our sandbox, and a provider written by others: what holds at both holds of Stripe's API and not of a twin."""
    if request.param == "sandbox":
        return PaymentsClient(request.getfixturevalue("sandbox").url, KEY)
    return PaymentsClient(request.getfixturevalue("foreign_url"), KEY)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"df_{abs(hash(request.node.nodeid))}"  # the foreign provider cannot forget: each test has keys of its own


# at both providers


def test_refund_gives_a_receipt(provider: PaymentsClient, key: str) -> None:
    charge = provider.create_charge(key=f"{key}c", amount=Money(5000, USD), description="order 7")

    receipt = provider.refund(call(key), charge_id=charge.id, amount=TEN)

    assert charge == ChargeReceipt(id=charge.id, status="succeeded", amount=Money(5000, USD))
    assert receipt == RefundReceipt(id=receipt.id, status="succeeded", charge_id=charge.id, amount=TEN)
    assert receipt.id.startswith("re_")


def test_same_key_again_gives_the_same_receipt(provider: PaymentsClient, key: str) -> None:
    """S1.4, S1.24: the original result, also when only the answer was lost."""
    charge = provider.create_charge(key=f"{key}c", amount=Money(5000, USD))

    receipts = {provider.refund(call(key), charge_id=charge.id, amount=TEN).id for _ in range(3)}

    assert len(receipts) == 1


def test_same_key_with_another_amount_is_a_conflict(provider: PaymentsClient, key: str) -> None:
    """S3.23"""
    charge = provider.create_charge(key=f"{key}c", amount=Money(5000, USD))
    provider.refund(call(key), charge_id=charge.id, amount=TEN)

    with pytest.raises(KeyConflict):
        provider.refund(call(key), charge_id=charge.id, amount=Money(2000, USD))


def test_more_than_is_left_is_refused_for_good(provider: PaymentsClient, key: str) -> None:
    charge = provider.create_charge(key=f"{key}c", amount=Money(5000, USD))

    with pytest.raises(Permanent) as too_much:
        provider.refund(call(f"{key}1"), charge_id=charge.id, amount=Money(5001, USD))
    provider.refund(call(f"{key}2"), charge_id=charge.id, amount=Money(5000, USD))
    with pytest.raises(Permanent) as nothing_left:
        provider.refund(call(f"{key}3"), charge_id=charge.id, amount=Money(1, USD))

    assert too_much.value.details["param"] == "amount"
    assert nothing_left.value.details["code"] == "charge_already_refunded"


def test_unknown_charge_is_refused_for_good(provider: PaymentsClient, key: str) -> None:
    with pytest.raises(Permanent) as caught:
        provider.refund(call(key), charge_id="ch_none", amount=TEN)

    assert caught.value.details["code"] == "resource_missing"


def test_declined_card_is_refused_for_good(provider: PaymentsClient, key: str) -> None:
    """S1.7: a clear answer, no retry."""
    with pytest.raises(Permanent) as caught:
        provider.create_charge(key=key, amount=TEN, source="tok_chargeDeclinedExpiredCard")

    assert caught.value.details["code"] == "expired_card"


def test_key_that_the_provider_does_not_know_needs_a_person(provider: PaymentsClient) -> None:
    """S2.19"""
    with pytest.raises(NeedsHuman):
        PaymentsClient(provider.url, "rk_wrong_0123456789").ping()


def test_ping_changes_nothing_and_is_silent(provider: PaymentsClient) -> None:
    provider.ping()


def test_lookup_finds_exactly_the_refund_of_its_key(provider: PaymentsClient, key: str) -> None:
    """S3.27: asked with the same identity."""
    charge = provider.create_charge(key=f"{key}c", amount=Money(5000, USD))
    others = [provider.refund(call(f"{key}{i}"), charge_id=charge.id, amount=TEN) for i in range(2)]
    receipt = provider.refund(call(key), charge_id=charge.id, amount=TEN)

    found = provider.find_refund(call(key), charge_id=charge.id, amount=TEN)
    missed = provider.find_refund(call(f"{key}x"), charge_id=charge.id, amount=TEN)

    assert found == Found(receipt)
    assert receipt not in others
    assert missed == NotFound()


# each fault of the sandbox

SAME = "the same receipt"
FAULTS: list[tuple[str, dict[str, Any], type[Exception] | None, int, type[Exception] | None]] = [
    # fault, options, error, refunds made so far, error of the same call made again (None: a receipt)
    ("refuse", {}, UnknownOutcome, 0, None),
    ("cut_before", {}, UnknownOutcome, 0, None),
    ("timeout_before", {}, UnknownOutcome, 0, None),
    ("rate_limited", {}, Transient, 0, None),
    ("error_before", {}, UnknownOutcome, 0, None),
    ("error_before", {"stored": True}, UnknownOutcome, 0, UnknownOutcome),
    ("error_before", {"status": 503}, UnknownOutcome, 0, None),
    ("unauthorized", {}, NeedsHuman, 0, None),
    ("forbidden", {}, Permanent, 0, None),
    ("key_in_use", {}, KeyInUse, 0, None),
    ("slow", {"seconds": 0.01}, None, 1, None),
    ("late", {"seconds": 0.01}, None, 1, None),
    ("pending", {}, None, 1, None),
    ("error_after", {}, UnknownOutcome, 1, UnknownOutcome),
    ("error_after", {"status": 502}, UnknownOutcome, 1, None),
    ("error_after", {"status": 503}, UnknownOutcome, 1, None),
    ("error_after", {"status": 504}, UnknownOutcome, 1, None),
    ("cut_after", {}, UnknownOutcome, 1, None),
    ("timeout_after", {}, UnknownOutcome, 1, None),
    ("half_answer", {}, UnknownOutcome, 1, None),
    ("html_answer", {}, UnknownOutcome, 1, None),
    ("bad_json", {}, UnknownOutcome, 1, None),
    ("trickle", {"seconds": 0.05}, UnknownOutcome, 1, None),
]


@pytest.mark.parametrize(("fault", "options", "error", "made", "error_again"), FAULTS)
def test_error_says_how_far_the_request_got(
    sandbox: RunningSandbox,
    payments: PaymentsClient,
    charge: str,
    fault: str,
    options: dict[str, Any],
    error: type[Exception] | None,
    made: int,
    error_again: type[Exception] | None,
) -> None:
    """R13, S3.6: never "failed" when it may have been done, and at most one action at the provider."""
    sandbox.fault(fault, **options)

    first = _outcome(payments, charge)
    made_by_first = sandbox.books().refunds_of("df_1")
    again = _outcome(payments, charge)
    found = payments.find_refund(call(), charge_id=charge, amount=TEN)

    assert type(first) is (error or RefundReceipt)
    assert made_by_first == made
    assert type(again) is (error_again or RefundReceipt)
    books = sandbox.books()
    assert books.repeated == []
    assert isinstance(found, Found if books.refunds_of("df_1") else NotFound)


def _outcome(payments: PaymentsClient, charge: str) -> RefundReceipt | DurableflowsError:
    try:
        return payments.refund(call(timeout_seconds=0.3), charge_id=charge, amount=TEN)
    except DurableflowsError as error:
        return error


def test_one_call_is_one_request_with_our_key(sandbox: RunningSandbox, payments: PaymentsClient, charge: str) -> None:
    """S3.12: this layer never retries, and the key is ours."""
    sandbox.fault("cut_before", times=10)

    with pytest.raises(UnknownOutcome):
        payments.refund(call(), charge_id=charge, amount=TEN)

    (request,) = sandbox.books().requests_to("/v1/refunds")
    assert request["idempotency_key"] == "df_1"
    assert request["params"]["metadata[durableflows_key]"] == "df_1"


def test_request_in_progress_is_waited_for_with_the_same_key(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    """R15: the first call is slow and its client gives up; the key is in use twice, then gives the stored success."""
    sandbox.fault("slow")
    with pytest.raises(UnknownOutcome):
        payments.refund(call(timeout_seconds=0.2), charge_id=charge, amount=TEN)
    sandbox.wait_until_held()

    for _ in range(2):
        with pytest.raises(KeyInUse):
            payments.refund(call(), charge_id=charge, amount=TEN)
    sandbox.release()
    sandbox.wait_until_done()
    receipt = payments.refund(call(), charge_id=charge, amount=TEN)

    books = sandbox.books()
    assert [act["refund"] for act in books.refund_acts] == [receipt.id]
    assert {request["idempotency_key"] for request in books.requests_to("/v1/refunds")} == {"df_1"}


def test_pending_refund_is_a_receipt_that_is_open(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    """R17"""
    sandbox.fault("pending", then="succeeded", after_reads=1)

    asked = payments.refund(call(), charge_id=charge, amount=TEN)
    looked_up = [payments.find_refund(call(), charge_id=charge, amount=TEN) for _ in range(2)]

    assert (asked.status, asked.is_open) == ("pending", True)
    statuses = [(answer.receipt.status, answer.receipt.is_open) for answer in looked_up if isinstance(answer, Found)]
    assert statuses == [("pending", True), ("succeeded", False)]


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_refund_that_failed_later_is_no_receipt(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str, status: str
) -> None:
    """R17: it was made and no money was given back; neither "found" nor "not found" would be true."""
    receipt = payments.refund(call(), charge_id=charge, amount=TEN)
    sandbox.settle(receipt.id, status)

    with pytest.raises(Permanent) as caught:
        payments.find_refund(call(), charge_id=charge, amount=TEN)

    assert caught.value.details["code"] == f"refund_{status}"
    assert caught.value.details["refund_id"] == receipt.id


# nothing was sent


def test_refused_connection_sent_nothing(sandbox: RunningSandbox, payments: PaymentsClient) -> None:
    sandbox.stop_listening()

    assert type(failure(sandbox.url)) is NeverSent


def test_unknown_host_was_sent_nothing() -> None:
    assert type(failure("http://payments.invalid")) is NeverSent


def test_unanswered_connection_was_sent_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as waiting:
        waiting.connect(full.getsockname())  # fills the queue: the next one gets no answer

        started = time.monotonic()
        error = failure(f"http://127.0.0.1:{full.getsockname()[1]}", timeout_seconds=0.3)

        assert type(error) is NeverSent
        assert time.monotonic() - started < 2


def test_failed_handshake_sent_nothing() -> None:
    with raw_server(b"this is no TLS\r\n") as server:
        assert type(failure(server.url.replace("http:", "https:"))) is NeverSent


@pytest.mark.parametrize("url", ["", "payments", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"])
def test_address_that_is_none_was_sent_nothing(url: str) -> None:
    assert type(failure(url)) is NeverSent


def test_late_worker_connects_and_sends_not_one_byte() -> None:
    """The check stands between the connection and the first byte (protocol, rule 2)."""
    with raw_server(http("200 OK", json.dumps(REFUND))) as server:
        error = failure(server.url, send_in_seconds=-1)

    assert type(error) is NeverSent
    assert server.received == [b""]


def test_late_worker_asks_nothing_either(sandbox: RunningSandbox, payments: PaymentsClient, charge: str) -> None:
    answer = payments.find_refund(call(send_in_seconds=-1), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)
    assert sandbox.books().requests_to("/v1/refunds", method="GET") == []


def test_account_without_a_key_needs_a_person() -> None:
    assert type(failure("http://payments.invalid", key="")) is NeedsHuman


@pytest.mark.parametrize("amount", [Money(0, USD), Money(-1, USD)])
def test_amount_of_nothing_is_refused_before_it_is_sent(sandbox: RunningSandbox, amount: Money) -> None:
    with pytest.raises(Permanent):
        PaymentsClient(sandbox.url, KEY).refund(call(), charge_id="ch_1", amount=amount)

    assert sandbox.books().requests == []


# the total time


def test_total_time_holds_although_bytes_keep_coming(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    sandbox.fault("trickle", seconds=0.05)

    started = time.monotonic()
    with pytest.raises(UnknownOutcome):
        payments.refund(call(timeout_seconds=0.5), charge_id=charge, amount=TEN)

    assert 0.4 < time.monotonic() - started < 1.5


def test_total_time_covers_all_pages_of_a_lookup(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "PAGE_SIZE", 1)
    for number in range(4):
        payments.refund(call(f"df_{number}"), charge_id=charge, amount=TEN)
    sandbox.fault("late", times=10, method="GET", seconds=0.2)

    answer = payments.find_refund(call("df_0", timeout_seconds=0.5), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)


# answers that no provider should give


def _error(kind: str, code: str = "", **more: str) -> str:
    return json.dumps({"error": {"type": kind, "code": code, "message": "no", **more}})


HTML = "<html><body>Bad gateway, api_key=sk_live_secret</body></html>"
ODD_ANSWERS = [
    # what arrives, what it means
    (http("400 Bad Request", _error("invalid_request_error", "parameter_missing")), Permanent),
    (http("402 Payment Required", _error("card_error", "expired_card")), Permanent),
    (http("403 Forbidden", _error("invalid_request_error")), Permanent),
    (http("404 Not Found", _error("invalid_request_error", "resource_missing")), Permanent),
    (http("401 Unauthorized", _error("invalid_request_error")), NeedsHuman),
    (http("401 Unauthorized", HTML), NeedsHuman),
    (http("400 Bad Request", _error("idempotency_error")), KeyConflict),
    (http("409 Conflict", _error("invalid_request_error", "idempotency_key_in_use")), KeyInUse),
    (http("409 Conflict", _error("idempotency_error")), KeyInUse),
    (http("409 Conflict", _error("invalid_request_error")), UnknownOutcome),
    (http("429 Too Many Requests", _error("invalid_request_error", "lock_timeout")), Transient),
    (http("429 Too Many Requests", HTML), Transient),
    (http("400 Bad Request", _error("invalid_request_error", "rate_limit")), Transient),
    (http("503 Service Unavailable", _error("api_error", "lock_timeout")), Transient),
    (http("503 Service Unavailable", _error("api_error"), retry_after="1"), UnknownOutcome),
    (http("500 Internal Server Error", _error("api_error")), UnknownOutcome),
    (http("502 Bad Gateway", HTML), UnknownOutcome),
    (http("504 Gateway Time-out", ""), UnknownOutcome),
    (http("400 Bad Request", HTML), UnknownOutcome),
    (http("403 Forbidden", HTML), UnknownOutcome),
    (http("404 Not Found", HTML), UnknownOutcome),
    (http("400 Bad Request", '{"error": "no"}'), UnknownOutcome),
    (http("400 Bad Request", '{"error": {"type": 7, "code": null}}'), UnknownOutcome),
    (http("301 Moved", "", location="http://127.0.0.1:1/"), UnknownOutcome),
    (http("200 OK", HTML), UnknownOutcome),
    (http("200 OK", ""), UnknownOutcome),
    (http("200 OK", "[]"), UnknownOutcome),
    (http("200 OK", "null"), UnknownOutcome),
    (http("200 OK", '"done"'), UnknownOutcome),
    (http("200 OK", "[" * 100_000), UnknownOutcome),
    (http("200 OK", b"\xff\xfe"), UnknownOutcome),
    (http("200 OK", b"{" + b" " * 2_100_000 + b"}"), UnknownOutcome),
    (http("200 OK", json.dumps({"error": {"type": "api_error"}})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "object": "charge"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "amount": "1000"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "amount": 1000.0})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "amount": 999})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "currency": "eur"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "currency": "???"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "charge": "ch_2"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "status": "perhaps"})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "status": None})), UnknownOutcome),
    (http("200 OK", json.dumps({**REFUND, "status": "failed", "failure_reason": "declined"})), Permanent),
    (http("200 OK", json.dumps(REFUND))[:-20], UnknownOutcome),
    (b"HTTP/1.1 200 OK\r\n", UnknownOutcome),
    (b"hello\r\n\r\n", UnknownOutcome),
    (b"", UnknownOutcome),
]


@pytest.mark.parametrize(("answer", "error"), ODD_ANSWERS, ids=[str(number) for number in range(len(ODD_ANSWERS))])
def test_only_a_clear_answer_counts_as_one(answer: bytes, error: type[Exception]) -> None:
    """R13: a page, half an answer or one about something else is an unknown outcome, never a failure or a receipt."""
    with raw_server(answer) as server:
        raised = failure(server.url)

    assert type(raised) is error
    assert len(server.received) == 1
    assert "sk_live_secret" not in _all_text(raised)


def test_answer_about_another_amount_is_never_a_receipt() -> None:
    """R18: a refund request names no currency, so 1000 yen may come back for ten dollars."""
    with raw_server(http("200 OK", json.dumps({**REFUND, "currency": "jpy"}))) as server:
        error = failure(server.url)

    assert isinstance(error, UnknownOutcome)
    assert error.details["refund_id"] == "re_1"
    assert "JPY 1000" in str(error)


# Retry-After

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
RETRY_AFTER = [
    ("120", 120.0),
    ("1.5", 1.5),
    (" 7 ", 7.0),
    (format_datetime(NOW + timedelta(minutes=10), usegmt=True), 600.0),
    (format_datetime(NOW - timedelta(minutes=10), usegmt=True), None),
    ("0", None),
    ("-5", None),
    ("soon", None),
    ("", None),
]


@pytest.mark.parametrize(("value", "seconds"), RETRY_AFTER)
def test_retry_after_is_read_in_both_forms(value: str, seconds: float | None) -> None:
    """R11"""
    assert parse_retry_after(httpx.Headers({"Retry-After": value}), now=NOW) == seconds


def test_date_in_retry_after_is_measured_by_the_servers_own_clock() -> None:
    headers = httpx.Headers(
        {
            "Retry-After": format_datetime(NOW + timedelta(minutes=10), usegmt=True),
            "Date": format_datetime(NOW, usegmt=True),
        }
    )

    assert parse_retry_after(headers, now=NOW + timedelta(hours=3)) == 600.0


@pytest.mark.parametrize("body", [_error("invalid_request_error", "rate_limit"), HTML])
def test_retry_after_of_a_refusal_reaches_the_engine(body: str) -> None:
    with raw_server(http("429 Too Many Requests", body, retry_after="120")) as server:
        error = failure(server.url)

    assert isinstance(error, Transient)
    assert error.retry_after_seconds == 120.0


# lookups


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


# money


@pytest.mark.parametrize(
    "amount", [Money(5800, "JPY"), Money(1000, USD), Money(1234, "KWD"), Money(9007199254740993, USD)], ids=str
)
def test_minor_units_pass_through(sandbox: RunningSandbox, payments: PaymentsClient, amount: Money) -> None:
    """R18"""
    charge = payments.create_charge(key="charge", amount=amount)

    receipt = payments.refund(call(), charge_id=charge.id, amount=amount)

    (request,) = sandbox.books().requests_to("/v1/refunds")
    assert request["params"]["amount"] == str(amount.amount_minor)
    assert receipt.amount == charge.amount == amount


@pytest.mark.parametrize(
    ("money", "sent"),
    [(Money(500, "ISK"), 50_000), (Money(500, "UGX"), 50_000), (Money(50_000, "MGA"), 500), (Money(1, USD), 1)],
    ids=str,
)
def test_exceptions_of_the_provider_are_data_and_go_both_ways(money: Money, sent: int) -> None:
    """R18"""
    assert to_provider(money) == sent
    assert from_provider(sent, money.currency.lower()) == money


def test_amount_that_the_provider_cannot_say_is_refused() -> None:
    with pytest.raises(Permanent):
        to_provider(Money(50_050, "MGA"))
    with pytest.raises(UnknownOutcome):
        from_provider(50_050, "isk")


def test_receipt_keeps_its_value_in_storage() -> None:
    receipt = RefundReceipt(id="re_1", status="succeeded", charge_id="ch_1", amount=Money(9007199254740993, USD))

    assert RefundReceipt.model_validate_json(receipt.model_dump_json()) == receipt


# secrets


@pytest.mark.parametrize("key", ["sk_live_secret_in_header", "sk_live_secret\r\nX-Evil: 1", "sk_live_secret "])
def test_key_never_stands_in_an_error(sandbox: RunningSandbox, key: str) -> None:
    """R38"""
    client = PaymentsClient(sandbox.url, key)
    with pytest.raises(StepFailure) as caught:
        client.ping()

    assert "secret" not in _all_text(caught.value) + repr(client)
    assert type(caught.value) is NeedsHuman


def test_password_in_the_address_never_stands_in_an_error() -> None:
    """R38"""
    error = failure("http://user:secret@127.0.0.1:1")

    assert "secret" not in _all_text(error)


def _all_text(error: BaseException) -> str:
    """All that a log or a monitor would show of an error, its causes included."""
    details = getattr(error, "details", {})
    return "".join(traceback.format_exception(error)) + repr(error) + repr(details)


# settings


def test_configured_account_is_read_from_settings_at_each_call(sandbox: RunningSandbox) -> None:
    with override_settings(PAYMENTS_URL=sandbox.url, PAYMENTS_KEY=KEY):
        charge = gateway.create_charge(key="charge", amount=TEN)
        receipt = gateway.refund(call(), charge_id=charge.id, amount=TEN)
        found = gateway.find_refund(call(), charge_id=charge.id, amount=TEN)

    with override_settings(PAYMENTS_URL=sandbox.url, PAYMENTS_KEY="sk_test_other"), pytest.raises(NeedsHuman):
        gateway.ping()
    assert found == Found(receipt)


def test_client_works_without_django_settings_and_writes_nothing_home(sandbox: RunningSandbox, tmp_path: Path) -> None:
    code = f"from customer_ops.gateways.payments import PaymentsClient; PaymentsClient({sandbox.url!r}, {KEY!r}).ping()"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
