"""The structural fingerprint: changes with what runs depend on, and with nothing else."""

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from pydantic import BaseModel, Field

from durableflows import EffectCall, Facts, Money, Retry, WorkflowState, effect
from durableflows.core.approval import ApprovalSpec
from durableflows.core.definition import StepDefinition, StepKind
from durableflows.core.fingerprint import structure_of


@effect(name="mail.send", provider="mail", receipt=str)
def first(call: EffectCall) -> str:
    return ""


@effect(name="mail.send", provider="mail", receipt=str, version=2)
def second(call: EffectCall) -> str:
    return ""


def state(annotation: object, default: object = ...) -> type[WorkflowState]:
    namespace = {"__annotations__": {"a": annotation}, **({} if default is ... else {"a": default})}
    return type("Some", (WorkflowState,), namespace)


def task(name: str = "a", **options: Any) -> StepDefinition:
    return StepDefinition(**{"name": name, "kind": StepKind.TASK, **options})


def ask(approved: str, rejected: str) -> StepDefinition:
    spec = ApprovalSpec(title="", shows=Facts, permission="a.b", approved=approved, rejected=rejected)
    return StepDefinition(name="ask", kind=StepKind.APPROVAL, to=("x", "y"), approval=spec)


class Plain(WorkflowState):
    a: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([task(to=("x", "y"))], [task(to=("y", "x"))]),
        ([task("a"), task("b")], [task("b"), task("a")]),
        ([task(effects=(first, second))], [task(effects=(second, first))]),
        ([task()], [task(queue="slow", retry=Retry(attempts=1), timeout_seconds=5.0, function=print, atomic=True)]),
    ],
)
def test_what_is_not_structure(one: list[StepDefinition], other: list[StepDefinition]) -> None:
    assert structure_of(one, Plain) == structure_of(other, Plain)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([task("a")], [task("b")]),
        ([task()], [task(), task("b")]),
        ([task(to=("x",))], [task(to=("y",))]),
        ([task(end=True)], [task()]),
        ([task(start=True)], [task()]),
        ([task(join=True)], [task()]),
        ([task(on_failure="x")], [task(on_refused="x")]),
        ([task(effects=(first,))], [task(effects=(second,))]),
        ([task(effects=(first,))], [task(effects=(replace(first, transactional=True),))]),
        ([ask("x", "y")], [ask("y", "x")]),
    ],
)
def test_what_is_structure(one: list[StepDefinition], other: list[StepDefinition]) -> None:
    assert structure_of(one, Plain) != structure_of(other, Plain)


def test_where_a_clean_up_begins_is_structure_and_the_two_are_told_apart() -> None:
    steps = [task(), task("tell")]
    found = {
        structure_of(steps, Plain),
        structure_of(steps, Plain, on_failure="tell"),
        structure_of(steps, Plain, on_cancel="tell"),
        structure_of(steps, Plain, on_failure="tell", on_cancel="tell"),
    }

    assert len(found) == 4


class Red(Enum):
    RED = "red"


class Rouge(Enum):
    ROUGE = "red"


class Line(BaseModel):
    """A line."""

    sku: str


class OtherLine(BaseModel):
    """The same shape under another name and text."""

    sku: str = Field(description="stock keeping unit")


class Tree(BaseModel):
    children: list["Tree"] = []


@dataclass
class Box:
    size: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int | None, Optional[int]),  # noqa: UP045  # the older spelling is the case
        (Union[str, int], int | str),  # noqa: UP007
        (Annotated[int, Field(gt=1)], int),
        (Literal["a", "b"], Literal["b", "a"]),
        (Line, OtherLine),
        (Red, Rouge),
        (Tree, Tree),
    ],
)
def test_the_same_shape_of_state(one: object, other: object) -> None:
    assert structure_of([], state(one)) == structure_of([], state(other))


SHAPES = (
    int, str, float, bool, Decimal, timedelta, Money, Line, Tree, Box, Red, object,
    int | None, list[int], list[str], dict[str, int], tuple[int, ...], Literal["a"], Literal[1],
)  # fmt: skip


def test_other_shapes_of_state() -> None:
    assert len({structure_of([], state(shape)) for shape in SHAPES}) == len(SHAPES)


def test_a_default_a_field_and_the_schema_version_are_structure() -> None:
    """S2.15."""

    class Newer(Plain):
        schema_version = 2

    class More(Plain):
        b: int

    assert len({structure_of([], each) for each in (Plain, Newer, More, state(int, 1))}) == 4


def test_the_fingerprint_of_the_first_release() -> None:
    """A release that changes this literal parks every run as incompatible."""
    steps = [task("pay", start=True, to=("end",), effects=(first,)), ask("pay", "end"), task("end", end=True)]

    assert (
        structure_of(steps, state(Money | None, None))
        == "20f3f7fb86954a03fb007198b49be88eaff63e72e5dc930c98a593d84058478d"
    )
