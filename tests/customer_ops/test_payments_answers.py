"""What the gateway makes of answers: also of those that no provider should give."""

import json

import pytest

from customer_ops.gateways.payment_amounts import from_provider, to_provider
from customer_ops.gateways.payments import PaymentsClient, RefundReceipt
from customer_ops.sandbox.control import RunningSandbox
from durableflows import (
    AlreadyDone,
    CredentialsRefused,
    KeyConflict,
    KeyInUse,
    Money,
    NeedsHuman,
    Permanent,
    StepFailure,
    Transient,
    UnknownOutcome,
)
from tests.support.payments import USD, all_text, call, failure
from tests.support.raw_server import http, raw_server

REFUND = {
    "id": "re_1", "object": "refund", "status": "succeeded", "charge": "ch_1", "amount": 1000, "currency": "usd",
    "metadata": {},
}  # fmt: skip


def _error(kind: str, code: str = "", **more: str) -> str:
    return json.dumps({"error": {"type": kind, "code": code, "message": "no", **more}})


HTML = "<html><body>Bad gateway, api_key=sk_live_secret</body></html>"
ODD_ANSWERS = [
    # what arrives, what it means
    (http("400 Bad Request", _error("invalid_request_error", "parameter_missing")), Permanent),
    (http("402 Payment Required", _error("card_error", "expired_card")), Permanent),
    (http("403 Forbidden", _error("invalid_request_error")), Permanent),
    (http("404 Not Found", _error("invalid_request_error", "resource_missing")), Permanent),
    (http("400 Bad Request", _error("invalid_request_error", "charge_already_refunded")), AlreadyDone),
    (http("401 Unauthorized", _error("invalid_request_error")), CredentialsRefused),
    (http("401 Unauthorized", HTML), CredentialsRefused),
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
    assert "sk_live_secret" not in all_text(raised)


def test_answer_about_another_amount_is_never_a_receipt() -> None:
    """R18: a refund request names no currency, so 1000 yen may come back for ten dollars."""
    with raw_server(http("200 OK", json.dumps({**REFUND, "currency": "jpy"}))) as server:
        error = failure(server.url)

    assert isinstance(error, UnknownOutcome)
    assert error.details["refund_id"] == "re_1"
    assert "JPY 1000" in str(error)


# Retry-After


@pytest.mark.parametrize("body", [_error("invalid_request_error", "rate_limit"), HTML])
def test_retry_after_of_a_refusal_reaches_the_engine(body: str) -> None:
    with raw_server(http("429 Too Many Requests", body, retry_after="120")) as server:
        error = failure(server.url)

    assert isinstance(error, Transient)
    assert error.retry_after_seconds == 120.0


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

    assert "secret" not in all_text(caught.value) + repr(client)
    assert isinstance(caught.value, NeedsHuman)  # refused by the provider, or by ourselves as malformed


def test_password_in_the_address_never_stands_in_an_error() -> None:
    """R38"""
    error = failure("http://user:secret@127.0.0.1:1")

    assert "secret" not in all_text(error)
