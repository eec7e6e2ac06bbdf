"""The payment gateway says how far each request got, acts once for each key, and sends nothing when it is too late.

The first half runs against the sandbox and against a provider that others wrote.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from customer_ops.gateways import payments as gateway
from customer_ops.gateways.payments import ChargeReceipt, PaymentsClient, RefundReceipt
from customer_ops.sandbox.control import RunningSandbox
from durableflows import (
    AlreadyDone,
    CredentialsRefused,
    DurableflowsError,
    Found,
    KeyConflict,
    KeyInUse,
    Money,
    NeedsHuman,
    NotFound,
    Permanent,
    Transient,
    UnknownOutcome,
)
from tests.support.payments import KEY, TEN, USD, call
from tests.support.stripe_mock import foreign_stripe


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
    with pytest.raises(AlreadyDone) as nothing_left:  # whose refund that was, this answer does not say
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


def test_key_that_the_provider_does_not_know_needs_a_person_and_a_known_one_does_not(provider: PaymentsClient) -> None:
    """S2.19"""
    provider.ping()

    with pytest.raises(NeedsHuman):
        PaymentsClient(provider.url, "rk_wrong_0123456789").ping()


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

FAULTS: list[tuple[str, dict[str, Any], type[Exception] | None, int, type[Exception] | None]] = [
    # fault, options, error, refunds made so far, error of the same call made again (None: a receipt)
    ("refuse", {}, UnknownOutcome, 0, None),
    ("cut_before", {}, UnknownOutcome, 0, None),
    ("timeout_before", {}, UnknownOutcome, 0, None),
    ("rate_limited", {}, Transient, 0, None),
    ("error_before", {}, UnknownOutcome, 0, None),
    ("error_before", {"stored": True}, UnknownOutcome, 0, UnknownOutcome),
    ("error_before", {"status": 503}, UnknownOutcome, 0, None),
    ("unauthorized", {}, CredentialsRefused, 0, None),
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
