"""The sandbox answers as Stripe does: objects, refusals, keys."""

import threading

import httpx
import pytest

from customer_ops.sandbox import currencies
from customer_ops.sandbox.answers import ApiError
from customer_ops.sandbox.control import RunningSandbox
from tests.support.shop import Shop

DAY_SECONDS = 24 * 3600


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
