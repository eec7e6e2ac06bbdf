"""The sandbox is a provider that one can trust in tests: Stripe's rules, faults as ordered, books that are true."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from customer_ops.sandbox import currencies
from customer_ops.sandbox.__main__ import read_mix
from customer_ops.sandbox.answers import ApiError
from customer_ops.sandbox.control import RunningSandbox, SandboxError, running_sandbox, start_sandbox
from customer_ops.sandbox.faults import DEFAULT_MIX, Fault, FaultPlan, Kind, Rate, Sighting

DAY_SECONDS = 24 * 3600


class Shop:
    """A client as plain as can be: what is sent is what a test says."""

    def __init__(self, url: str, *, key: str = "sk_test_local", timeout_seconds: float = 5.0) -> None:
        self._url, self._key, self._timeout_seconds = url, key, timeout_seconds

    def post(self, path: str, key: str | None = None, /, **params: object) -> httpx.Response:
        data = {name.replace("meta_", "metadata[") + "]" if name.startswith("meta_") else name: value
                for name, value in params.items()}  # fmt: skip
        with self.connection() as http:
            return http.post(path, data=data, headers={"Idempotency-Key": key} if key else {})

    def get(self, path: str, /, **params: object) -> httpx.Response:
        with self.connection() as http:
            return http.get(path, params={name: str(value) for name, value in params.items()})

    def connection(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=self._url, headers=headers, timeout=self._timeout_seconds, verify=False)

    def charge(self, amount: int = 1000, currency: str = "usd", **params: object) -> str:
        answer = self.post("/v1/charges", amount=amount, currency=currency, source="tok_visa", **params)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def refund(self, charge: str, key: str | None = None, /, **params: object) -> httpx.Response:
        return self.post("/v1/refunds", key, charge=charge, **params)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with running_sandbox(books=tmp_path_factory.mktemp("sandbox") / "books.sqlite3") as running:
        yield running


@pytest.fixture
def sandbox(process: RunningSandbox) -> RunningSandbox:
    process.reset()
    return process


@pytest.fixture
def shop(sandbox: RunningSandbox) -> Shop:
    return Shop(sandbox.url)


# objects


def test_charge_has_the_shape_of_stripe(shop: Shop) -> None:
    charge = shop.post(
        "/v1/charges", amount=1000, currency="USD", source="tok_visa", description="order 7", meta_order="7"
    ).json()

    assert charge["id"].startswith("ch_")
    assert charge["created"] > 1_700_000_000
    assert {name: charge[name] for name in ("object", "amount", "currency", "status", "metadata", "paid")} == {
        "object": "charge", "amount": 1000, "currency": "usd", "status": "succeeded", "metadata": {"order": "7"},
        "paid": True,
    }  # fmt: skip
    assert shop.get(f"/v1/charges/{charge['id']}").json() == charge


def test_refund_has_the_shape_of_stripe(shop: Shop) -> None:
    charge = shop.charge(1000)

    refund = shop.refund(charge, amount=400, reason="duplicate", meta_durableflows_key="df_1").json()

    assert refund["id"].startswith("re_")
    names = ("object", "amount", "currency", "charge", "status", "metadata", "reason")
    assert {name: refund[name] for name in names} == {
        "object": "refund", "amount": 400, "currency": "usd", "charge": charge, "status": "succeeded",
        "metadata": {"durableflows_key": "df_1"}, "reason": "duplicate",
    }  # fmt: skip
    assert shop.get(f"/v1/refunds/{refund['id']}").json() == refund


def test_refunds_add_up_on_the_charge(shop: Shop) -> None:
    charge = shop.charge(1000)

    shop.refund(charge, amount=400)
    after_part = shop.get(f"/v1/charges/{charge}").json()
    shop.refund(charge)  # without an amount: the rest
    after_all = shop.get(f"/v1/charges/{charge}").json()

    assert (after_part["amount_refunded"], after_part["refunded"]) == (400, False)
    assert (after_all["amount_refunded"], after_all["refunded"]) == (1000, True)


def test_list_goes_page_by_page_newest_first_and_one_charge_only(shop: Shop) -> None:
    charge, other = shop.charge(1000), shop.charge(1000)
    made = [shop.refund(charge, amount=100).json()["id"] for _ in range(5)]
    shop.refund(other, amount=100)

    first = shop.get("/v1/refunds", charge=charge, limit=2).json()
    second = shop.get("/v1/refunds", charge=charge, limit=2, starting_after=first["data"][-1]["id"]).json()
    third = shop.get("/v1/refunds", charge=charge, limit=2, starting_after=second["data"][-1]["id"]).json()

    pages = [[refund["id"] for refund in page["data"]] for page in (first, second, third)]
    assert pages == [made[:2:-1], made[2:0:-1], made[:1]]
    assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
    assert (first["object"], first["url"]) == ("list", "/v1/refunds")


# refusals

REFUSED = [
    # path, parameters, status, type, code, param
    ("/v1/charges", {"currency": "usd", "source": "tok_visa"}, 400, "parameter_missing", "amount"),
    (
        "/v1/charges",
        {"amount": "10.5", "currency": "usd", "source": "tok_visa"},
        400,
        "parameter_invalid_integer",
        "amount",
    ),
    (
        "/v1/charges",
        {"amount": "0", "currency": "usd", "source": "tok_visa"},
        400,
        "parameter_invalid_integer",
        "amount",
    ),
    (
        "/v1/charges",
        {"amount": "-5", "currency": "usd", "source": "tok_visa"},
        400,
        "parameter_invalid_integer",
        "amount",
    ),
    ("/v1/charges", {"amount": "9" * 19, "currency": "usd", "source": "x"}, 400, "parameter_invalid_integer", "amount"),
    ("/v1/charges", {"amount": "49", "currency": "usd", "source": "tok_visa"}, 400, "amount_too_small", "amount"),
    ("/v1/charges", {"amount": "100", "currency": "xxx", "source": "tok_visa"}, 400, None, "currency"),
    (
        "/v1/charges",
        {"amount": "101", "currency": "isk", "source": "tok_visa"},
        400,
        "parameter_invalid_integer",
        "amount",
    ),
    ("/v1/charges", {"amount": "100", "currency": "usd"}, 400, "parameter_missing", None),
    ("/v1/charges", {"amount": "100", "currency": "usd", "source": "4242"}, 404, "resource_missing", "source"),
    ("/v1/charges", {"amount": "100", "currency": "usd", "colour": "red"}, 400, "parameter_unknown", "colour"),
    ("/v1/refunds", {"amount": "100"}, 400, "parameter_missing", "charge"),
    ("/v1/refunds", {"charge": "ch_none"}, 404, "resource_missing", "charge"),
    ("/v1/refunds", {"charge": "ch_none", "reason": "no idea"}, 400, None, "reason"),
    ("/v1/customers", {"name": "x"}, 404, None, None),
]


@pytest.mark.parametrize(("path", "params", "status", "code", "param"), REFUSED)
def test_wrong_request_is_refused_in_stripes_form(
    shop: Shop,
    sandbox: RunningSandbox,
    path: str,
    params: dict[str, str],
    status: int,
    code: str | None,
    param: str | None,
) -> None:
    answer = shop.post(path, **params)

    error = answer.json()["error"]
    assert answer.status_code == status
    assert (error["type"], error.get("code"), error.get("param")) == ("invalid_request_error", code, param)
    assert error["message"]
    assert sandbox.books().acts == []


def test_declined_card_is_a_card_error_and_takes_no_money(shop: Shop, sandbox: RunningSandbox) -> None:
    answer = shop.post("/v1/charges", amount=100, currency="usd", source="tok_chargeDeclinedExpiredCard")

    assert (answer.status_code, answer.json()["error"]["type"]) == (402, "card_error")
    assert answer.json()["error"]["code"] == "expired_card"
    assert sandbox.books().acts == []


@pytest.mark.parametrize("key", ["sk_test_wrong", "?"])
def test_wrong_account_key_is_refused(sandbox: RunningSandbox, key: str) -> None:
    answer = Shop(sandbox.url, key=key).get("/v1/refunds")

    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_more_than_is_left_is_refused(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    shop.refund(charge, amount=700)

    too_much = shop.refund(charge, amount=301)
    shop.refund(charge, amount=300)
    nothing_left = shop.refund(charge, amount=1)

    assert (too_much.status_code, too_much.json()["error"]["param"]) == (400, "amount")
    assert "greater than unrefunded amount" in too_much.json()["error"]["message"]
    assert nothing_left.json()["error"]["code"] == "charge_already_refunded"
    assert sum(act["amount"] for act in sandbox.books().refund_acts) == 1000


def test_amounts_arrive_without_losing_a_digit(shop: Shop, sandbox: RunningSandbox) -> None:
    """R18: minor units, whatever the currency's decimals, also beyond what a binary float holds."""
    amounts = [(5800, "jpy"), (1000, "usd"), (1234, "kwd"), (9007199254740993, "usd")]

    for amount, currency in amounts:
        shop.refund(shop.charge(amount, currency), amount=amount)

    assert [(act["amount"], act["currency"]) for act in sandbox.books().refund_acts] == amounts


@pytest.mark.parametrize(
    ("amount", "currency", "is_taken"), [(1230, "kwd", True), (1234, "kwd", False), (5, "jpy", True)]
)
def test_strict_digits_follow_stripes_rule_for_three_decimals(amount: int, currency: str, is_taken: bool) -> None:
    if is_taken:
        currencies.check_digits(amount, currency, strict=True)
    else:
        with pytest.raises(ApiError):
            currencies.check_digits(amount, currency, strict=True)


# idempotency keys


def test_same_key_gives_the_same_answer_and_acts_once(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)

    first, second = (shop.refund(charge, "df_1", amount=100) for _ in range(2))

    assert first.json() == second.json()
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Original-Request"] == first.headers["Request-Id"]
    assert sandbox.books().by_key == {"df_1": 1}


def test_same_key_with_other_parameters_is_refused(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    shop.refund(charge, "df_1", amount=100)

    other_amount = shop.refund(charge, "df_1", amount=200)
    other_endpoint = shop.post("/v1/charges", "df_1", amount=100, currency="usd", source="tok_visa")

    for answer in (other_amount, other_endpoint):
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "idempotency_error")
    assert sandbox.books().by_key == {"df_1": 1}


def test_key_in_use_is_refused_until_its_first_request_has_ended(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    sandbox.fault("slow")
    first: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: first.append(Shop(sandbox.url).refund(charge, "df_1", amount=100)))
    thread.start()
    sandbox.wait_until_held()

    meanwhile = shop.refund(charge, "df_1", amount=100)
    sandbox.release()
    thread.join(timeout=5)
    afterwards = shop.refund(charge, "df_1", amount=100)

    assert meanwhile.status_code == 409
    assert meanwhile.json()["error"]["code"] == "idempotency_key_in_use"
    assert first[0].status_code == 200
    assert afterwards.json() == first[0].json()
    assert sandbox.books().by_key == {"df_1": 1}


def test_many_requests_at_once_with_one_key_act_once(sandbox: RunningSandbox, shop: Shop) -> None:
    charge, start, answers = shop.charge(1000), threading.Barrier(10), list[int]()

    def send() -> None:
        start.wait(timeout=5)
        answers.append(Shop(sandbox.url).refund(charge, "df_1", amount=100).status_code)

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    assert len(answers) == 10
    assert set(answers) <= {200, 409}
    assert len(sandbox.books().refund_acts) == 1


def test_key_is_forgotten_after_a_day_and_not_before(shop: Shop, sandbox: RunningSandbox) -> None:
    charge = shop.charge(1000)
    shop.refund(charge, "df_1", amount=100, meta_durableflows_key="df_1")

    sandbox.advance_clock(DAY_SECONDS - 60)
    shop.refund(charge, "df_1", amount=100, meta_durableflows_key="df_1")
    before = sandbox.books()
    sandbox.advance_clock(120)
    shop.refund(charge, "df_1", amount=100, meta_durableflows_key="df_1")
    after = sandbox.books()

    assert before.repeated == []
    assert after.refunds_of("df_1") == 2
    assert [operation["operation"] for operation in after.repeated] == ["df_1"]


def test_refusal_by_the_endpoint_is_remembered_and_one_by_its_gate_is_not(shop: Shop) -> None:
    charge = shop.charge(1000)

    too_much = shop.refund(charge, "df_1", amount=2000)
    again = shop.refund(charge, "df_1", amount=2000)
    wrong = shop.refund(charge, "df_2", amount="x")
    right = shop.refund(charge, "df_2", amount=100)

    assert (too_much.status_code, again.headers.get("Idempotent-Replayed")) == (400, "true")
    assert (wrong.status_code, right.status_code) == (400, 200)


def test_key_longer_than_255_characters_is_refused(shop: Shop) -> None:
    charge = shop.charge(1000)

    assert shop.refund(charge, "k" * 256, amount=100).status_code == 400
    assert shop.refund(charge, "k" * 255, amount=100).status_code == 200


# faults: what the client sees, and what was done

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

    shop.charge(1000)


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


def test_sandbox_that_cannot_start_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SandboxError):
        start_sandbox(books=tmp_path / "books.sqlite3", fault_rate=2)

    assert "less than or equal to 1" in capfd.readouterr().err


def test_reset_empties_the_books_and_withdraws_faults(shop: Shop, sandbox: RunningSandbox) -> None:
    shop.charge(1000)
    sandbox.fault("error_before")
    sandbox.advance_clock(DAY_SECONDS)

    sandbox.reset()

    books = sandbox.books()
    assert (books.acts, books.charges, books.refunds, books.requests, sandbox.faults()) == ([], [], [], [], [])
