"""Money: exact, strict, and never two currencies at once."""

import decimal
import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from durableflows import InvalidState, Money
from durableflows.core.currencies import EXPONENTS
from durableflows.core.money import LARGEST_MINOR


class Invoice(BaseModel):
    model_config = ConfigDict(strict=True)
    total: Money


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("5800", "JPY", 5800),
        ("10.00", "USD", 1000),
        ("10", "USD", 1000),
        ("10.5", "USD", 1050),
        ("1.234", "KWD", 1234),
        ("1234567.89", "USD", 123456789),
        ("90071992547409.93", "USD", 9007199254740993),
        ("0.0001", "CLF", 1),
        ("0", "EUR", 0),
        ("007.00", "USD", 700),
    ],
)
def test_parse_gives_minor_units(text: str, currency: str, minor: int) -> None:
    """R18: what the gateway gets."""
    assert Money.parse(text, currency) == Money(minor, currency)


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("10.005", "USD"),  # more decimals than the currency has, also when they are zeros
        ("10.000", "USD"),
        ("10.5", "JPY"),
        ("10.0", "JPY"),
        ("1,000.00", "USD"),
        ("1.000,00", "EUR"),
        ("10,50", "EUR"),
        ("1 000", "USD"),
        ("1_000", "USD"),
        ("1e3", "USD"),
        ("NaN", "USD"),
        ("Infinity", "USD"),
        ("", "USD"),
        (" 10", "USD"),
        ("10\n", "USD"),
        ("10.", "USD"),
        (".5", "USD"),
        ("-10", "USD"),
        ("+10", "USD"),
        ("$10", "USD"),
        ("\u0661\u0660", "USD"),  # digits, but not 0-9
        ("10.00", "usd"),
        ("10.00", "XXX"),
        ("99999999999999999999", "USD"),
        ("9223372036854775808", "JPY"),
    ],
)
def test_parse_refuses(text: str, currency: str) -> None:
    """R18: 10.005 USD and 10.5 JPY are refused at entry, and nothing is ever rounded or guessed."""
    with pytest.raises(InvalidState):
        Money.parse(text, currency)


def test_parse_takes_a_sign_only_when_asked() -> None:
    assert Money.parse("-10.50", "USD", allow_negative=True) == Money(-1050, "USD")
    assert Money.parse("+10.50", "USD", allow_negative=True) == Money(1050, "USD")


@pytest.mark.parametrize("text", [10, 10.0, None, b"10", decimal.Decimal(10)])
def test_parse_reads_text_only(text: str) -> None:
    with pytest.raises(InvalidState):
        Money.parse(text, "USD")


@pytest.mark.parametrize(
    ("money", "text", "display"),
    [
        (Money(1000, "USD"), "USD 10.00", "$10.00"),
        (Money(123456789, "USD"), "USD 1234567.89", "$1,234,567.89"),
        (Money(-300, "EUR"), "EUR -3.00", "-€3.00"),
        (Money(5800, "JPY"), "JPY 5800", "¥5,800"),
        (Money(1234, "KWD"), "KWD 1.234", "KWD 1.234"),
        (Money(1, "CLF"), "CLF 0.0001", "CLF 0.0001"),
        (Money(0, "USD"), "USD 0.00", "$0.00"),
        (Money(9007199254740993, "USD"), "USD 90071992547409.93", "$90,071,992,547,409.93"),
    ],
)
def test_text_forms(money: Money, text: str, display: str) -> None:
    assert (str(money), money.display) == (text, display)


def test_amount_is_exact_whatever_the_decimal_context() -> None:
    with decimal.localcontext() as context:
        context.prec = 3

        assert Money(9007199254740993, "USD").amount == decimal.Decimal("90071992547409.93")


def test_arithmetic_is_exact() -> None:
    """R18: 0.10 + 0.20."""
    assert Money(10, "USD") + Money(20, "USD") == Money.parse("0.30", "USD")
    assert Money(30, "USD") - Money(50, "USD") == Money(-20, "USD")
    assert Money(30, "USD") * 3 == 3 * Money(30, "USD") == Money(90, "USD")
    assert -Money(5, "USD") == Money(-5, "USD")
    assert abs(Money(-5, "USD")) == Money(5, "USD")
    assert sum([Money(1, "USD"), Money(2, "USD")], Money.zero("USD")) == Money(3, "USD")


def test_order_and_questions() -> None:
    small, large = Money(1, "USD"), Money(2, "USD")

    assert small < large
    assert small <= small
    assert large > small
    assert large >= large
    assert max(small, large) is large
    assert (Money.zero("USD").is_zero, small.is_zero) == (True, False)
    assert (small.is_positive, Money.zero("USD").is_positive, (-small).is_positive) == (True, False, False)


@pytest.mark.parametrize("operator", ["__add__", "__sub__", "__lt__", "__le__", "__gt__", "__ge__"])
def test_two_currencies_never_meet(operator: str) -> None:
    with pytest.raises(InvalidState, match="two currencies"):
        getattr(Money(1, "USD"), operator)(Money(1, "EUR"))


def test_equal_numbers_of_two_currencies_are_not_equal() -> None:
    assert Money(1, "USD") != Money(1, "EUR")
    assert len({Money(1, "USD"), Money(1, "USD"), Money(1, "EUR")}) == 2


@pytest.mark.parametrize("other", [1, 1.0, "1", None, True])
def test_bare_values_are_refused(other: Any) -> None:
    money = Money(1, "USD")

    for calculate in (lambda: money + other, lambda: money - other, lambda: money < other):
        with pytest.raises(TypeError):
            calculate()
    assert money != other


@pytest.mark.parametrize("count", [0.5, True, decimal.Decimal(2), "2"])
def test_only_whole_counts_multiply(count: Any) -> None:
    with pytest.raises(TypeError):
        Money(1, "USD") * count


@pytest.mark.parametrize("minor", [1.0, True, "1", None, LARGEST_MINOR + 1, -LARGEST_MINOR - 1])
def test_amount_is_a_whole_number_that_a_column_holds(minor: Any) -> None:
    with pytest.raises(InvalidState):
        Money(minor, "USD")


def test_unknown_currency_is_named_with_a_suggestion() -> None:
    with pytest.raises(InvalidState, match="did you mean 'USD'"):
        Money(1, "usd")


@pytest.mark.parametrize(
    "money", [Money(5800, "JPY"), Money(1000, "USD"), Money(1234, "KWD"), Money(9007199254740993, "USD")], ids=str
)
def test_json_keeps_the_value(money: Money) -> None:
    """R18: exact through real serialisation, also above 2**53."""
    text = Invoice(total=money).model_dump_json()

    assert json.loads(text) == {"total": {"amount_minor": money.amount_minor, "currency": money.currency}}
    assert Invoice.model_validate_json(text).total == money
    assert pickle.loads(pickle.dumps(money)) == money


def test_a_mapping_is_read_in_python_too() -> None:
    assert Invoice.model_validate({"total": {"amount_minor": 1, "currency": "USD"}}).total == Money(1, "USD")


@pytest.mark.parametrize(
    "total",
    [
        '{"amount_minor": 10.0, "currency": "USD"}',
        '{"amount_minor": true, "currency": "USD"}',
        '{"amount_minor": "10", "currency": "USD"}',
        '{"amount_minor": 10, "currency": "usd"}',
        '{"amount_minor": 10}',
        '{"amount_minor": 10, "currency": "USD", "extra": 1}',
        '{"amount_minor": 9223372036854775808, "currency": "USD"}',
        "10",
        '"10.00"',
        "null",
    ],
)
def test_other_json_is_refused(total: str) -> None:
    with pytest.raises(ValidationError):
        Invoice.model_validate_json(f'{{"total": {total}}}')


def test_a_wrong_value_is_one_problem_at_its_path() -> None:
    with pytest.raises(ValidationError) as caught:
        Invoice.model_validate({"total": 10})

    assert [(found["loc"], found["type"]) for found in caught.value.errors()] == [(("total",), "money")]


def test_json_schema_says_the_form() -> None:
    schema = Invoice.model_json_schema()["properties"]["total"]

    assert schema["required"] == ["amount_minor", "currency"]
    assert schema["additionalProperties"] is False


def test_currency_table() -> None:
    assert {code: EXPONENTS[code] for code in ("USD", "JPY", "KWD", "CLF")} == {"USD": 2, "JPY": 0, "KWD": 3, "CLF": 4}
    assert all(len(code) == 3 and code.isupper() for code in EXPONENTS)
    assert len(EXPONENTS) == 165
