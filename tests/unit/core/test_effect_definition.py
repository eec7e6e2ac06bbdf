"""An effect's arguments and receipts: typed, strict, and the same after JSON."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, assert_type

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from durableflows import CannotTell, EffectCall, Found, InvalidDefinition, InvalidState, Money, NotFound, effect
from durableflows.core.definition import EffectDefinition


class Receipt(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    id: str
    amount: Money

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.id} {self.amount}"


def find_refund(call: EffectCall, *, charge_id: str, amount: Money) -> Found[Receipt] | NotFound | CannotTell:
    return Found(Receipt(id=charge_id, amount=amount))


@effect(
    name="payments.refund",
    provider="payments",
    receipt=Receipt,
    lookup=find_refund,
    undo=None,
    key_window=timedelta(hours=24),
    settle_seconds=30,
    timeout_seconds=10,
    accepted=lambda receipt: receipt.id == "pending",
)
def refund_payment(call: EffectCall, *, charge_id: str, amount: Money) -> Receipt:
    return Receipt(id=charge_id, amount=amount)


@effect(name="mail.send", provider="mail", receipt=str)
def send_mail(
    call: EffectCall,
    *,
    json: dict[str, int],
    copy: Annotated[str, Field(max_length=3)] = "a",
    price: Decimal = Decimal("1.0"),
    to: list[str] | None = None,
) -> str:
    return "id"


AMOUNT = Money(9007199254740993, "JPY")


def test_an_effect_is_its_definition() -> None:
    assert_type(refund_payment, EffectDefinition[Receipt])
    assert (refund_payment.name, refund_payment.version, refund_payment.receipt) == ("payments.refund", 1, Receipt)
    assert refund_payment.resend_window == timedelta(hours=24) - timedelta(seconds=30)
    assert send_mail.resend_window is None
    assert refund_payment.accepted is not None
    assert refund_payment.accepted(Receipt(id="pending", amount=AMOUNT))


def test_arguments_come_back_the_same() -> None:
    """R18: through the ledger."""
    stored = refund_payment.dump_arguments({"charge_id": "ch_1", "amount": AMOUNT})

    assert stored == {"charge_id": "ch_1", "amount": {"amount_minor": 9007199254740993, "currency": "JPY"}}
    assert refund_payment.load_arguments(stored) == {"charge_id": "ch_1", "amount": AMOUNT}


def test_defaults_are_stored_so_that_a_later_try_sends_the_same() -> None:
    """P4: other defaults in the next release must not change what was promised."""
    stored = send_mail.dump_arguments({"json": {"a": 1}})

    assert stored == {"json": {"a": 1}, "copy": "a", "price": "1.0", "to": None}
    assert send_mail.load_arguments(stored) == {"json": {"a": 1}, "copy": "a", "price": Decimal("1.0"), "to": None}


@pytest.mark.parametrize(
    ("definition", "arguments", "path", "says"),
    [
        (refund_payment, {"charge_id": "ch_1"}, "amount", "Field required"),
        (refund_payment, {"charge_id": 1, "amount": AMOUNT}, "charge_id", "valid string"),
        (refund_payment, {"charge_id": "ch_1", "amount": 10}, "amount", "Money"),
        (refund_payment, {"charge_id": "a\0", "amount": AMOUNT}, "charge_id", r"U\+0000"),
        (refund_payment, {"charg_id": "c", "amount": AMOUNT}, "charg_id", "did you mean 'charge_id'"),
        (send_mail, {"json": {"a": "1"}}, "json.a", "valid integer"),
        (send_mail, {"json": {}, "copy": "long"}, "copy", "at most 3"),
        (send_mail, {"json": {}, "price": 1.0}, "price", "Decimal"),
    ],
)
def test_wrong_arguments_are_named(
    definition: EffectDefinition[object], arguments: dict[str, object], path: str, says: str
) -> None:
    with pytest.raises(InvalidState, match=f"effect {definition.name}: {path}.*{says}") as caught:
        definition.dump_arguments(arguments)

    assert [found for found, _ in caught.value.problems] == [path]


def test_stored_arguments_that_no_longer_fit_are_refused() -> None:
    with pytest.raises(InvalidState, match=r"effect payments\.refund: order_id: no such argument"):
        refund_payment.load_arguments({"order_id": "1"})


def test_receipt_comes_back_the_same() -> None:
    receipt = Receipt(id="re_1", amount=AMOUNT)

    stored = refund_payment.dump_receipt(receipt)

    assert stored == {"id": "re_1", "amount": {"amount_minor": 9007199254740993, "currency": "JPY"}}
    assert_type(refund_payment.load_receipt(stored), Receipt)
    assert refund_payment.load_receipt(stored) == receipt


@pytest.mark.parametrize(
    ("definition", "receipt", "stored"),
    [
        (refund_payment, Receipt(id="a\0b", amount=Money(1, "USD")), "a⟦U+0000⟧b"),
        (send_mail, "a\0b", "a⟦U+0000⟧b"),
        (send_mail, "a\ud800b", "a⟦U+D800⟧b"),
        (send_mail, "literal \\u0000", "literal \\u0000"),
    ],
)
def test_a_receipt_is_never_lost(definition: EffectDefinition[object], receipt: object, stored: str) -> None:
    """R30: what PostgreSQL refuses is stored marked."""
    data = definition.dump_receipt(receipt)

    assert (data["id"] if isinstance(data, dict) else data) == stored
    definition.load_receipt(data)


@pytest.mark.parametrize("receipt", [None, "re_1", {"id": "re_1"}, find_refund])
def test_a_receipt_of_another_type_is_refused(receipt: object) -> None:
    with pytest.raises(InvalidState, match=r"receipt of effect payments\.refund"):
        refund_payment.dump_receipt(receipt)


def test_a_dataclass_can_be_a_receipt() -> None:
    @dataclass(frozen=True)
    class Sent:
        count: int

    @effect(name="mail.count", provider="mail", receipt=Sent)
    def count(call: EffectCall) -> Sent:
        return Sent(1)

    assert count.load_receipt(count.dump_receipt(Sent(2))) == Sent(2)
    assert count.dump_arguments({}) == {}


def test_calling_an_effect_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"use run\.effect\(refund_payment, \.\.\.\) in a step"):
        refund_payment(None, charge_id="ch_1", amount=AMOUNT)


def find_other(call: EffectCall, *, charge: str) -> NotFound:
    return NotFound()


def find_anything(call: EffectCall, **arguments: object) -> NotFound:
    return NotFound()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"undo": find_refund}, "this is not an effect"),
        ({"name": "Payments Refund"}, "not of the form 'payments.refund'"),
        ({"provider": "Payments!"}, "provider 'Payments!' is not a slug"),
        ({"version": 0}, "version 0"),
        ({"settle_seconds": 14.9}, "settle_seconds=14.9 is less than 15"),
        ({"timeout_seconds": 0}, "timeout_seconds=0"),
        ({"key_window": timedelta(seconds=30)}, "key_window less settle_seconds leaves no time"),
        ({"resend_when_absent": True}, "resend_when_absent=True without lookup"),
        ({"accepted_within": timedelta(days=1)}, "accepted_within without accepted"),
        ({"lookup": find_other}, r"declare it as find_other\(call, \*, charge_id, amount\)"),
    ],
)
def test_a_wrong_effect_is_refused(options: dict[str, Any], says: str) -> None:
    declare = effect(**{"name": "payments.refund", "provider": "payments", "receipt": Receipt, **options})

    with pytest.raises(InvalidDefinition, match=says) as caught:
        declare(refund_payment.function)

    assert str(caught.value).startswith("effect ")


def test_a_lookup_may_take_any_arguments() -> None:
    declare = effect(name="payments.refund", provider="payments", receipt=Receipt, lookup=find_anything)

    assert declare(refund_payment.function).lookup is find_anything


def without_call(*, charge_id: str) -> str:
    return ""


def call_without_type(call, *, charge_id: str) -> str:
    return ""


def positional(call: EffectCall, charge_id: str) -> str:
    return ""


def untyped(call: EffectCall, *, charge_id) -> str:
    return ""


def reserved(call: EffectCall, *, operation: str) -> str:
    return ""


def variable(call: EffectCall, **rest: str) -> str:
    return ""


def not_json(call: EffectCall, *, client: EffectDefinition) -> str:
    return ""


def nothing() -> str:
    return ""


def unknown_type(call: EffectCall, *, amount: "Monney") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (without_call, "first parameter must be the call"),
        (call_without_type, "first parameter must be the call"),
        (nothing, "first parameter must be the call"),
        (positional, "charge_id must be keyword-only"),
        (variable, "rest must be keyword-only"),
        (untyped, "charge_id has no annotation"),
        (reserved, "operation is taken by run.effect itself"),
        (not_json, "no JSON form"),
        (unknown_type, "Monney.*import it at run time"),
    ],
)
def test_a_wrong_function_is_refused(function, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"effect x.y: .*{says}"):
        effect(name="x.y", provider="x", receipt=str)(function)
