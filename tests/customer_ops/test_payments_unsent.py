"""When nothing was sent, the gateway knows; and its total time holds."""

import socket
import time

import pytest

from customer_ops.gateways import payments as gateway
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.sandbox.control import RunningSandbox
from durableflows import CannotTell, Money, NeedsHuman, NeverSent, Permanent, UnknownOutcome
from tests.support.payments import KEY, TEN, USD, call, failure
from tests.support.raw_server import http, raw_server


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
        assert time.monotonic() - started < 5


def test_failed_handshake_sent_nothing() -> None:
    with raw_server(b"this is no TLS\r\n") as server:
        assert type(failure(server.url.replace("http:", "https:"))) is NeverSent


@pytest.mark.parametrize("url", ["", "payments", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"])
def test_address_that_is_none_was_sent_nothing(url: str) -> None:
    assert type(failure(url)) is NeverSent


def test_late_worker_connects_and_sends_not_one_byte() -> None:
    """The check stands between the connection and the first byte (protocol, rule 2)."""
    with raw_server(http("200 OK", "{}")) as server:
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

    assert 0.4 < time.monotonic() - started < 5


def test_total_time_covers_all_pages_of_a_lookup(
    sandbox: RunningSandbox, payments: PaymentsClient, charge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "PAGE_SIZE", 1)
    for number in range(4):
        payments.refund(call(f"df_{number}"), charge_id=charge, amount=TEN)
    sandbox.fault("late", times=10, method="GET", seconds=0.2)

    answer = payments.find_refund(call("df_0", timeout_seconds=0.5), charge_id=charge, amount=TEN)

    assert isinstance(answer, CannotTell)
