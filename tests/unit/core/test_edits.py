"""What an approver may change while approving: a form, what is typed into it, and its bounds."""

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field

from durableflows import InvalidState, Money
from durableflows.core import edits


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


class Changes(BaseModel):
    """One of each kind."""

    amount: Money = Field(title="Amount to pay", description="At most what was asked for")
    units: int = Field(default=3, ge=1)
    share: Decimal | None = None
    on: date | None = None
    why: Annotated[str, Field(max_length=20)] = ""
    way: Literal["card", "bank"] = "card"
    speed: Speed = Speed.SLOW
    notify: bool = True


USD_100 = {"amount_minor": 10_000, "currency": "USD"}
USD_80 = {"amount_minor": 8_000, "currency": "USD"}
BINDING: dict[str, Any] = {"amount": USD_100, "units": 5, "order": "7"}
WHOLE = {
    "amount": USD_100,
    "units": 5,
    "share": None,
    "on": None,
    "why": "",
    "way": "card",
    "speed": "slow",
    "notify": True,
}


class Lower(BaseModel):
    amount: Money


class Exact(BaseModel):
    """Numbers that must be there."""

    amount: Money
    units: int
    share: Decimal


def test_a_form_begins_with_what_was_asked() -> None:
    form = {field.name: field for field in edits.form(Changes, BINDING)}

    assert {name: field.kind for name, field in form.items()} == {
        "amount": "money",
        "units": "integer",
        "share": "decimal",
        "on": "date",
        "why": "text",
        "way": "choice",
        "speed": "choice",
        "notify": "yes or no",
    }
    assert {name: field.now for name, field in form.items()} == WHOLE
    assert (form["amount"].most, form["units"].most, form["share"].most) == (USD_100, 5, None)
    assert (form["amount"].label, form["amount"].help) == ("Amount to pay", "At most what was asked for")
    assert (form["why"].longest, form["way"].choices, form["speed"].choices) == (20, ("card", "bank"), ("slow", "fast"))
    assert edits.load(edits.dump([*form.values()])) == [*form.values()]


def test_nothing_changed_is_no_edit() -> None:
    assert edits.read(Changes, {}, BINDING) == {}
    assert edits.read(Changes, {"amount": Money(10_000, "USD"), "why": ""}, BINDING) == {}


def test_what_is_changed_is_kept_whole_and_exact() -> None:
    given = edits.read(
        Changes, {"amount": Money(8_000, "USD"), "share": Decimal("0.10"), "on": date(2026, 2, 1)}, BINDING
    )

    assert given == {**WHOLE, "amount": USD_80, "share": "0.10", "on": "2026-02-01"}
    value = edits.value_of(Changes, given)
    assert (value.amount, value.share, value.on) == (Money(8_000, "USD"), Decimal("0.10"), date(2026, 2, 1))
    assert edits.applied(BINDING, given) == {"amount": USD_80, "units": 5, "order": "7"}


@pytest.mark.parametrize(("text", "means"), [("yes", True), ("on", True), ("No", False), ("off", False), ("", False)])
def test_a_yes_or_no_is_read_as_it_is_said(text: str, means: bool) -> None:
    assert edits.parse(edits.form(Changes, BINDING), {"notify": text})["notify"] is means


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"amount": Money(10_001, "USD")}, "at most USD 100.00, as it was asked"),
        ({"amount": Money(0, "USD")}, "more than nothing"),
        ({"amount": Money(-5, "USD")}, "more than nothing"),
        ({"amount": Money(5, "EUR")}, "must be in USD"),
        ({"amount": 80}, "amount"),
        ({"amount": {"amount_minor": 80.5, "currency": "USD"}}, "amount"),
        ({"amount": None}, "amount"),
        ({"units": 6}, "at most 5"),
        ({"units": 0}, "greater than or equal to 1"),
        ({"units": "4"}, "units"),
        ({"units": True}, "units"),
        ({"why": "x" * 21}, "at most 20 characters"),
        ({"why": "a\0b"}, "cannot be stored"),
        ({"way": "cash"}, "way"),
        ({"share": float("nan")}, "edits"),
        ({"amuont": Money(5, "USD")}, "is no field of the form, did you mean 'amount'"),
        ({"order": "8"}, "is no field of the form"),
    ],
)
def test_what_is_out_of_bounds_is_refused(given: dict[str, object], says: str) -> None:
    """A lower amount may be approved; a higher one never without a new question."""
    with pytest.raises(InvalidState, match=says):
        edits.read(Changes, given, BINDING)


def test_money_that_nothing_bounds_is_no_edit() -> None:
    """Anything could be approved then."""
    for binding in ({}, {"amount": 100}, {"amount": None}):
        with pytest.raises(InvalidState, match="no binding fact 'amount' is"):
            edits.form(Lower, cast("Any", binding))


@pytest.mark.parametrize("value", [Decimal("-0"), Decimal("-0.1"), "-0.00"])
def test_a_number_of_less_than_nothing_is_out_of_bounds_however_it_is_written(value: object) -> None:
    with pytest.raises(InvalidState, match="less than nothing"):
        edits.read(Changes, {"share": value}, {**BINDING, "share": "2"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("units", text) for text in ("\u0661", "1_0", "1e0", "0x1", "1 0", "--1", "1.0", "\u00b2", "1" * 41)),
        *(
            ("share", text)
            for text in ("\u0661", "1_0.5", "1e0", "1E-9", "0x1", "inf", "sNaN", ".", "", "1.2.3", "0." + "0" * 41)
        ),
        *(("amount", text) for text in ("\u0661", "1_0", "1e1", "-0", "+5", "NaN", "9" * 30)),
    ],
)
def test_a_number_is_typed_in_digits(name: str, text: str) -> None:
    """R18: nobody sees another number than the one that is read."""
    form = edits.form(Exact, {**BINDING, "share": "2"})

    with pytest.raises(InvalidState) as caught:
        edits.parse(form, {name: text})

    assert [problem for problem, _ in caught.value.problems] == [name]


def test_what_is_typed_is_read_exactly() -> None:
    form = edits.form(Changes, BINDING)
    typed = {"amount": " 80.00 ", "units": "4", "share": "0.1", "on": "", "why": "late", "way": "bank", "speed": "fast"}

    given = edits.parse(form, typed)

    assert given == {
        "amount": USD_80,
        "units": 4,
        "share": "0.1",
        "on": None,
        "why": "late",
        "way": "bank",
        "speed": "fast",
        "notify": False,
    }
    assert edits.read(Changes, given, BINDING)["notify"] is False


def test_all_that_is_typed_wrongly_is_said_at_once_by_field() -> None:
    form = edits.form(Changes, BINDING)

    with pytest.raises(InvalidState) as caught:
        edits.parse(form, {"amount": "8O,5", "units": "many", "share": "NaN", "way": "cash", "notify": "on"})

    assert sorted(name for name, _ in caught.value.problems) == ["amount", "share", "units", "way"]


class Deep(BaseModel):
    inside: Lower


class Empty(BaseModel):
    pass


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (dict, "a pydantic model"),
        ("amount", "a pydantic model"),
        (Empty, "has no fields"),
        (Deep, "no form can be made of its type"),
        (Changes, ""),
    ],
)
def test_a_schema_that_makes_no_form_is_refused(schema: object, says: str) -> None:
    problems = " ".join(edits.schema_problems(schema))

    assert says in problems
    assert bool(problems) is bool(says)
