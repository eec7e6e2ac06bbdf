"""Each fault of the payment provider: class, ledger, sends, lookups, end and books, by the whole engine (R13, R15,
R17).

The first table is the refund as it is declared; the second the same refund at a provider of which no key is declared,
so that a lookup alone can tell.
"""

from typing import Any

import pytest
from django.conf import LazySettings

from customer_ops.effects import refund_payment
from customer_ops.gateways.payments import PaymentsClient
from customer_ops.sandbox.control import RunningSandbox
from durableflows import Money
from durableflows.testing import next_due, virtual
from tests.support.adapters import DONE_AND_LOST, LOST, NOT_FOUND, TOOK, Case, Seen, declared, line, paid, play
from tests.support.payments import KEY, TEN, USD, call

pytestmark = pytest.mark.django_db


SILENT = ("timeout_before", "timeout_after", "trickle")


WITH_KEYS: list[Case] = [
    # nothing was done
    ("refuse", {}, line(*LOST, sends=2, books=1)),
    ("cut_before", {}, line(*LOST, sends=2, books=1)),
    ("timeout_before", {}, line(*LOST, sends=2, books=1)),
    ("rate_limited", {}, line("Transient", "PLANNED", "CONFIRMED", sends=2, books=1)),
    ("error_before", {}, line(*LOST, sends=2, books=1)),
    ("error_before", {"status": 503}, line(*LOST, sends=2, books=1)),
    ("unauthorized", {}, line("CredentialsRefused", "PLANNED", "PLANNED", sends=1, books=0)),
    ("forbidden", {}, line("Permanent", "REJECTED", "REJECTED", sends=1, books=0)),
    ("key_in_use", {}, line("KeyInUse", "UNKNOWN", "CONFIRMED", sends=2, books=1)),
    # the provider is slow: in time, and too late for us
    ("late", {"seconds": 0.01}, line(*TOOK, sends=1, books=1)),
    ("late", {"seconds": 0.8}, line(*LOST, sends=2, books=1)),
    ("slow", {"seconds": 0.01}, line(*TOOK, sends=1, books=1)),
    ("slow", {"seconds": 0.8}, line(*LOST, sends=2, books=1)),
    # accepted, and then done or failed
    (
        "pending",
        {"then": "succeeded", "after_reads": 1},
        line("receipt", "ACCEPTED", "CONFIRMED", sends=1, lookups=2, books=1),
    ),
    ("pending", {"then": "failed"}, line("receipt", "REJECTED", "REJECTED", sends=1, lookups=1, books=0)),
    # done, and the answer lost
    *DONE_AND_LOST,
    ("error_after", {"status": 503}, line(*LOST, sends=2, books=1)),
    ("error_after", {"status": 504}, line(*LOST, sends=2, books=1)),
    # a 500 that the provider remembers under the key is no outcome: in the end it is looked up
    ("error_before", {"stored": True}, line(*NOT_FOUND, sends=4, lookups=1, books=0)),
    ("error_after", {}, line(*LOST, sends=4, lookups=1, books=1)),
]

WITHOUT_KEYS: list[Case] = [
    ("cut_before", {}, line(*NOT_FOUND, sends=1, lookups=1, books=0)),
    ("timeout_before", {}, line(*NOT_FOUND, sends=1, lookups=1, books=0)),
    ("rate_limited", {}, line("Transient", "PLANNED", "CONFIRMED", sends=2, books=1)),
    ("error_before", {}, line(*NOT_FOUND, sends=1, lookups=1, books=0)),
    ("late", {"seconds": 0.8}, line(*LOST, sends=1, lookups=1, books=1)),
    ("slow", {"seconds": 0.8}, line(*LOST, sends=1, lookups=1, books=1)),
    ("error_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("cut_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("timeout_after", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("half_answer", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("html_answer", {}, line(*LOST, sends=1, lookups=1, books=1)),
    ("bad_json", {}, line(*LOST, sends=1, lookups=1, books=1)),
]


@pytest.fixture
def account(settings: LazySettings, sandbox: RunningSandbox) -> None:
    settings.PAYMENTS_URL, settings.PAYMENTS_KEY = sandbox.url, KEY


def seen(sandbox: RunningSandbox, charge: str, fault: str, options: dict[str, Any], **other: Any) -> Seen:
    """What one refund goes through that meets this fault once."""
    sandbox.fault(fault, path="/v1/refunds", **options)
    used = declared(refund_payment, is_silent=fault in SILENT or options.get("seconds") == 0.8, **other)
    with virtual() as world:
        return play(
            world,
            used,
            {"charge_id": charge, "amount": TEN},
            books=lambda key: paid(sandbox.books(), key),
            between=sandbox.wait_until_done,
        )


@pytest.mark.parametrize(("fault", "options", "expected"), WITH_KEYS, ids=str)
def test_a_refund_under_a_key(
    account: None, sandbox: RunningSandbox, charge: str, fault: str, options: dict[str, Any], expected: Seen
) -> None:
    """S3.6, S3.9, R13."""
    assert seen(sandbox, charge, fault, options) == expected
    assert sandbox.books().repeated == []


@pytest.mark.parametrize(("fault", "options", "expected"), WITHOUT_KEYS, ids=str)
def test_a_refund_that_only_a_lookup_can_find(
    account: None, sandbox: RunningSandbox, charge: str, fault: str, options: dict[str, Any], expected: Seen
) -> None:
    assert seen(sandbox, charge, fault, options, key_window=None) == expected
    assert sandbox.books().repeated == []


def test_a_request_that_is_still_in_progress_is_waited_for_under_its_key(
    account: None, sandbox: RunningSandbox, charge: str
) -> None:
    """R15: the client gives up, hears "in progress" twice, and then the stored success."""
    sandbox.fault("slow", path="/v1/refunds")
    waits: list[float] = []

    def hear_twice() -> None:
        sandbox.wait_until_held()
        for _ in range(2):
            due = next_due()
            assert due is not None
            waits.append((due - world.clock.now()).total_seconds())
            world.clock.move_to(due)
            world.run_until_idle()
        sandbox.release()
        sandbox.wait_until_done()

    with virtual() as world:
        went = play(
            world,
            declared(refund_payment, is_silent=True),
            {"charge_id": charge, "amount": TEN},
            books=lambda key: paid(sandbox.books(), key),
            between=hear_twice,
        )

    assert went == line(*LOST, sends=4, books=1)
    assert min(waits) > 0
    sent = sandbox.books().requests_to("/v1/refunds")
    assert [one["status"] for one in sent] == [200, 409, 409, 200]
    assert len({one["idempotency_key"] for one in sent}) == 1


def test_a_charge_that_somebody_else_has_refunded_is_looked_into(
    account: None, sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    """R13: "already refunded" is neither believed nor a failure; no refund has our key, so a person decides."""
    payments.refund(call("by_hand"), charge_id=charge, amount=Money(10_000, USD))
    with virtual() as world:
        went = play(
            world,
            declared(refund_payment, is_silent=False),
            {"charge_id": charge, "amount": TEN},
            books=lambda key: paid(sandbox.books(), key),
        )

    assert went == line("AlreadyDone", "UNKNOWN", "ABSENT", sends=1, lookups=1, books=0)


def test_a_closed_provider_costs_sends_that_never_left(
    account: None, sandbox: RunningSandbox, payments: PaymentsClient, charge: str
) -> None:
    """R13: connection refused is never sent; the money leaves once when the provider is back."""
    sandbox.stop_listening()
    with virtual() as world:
        went = play(
            world,
            declared(refund_payment, is_silent=False),
            {"charge_id": charge, "amount": TEN},
            books=lambda key: paid(sandbox.books(), key),
            between=sandbox.listen,
        )

    assert went == line("NeverSent", "PLANNED", "CONFIRMED", sends=2, books=1)
