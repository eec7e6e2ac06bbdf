"""What people type as an amount becomes exact Money or is refused; nothing is rounded (R18)."""

import pytest
from django import forms

from durableflows import Money
from durableflows.forms import MoneyFormField


def form_of(text: str, currency: str | None = "USD", *, allow_zero: bool = False, required: bool = True) -> forms.Form:
    """A form with one amount, filled in."""

    class Sent(forms.Form):
        amount = MoneyFormField(currency=currency, allow_zero=allow_zero, required=required)

    return Sent({"amount": text})


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("10", "USD", 1000),
        ("10.00", "USD", 1000),
        (" 10.0 ", "USD", 1000),
        ("0.30", "USD", 30),
        ("5800", "JPY", 5800),
        ("1.234", "KWD", 1234),
        ("1234567.89", "EUR", 123456789),
        ("90071992547409.93", "USD", 9007199254740993),
        ("USD 10.00", "USD", 1000),
    ],
)
def test_an_exact_amount_is_taken_as_it_was_typed(text: str, currency: str, minor: int) -> None:
    form = form_of(text, currency)

    assert form.is_valid(), form.errors
    assert form.cleaned_data["amount"] == Money(minor, currency)


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "nan", "Infinity", "-inf", "1e3", "1E+2", "0x10"),
        *("-5", "-0.01", "+5", "0", "0.00"),
        *("10.005", "10.0000", "1,000.00", "1.000,00", "1 000", "1_000", "10.", ".5", "$10"),
        *("ten", "", "   ", "10 USD", "XXX 10.00", "usd 10.00", "DOGE 1", "EUR 10.00"),
        *("\u0663", "\uff11\uff10", "10\u200b", "10\x00", "<b>10</b>", "9" * 30, "9223372036854775808"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    form = form_of(text)

    assert not form.is_valid()
    assert str(form.errors["amount"][0]).endswith(".")


def test_yen_have_no_decimals() -> None:
    assert form_of("10.5", "JPY").errors["amount"] == ["'10.5' has 1 decimals, JPY has 0: nothing is rounded here."]


def test_a_field_without_a_currency_wants_one_in_the_text() -> None:
    assert form_of("KWD 1.234", None).is_valid()
    assert form_of("10.00", None).errors["amount"] == ["Name the currency before the amount, like USD 10.00."]
    assert not form_of("XYZ 10.00", None).is_valid()


def test_nothing_is_taken_only_where_it_is_allowed() -> None:
    empty = form_of("", required=False)

    assert form_of("0", allow_zero=True).is_valid()
    assert empty.is_valid()
    assert empty.cleaned_data["amount"] is None


def test_an_amount_is_shown_as_it_would_be_typed() -> None:
    with_currency = MoneyFormField(currency="USD")

    assert with_currency.prepare_value(Money(1000, "USD")) == "10.00"
    assert MoneyFormField().prepare_value(Money(5800, "JPY")) == "JPY 5800"
    assert with_currency.prepare_value("typed <b>") == "typed <b>"


def test_what_was_typed_comes_back_escaped() -> None:
    html = str(form_of('"><script>alert(1)</script>'))

    assert "<script>" not in html


def test_the_same_amount_typed_otherwise_is_no_change() -> None:
    field = MoneyFormField(currency="USD")

    assert not field.has_changed(Money(1000, "USD"), "10")
    assert field.has_changed(Money(1000, "USD"), "11")
    assert field.has_changed(Money(1000, "USD"), "eleven")
