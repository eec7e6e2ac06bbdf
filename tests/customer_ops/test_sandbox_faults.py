"""The sandbox fails as ordered, and its books are true whatever its clients saw."""

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from customer_ops.sandbox.__main__ import read_mix
from customer_ops.sandbox.control import RunningSandbox, SandboxError, running_sandbox, start_sandbox
from customer_ops.sandbox.faults import DEFAULT_MIX, Fault, FaultPlan, Kind, Rate, Sighting
from tests.support.shop import Shop

DAY_SECONDS = 24 * 3600


@pytest.fixture
def shop(sandbox: RunningSandbox) -> Shop:
    return Shop(sandbox.url)


SENT = httpx.RemoteProtocolError
FAULTS: list[tuple[str, dict[str, Any], int | type[Exception], int, int]] = [
    # kind, options, what the client sees, refunds made, what the client sees when it repeats the request
    ("refuse", {}, httpx.ReadError, 0, 200),
    ("cut_before", {}, SENT, 0, 200),
    ("timeout_before", {}, httpx.ReadTimeout, 0, 200),
    ("rate_limited", {}, 429, 0, 200),
    ("error_before", {}, 500, 0, 200),
    ("error_before", {"status": 503}, 503, 0, 200),
    ("error_before", {"stored": True}, 500, 0, 500),
    ("unauthorized", {}, 401, 0, 200),
    ("forbidden", {}, 403, 0, 200),
    ("key_in_use", {}, 409, 0, 200),
    ("slow", {"seconds": 0.01}, 200, 1, 200),
    ("late", {"seconds": 0.01}, 200, 1, 200),
    ("pending", {}, 200, 1, 200),
    ("error_after", {}, 500, 1, 500),
    ("error_after", {"status": 502}, 502, 1, 200),
    ("error_after", {"stored": False}, 500, 1, 200),
    ("cut_after", {}, SENT, 1, 200),
    ("timeout_after", {}, httpx.ReadTimeout, 1, 200),
    ("half_answer", {}, SENT, 1, 200),
    ("html_answer", {}, 200, 1, 200),
    ("bad_json", {}, 200, 1, 200),
    ("trickle", {"seconds": 0.0}, 200, 1, 200),
]


def test_table_of_faults_is_complete() -> None:
    assert {kind for kind, *_ in FAULTS} == {str(kind) for kind in Kind}


@pytest.mark.parametrize(("kind", "options", "seen", "made", "seen_again"), FAULTS)
def test_fault_does_what_it_says_and_the_books_are_true(
    sandbox: RunningSandbox,
    kind: str,
    options: dict[str, Any],
    seen: int | type[Exception],
    made: int,
    seen_again: int,
) -> None:
    shop = Shop(sandbox.url, timeout_seconds=0.3)
    charge = shop.charge(1000)
    sandbox.fault(kind, **options)

    if isinstance(seen, int):
        assert shop.refund(charge, "df_1", amount=100).status_code == seen
    else:
        with pytest.raises(seen):
            shop.refund(charge, "df_1", amount=100)
    after_first = sandbox.books()
    again = shop.refund(charge, "df_1", amount=100)

    assert len(after_first.refund_acts) == made
    assert again.status_code == seen_again
    assert again.headers.get("Idempotent-Replayed") == ("true" if made or seen_again != 200 else None)
    assert len(sandbox.books().refund_acts) == (0 if (made, seen_again) == (0, 500) else 1)
    assert [request["fault"] for request in after_first.requests_to("/v1/refunds")] == [kind]


def test_retry_after_is_sent_in_the_form_that_was_ordered(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    for value in ("120", "Wed, 21 Oct 2026 07:28:00 GMT"):
        sandbox.fault("rate_limited", retry_after=value)

        assert shop.refund(charge, amount=1).headers["Retry-After"] == value


def test_fault_meets_only_the_requests_that_were_meant(shop: Shop, sandbox: RunningSandbox) -> None:
    first, second = shop.charge(1000), shop.charge(1000)

    sandbox.fault("error_before", charge=second, times=2)
    sandbox.fault("key_in_use", metadata={"durableflows_key": "df_9"})
    sandbox.fault("forbidden", method="GET", path="/v1/refunds")
    seen = [
        shop.refund(first, amount=1).status_code,
        shop.refund(second, amount=1).status_code,
        shop.refund(second, amount=1).status_code,
        shop.refund(second, amount=1).status_code,
        shop.refund(first, amount=1, meta_durableflows_key="df_9").status_code,
        shop.get(f"/v1/charges/{first}").status_code,
        shop.get("/v1/refunds").status_code,
    ]

    assert seen == [200, 500, 500, 200, 409, 200, 403]
    assert sandbox.faults() == []


def test_fault_may_let_some_requests_pass_first(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)

    sandbox.fault("error_before", path="/v1/refunds", skip=1)

    assert [shop.refund(charge, amount=1).status_code for _ in range(3)] == [200, 500, 200]


def test_withdrawn_fault_does_not_happen(shop: Shop, sandbox: RunningSandbox) -> None:
    sandbox.fault("error_before", times=5)
    sandbox.clear_faults()

    assert sandbox.faults() == []
    assert shop.charge(1000).startswith("ch_")


def test_faults_by_chance_follow_their_seed() -> None:
    seen = Sighting(method="POST", path="/v1/refunds", params={}, key=None)

    def draw(seed: int) -> list[str | None]:
        plan = FaultPlan(Rate(rate=0.2, seed=seed))
        return [fault.kind if (fault := plan.take(seen)) else None for _ in range(1000)]

    counts = Counter(draw(7))
    assert draw(7) == draw(7) != draw(8)
    assert 140 < 1000 - counts[None] < 260
    assert {kind for kind in counts if kind} == set(DEFAULT_MIX)


def test_faults_by_chance_spare_reads_and_can_be_ended(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    sandbox.fault_rate(1.0, mix={"error_before": 1.0})

    failed, read = shop.refund(charge, amount=1).status_code, shop.get(f"/v1/charges/{charge}").status_code
    sandbox.fault_rate(0)

    assert (failed, read, shop.refund(charge, amount=1).status_code) == (500, 200, 200)


def test_mix_is_read_from_the_command_line() -> None:
    assert read_mix("cut_after:2, rate_limited") == {Kind.CUT_AFTER: 2.0, Kind.RATE_LIMITED: 1.0}


@pytest.mark.parametrize(
    "order", [{"kind": "explode"}, {"kind": "slow", "colour": "red"}, {"kind": "slow", "times": 0}]
)
def test_order_that_makes_no_sense_is_refused(sandbox: RunningSandbox, order: dict[str, Any]) -> None:
    with pytest.raises(SandboxError):
        sandbox.fault(**order)


def test_fault_without_a_match_is_for_the_next_post() -> None:
    fault = Fault(kind=Kind.SLOW)

    assert fault.matches(Sighting(method="POST", path="/v1/refunds", params={}, key=None))
    assert not fault.matches(Sighting(method="GET", path="/v1/refunds", params={}, key=None))


def test_late_request_acts_when_its_client_has_long_gone(sandbox: RunningSandbox) -> None:
    """A request may still be on its way when everybody has come to believe that it is lost."""
    charge = Shop(sandbox.url).charge(1000)
    sandbox.fault("late")

    with pytest.raises(httpx.ReadTimeout):
        Shop(sandbox.url, timeout_seconds=0.2).refund(charge, "df_1", amount=100)
    held = sandbox.wait_until_held()
    before = sandbox.books()
    sandbox.release()
    sandbox.wait_until_done()

    assert len(held) == 1
    assert (before.acts[1:], sandbox.books().by_key) == ([], {"df_1": 1})


def test_closed_port_refuses_and_opens_again(sandbox: RunningSandbox) -> None:
    shop = Shop(sandbox.url)
    with shop.connection() as kept:
        kept.get("/v1/refunds")

        sandbox.stop_listening()
        with pytest.raises(httpx.ReadError):  # an outage ends open connections too
            kept.get("/v1/refunds")
        with pytest.raises(httpx.ConnectError):
            shop.get("/v1/refunds")
        sandbox.listen()

    assert shop.get("/v1/refunds").status_code == 200


# pending refunds


def test_pending_refund_is_settled_after_so_many_reads(shop: Shop, sandbox: RunningSandbox) -> None:
    """R17: accepted is not done."""
    charge = shop.charge(1000)
    sandbox.fault("pending", then="succeeded", after_reads=2)

    refund = shop.refund(charge, amount=100).json()
    seen = [shop.get(f"/v1/refunds/{refund['id']}").json()["status"] for _ in range(3)]

    assert [refund["status"], *seen] == ["pending", "pending", "pending", "succeeded"]


def test_pending_refund_fails_when_its_time_has_come(shop: Shop, sandbox: RunningSandbox) -> None:
    """R17: accepted may still fail, and then the money is back on the charge."""
    charge = shop.charge(1000)
    sandbox.fault("pending", then="failed", after_seconds=7 * DAY_SECONDS, failure_reason="expired_or_canceled_card")
    refund = shop.refund(charge, amount=1000).json()

    before = shop.get("/v1/refunds", charge=charge).json()["data"][0]
    sandbox.advance_clock(7 * DAY_SECONDS + 1)
    after = shop.get("/v1/refunds", charge=charge).json()["data"][0]

    assert (before["status"], before.get("failure_reason")) == ("pending", None)
    assert (after["id"], after["status"], after["failure_reason"]) == (
        refund["id"],
        "failed",
        "expired_or_canceled_card",
    )
    assert shop.get(f"/v1/charges/{charge}").json()["amount_refunded"] == 0
    assert [act["kind"] for act in sandbox.books().acts] == ["charge", "refund", "refund_returned"]


def test_replayed_answer_stays_pending_although_the_refund_is_done(shop: Shop, sandbox: RunningSandbox) -> None:
    """A key gives the first answer for a day: only a lookup tells how a pending refund has ended."""
    charge = shop.charge(1000)
    sandbox.fault("pending")
    refund = shop.refund(charge, "df_1", amount=100).json()
    sandbox.settle(refund["id"], "succeeded")

    assert shop.refund(charge, "df_1", amount=100).json()["status"] == "pending"
    assert shop.get(f"/v1/refunds/{refund['id']}").json()["status"] == "succeeded"


def test_refund_that_had_succeeded_may_fail_later(shop: Shop, sandbox: RunningSandbox) -> None:
    refund = shop.refund(shop.charge(1000), amount=100).json()

    failed = sandbox.settle(refund["id"], "failed", failure_reason="lost_or_stolen_card")

    assert (refund["status"], failed["status"], failed["failure_reason"]) == (
        "succeeded",
        "failed",
        "lost_or_stolen_card",
    )


# books that outlive the process


def test_act_and_its_stored_answer_survive_a_power_cut(tmp_path: Path) -> None:
    books = tmp_path / "books.sqlite3"
    with running_sandbox(books=books) as sandbox:
        charge = Shop(sandbox.url).charge(1000)
        sandbox.fault("timeout_after")
        with pytest.raises(httpx.ReadTimeout):
            Shop(sandbox.url, timeout_seconds=0.2).refund(charge, "df_1", amount=100)
        sandbox.kill()

    with running_sandbox(books=books) as sandbox:
        again = Shop(sandbox.url).refund(charge, "df_1", amount=100)

        assert again.headers["Idempotent-Replayed"] == "true"
        assert sandbox.books().by_key == {"df_1": 1}


def test_power_cut_before_the_act_leaves_the_key_free(tmp_path: Path) -> None:
    books = tmp_path / "books.sqlite3"
    with running_sandbox(books=books) as sandbox:
        charge = Shop(sandbox.url).charge(1000)
        sandbox.fault("slow")
        with pytest.raises(httpx.ReadTimeout):
            Shop(sandbox.url, timeout_seconds=0.2).refund(charge, "df_1", amount=100)
        sandbox.wait_until_held()
        sandbox.kill()

    with running_sandbox(books=books) as sandbox:
        again = Shop(sandbox.url).refund(charge, "df_1", amount=100)

        assert again.status_code == 200
        assert "Idempotent-Replayed" not in again.headers
        assert sandbox.books().by_key == {"df_1": 1}


def test_sandbox_stops_in_good_order(tmp_path: Path) -> None:
    sandbox = start_sandbox(books=tmp_path / "books.sqlite3")

    sandbox.stop()

    assert sandbox.process.returncode == 0


def test_sandbox_that_cannot_start_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SandboxError):
        start_sandbox(books=tmp_path / "books.sqlite3", fault_rate=2)

    assert "less than or equal to 1" in capfd.readouterr().err


def test_faults_may_be_ordered_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_FAULT_RATE", "1")
    monkeypatch.setenv("SANDBOX_FAULT_MIX", "forbidden")

    with running_sandbox(books=tmp_path / "books.sqlite3") as sandbox:
        answer = Shop(sandbox.url).post("/v1/charges", amount=100, currency="usd", source="tok_visa")

    assert answer.status_code == 403


def test_sandbox_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    sandbox = start_sandbox(books=tmp_path / "books.sqlite3")
    assert sandbox.process.stdin is not None

    sandbox.process.stdin.close()  # what the system does with the pipe of a killed process

    assert sandbox.process.wait(timeout=10) == 0
    sandbox.stop()


def test_reset_empties_the_books_and_withdraws_faults(shop: Shop, sandbox: RunningSandbox) -> None:
    shop.charge(1000)
    sandbox.fault("error_before")
    sandbox.advance_clock(DAY_SECONDS)

    sandbox.reset()

    books = sandbox.books()
    assert (books.acts, books.charges, books.refunds, books.requests, sandbox.faults()) == ([], [], [], [], [])
