"""State: strict, whole, and the same after JSON."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretBytes, SecretStr, ValidationError, computed_field

from durableflows import InvalidDefinition, InvalidState, Money, WorkflowState
from durableflows.core.state import dump, load


class Mood(StrEnum):
    GOOD = "good"


class Line(BaseModel):
    sku: str
    count: int


class Order(WorkflowState):
    number: int
    amount: Money | None = None
    price: Decimal = Decimal("1.10")
    ratio: float = 0.0
    lines: list[Line] = []
    ratios: list[float] = []
    tags: dict[str, float] = {}
    at: datetime | None = None
    day: date | None = None
    span: timedelta | None = None
    uid: UUID | None = None
    mood: Mood = Mood.GOOD
    pair: tuple[int, str] = (1, "a")
    names: frozenset[str] = frozenset()
    anything: object = None
    text: str = ""


FULL = Order(
    number=9007199254740993,
    amount=Money(9007199254740993, "JPY"),
    price=Decimal("10.10"),
    ratio=0.1,
    lines=[Line(sku="a", count=2)],
    ratios=[1.0, 1e16],
    tags={"x": 0.5},
    at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    day=date(2026, 1, 2),
    span=timedelta(hours=1, microseconds=1),
    uid=UUID("01912345-6789-7abc-8def-0123456789ab"),
    pair=(7, "b"),
    names=frozenset({"one"}),
    anything={"a": [1, None, "x"]},
    text="😀 \\u0000",
)


def test_state_comes_back_the_same() -> None:
    """R18 and S2.2: 9007199254740993 minor units, decimals and dates survive the checkpoint."""
    data = dump(FULL)

    assert data["amount"] == {"amount_minor": 9007199254740993, "currency": "JPY"}
    assert data["price"] == "10.10"
    assert load(Order, data) == FULL


def test_numbers_come_back_from_jsonb_spelling() -> None:
    """jsonb gives 1e16 back as an integer; a float field takes it."""
    assert load(Order, {**dump(FULL), "ratios": [1, 10000000000000000]}).ratios == [1.0, 1e16]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"number": "1"}, "number"),
        ({"number": 1.0}, "number"),
        ({"number": True}, "number"),
        ({"unknown": 1}, "unknown"),
        ({"amount": {"amount_minor": 1.5, "currency": "USD"}}, "amount.amount_minor"),
        ({"lines": [{"sku": "a", "count": "x"}]}, "lines.0.count"),
        ({"ratio": float("nan")}, "ratio"),
        ({"ratios": [1.0, float("inf")]}, "ratios.1"),
        ({"tags": {"x": float("nan")}}, "tags.x"),
        ({"price": "NaN"}, "price"),
        ({"mood": "bad"}, "mood"),
    ],
)
def test_load_refuses_with_the_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidState, match="Order: ") as caught:
        load(Order, {**dump(Order(number=1)), **change})

    assert [found for found, _ in caught.value.problems] == [path]


def test_load_names_all_problems() -> None:
    with pytest.raises(InvalidState) as caught:
        load(Order, {"number": "1", "ratio": "x", "extra": 1})

    assert [path for path, _ in caught.value.problems] == ["number", "ratio", "extra"]


def test_errors_do_not_show_values() -> None:
    with pytest.raises(InvalidState) as caught:
        load(Order, {"number": "SECRET"})

    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", "1"), ("number", 1.0), ("ratio", float("nan")), ("price", Decimal("Infinity")), ("mood", "good")],
)
def test_assignment_is_checked(field: str, value: object) -> None:
    order = Order(number=1)

    with pytest.raises(ValidationError):
        setattr(order, field, value)
    assert getattr(order, field) == getattr(Order(number=1), field)


def test_unknown_attribute_is_refused() -> None:
    order = Order(number=1)

    with pytest.raises(ValidationError):
        order.numbr = 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("ratios", [float("nan")], "ratios.0"),
        ("ratios", ["x"], "ratios.0"),
        ("lines", [Line.model_construct(sku=1, count=2)], ""),
        ("anything", object(), ""),
        ("anything", {"a": float("nan")}, ""),
        ("text", "a\0b", "text"),
        ("anything", {"deep": ["\0"]}, "anything.deep.0"),
        ("anything", {"\0": 1}, "anything"),
        ("anything", "\ud800", "anything"),
    ],
)
def test_dump_checks_what_was_changed_in_place(field: str, value: object, path: str) -> None:
    """R30: input with U+0000 is refused with a field error; and a list that was appended to is checked again."""
    order = Order(number=1)
    order.__dict__[field] = value

    with pytest.raises(InvalidState) as caught:
        dump(order)

    assert [found for found, _ in caught.value.problems] == [path]


@pytest.mark.parametrize("value", [Decimal("1.0"), date(2026, 1, 1), (1, 2), Money(1, "USD")])
def test_dump_refuses_what_would_come_back_as_something_else(value: object) -> None:
    order = Order(number=1, anything=value)

    with pytest.raises(InvalidState, match="another value"):
        dump(order)


def test_aliases_and_computed_fields() -> None:
    class Aliased(WorkflowState):
        inner: int = Field(alias="outer")

    class Computed(WorkflowState):
        width: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def area(self) -> int:
            return self.width**2

    assert load(Aliased, dump(Aliased(outer=1))).inner == 1
    assert dump(Computed(width=2)) == {"width": 2}


def test_secrets_are_refused_when_the_class_is_written() -> None:
    """S2.23, P14."""

    @dataclass
    class Box:
        inner: list[SecretBytes]

    class Model(BaseModel):
        secret: SecretStr

    for annotation in (SecretStr, SecretBytes | None, dict[str, list[SecretStr]], Box, Model, list[Model]):
        with pytest.raises(InvalidDefinition, match=r"Leaky\.secret is a secret.*reference"):
            type("Leaky", (WorkflowState,), {"__annotations__": {"secret": annotation}, "__qualname__": "Leaky"})


def test_schema_version_is_no_field() -> None:
    assert Order.schema_version == 1
    assert "schema_version" not in dump(Order(number=1))
