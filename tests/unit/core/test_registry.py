"""The table of workflows: by name and version, one class each."""

from collections.abc import Iterator
from datetime import timedelta
from types import new_class

import pytest

from durableflows import InvalidDefinition, UnknownWorkflow, Workflow, WorkflowState, step
from durableflows.core import registry


class State(WorkflowState):
    number: int = 0


def body(self, run):
    pass


def declare(name: str, version: int = 1, *, cls: str = "", **members: object) -> type[Workflow[State]]:
    good = {"name": name, "version": version, "deadline": timedelta(1), "pay": step(start=True, end=True)(body)}
    return new_class(cls or name.title(), (Workflow[State],), {}, lambda target: target.update({**good, **members}))


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with registry.isolated():
        yield


def test_the_highest_version_is_the_default() -> None:
    tenth, second = declare("refund", 10), declare("refund", 2, cls="Refund2")

    assert registry.get("refund") is tenth.definition
    assert registry.get("refund", 2) is second.definition
    assert registry.known() == (("refund", 2), ("refund", 10))
    assert registry.definitions() == (second.definition, tenth.definition)


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("refnud", None, r"no workflow 'refnud', did you mean 'refund'\? \(known are mail, refund\)"),
        ("refund", 3, r"no version 3 of workflow 'refund' \(known are 1, 2\)"),
    ],
)
def test_an_unknown_workflow_names_the_known(name: str, version: int | None, says: str) -> None:
    declare("refund"), declare("refund", 2, cls="Refund2"), declare("mail")

    with pytest.raises(UnknownWorkflow, match=says):
        registry.get(name, version)


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(UnknownWorkflow, match="none is known: is the module imported"):
        registry.get("refund")


def test_a_class_that_is_read_again_takes_its_place() -> None:
    declare("refund")
    again = declare("refund")

    assert registry.get("refund") is again.definition


def test_the_same_version_with_other_steps_is_refused() -> None:
    """P8: no silent upgrade."""
    first = declare("refund")

    with pytest.raises(InvalidDefinition, match=r"keep the old class and declare version 2"):
        declare("refund", more=step(end=True)(body), pay=step(start=True, to="more")(body))
    assert registry.get("refund") is first.definition


def test_two_classes_with_one_name_are_refused() -> None:
    declare("refund", cls="Refund")

    with pytest.raises(InvalidDefinition, match=r"OtherRefund: workflow 'refund' version 1 is declared by .*\.Refund"):
        declare("refund", cls="OtherRefund")


def test_isolation_puts_the_known_ones_back() -> None:
    outer = declare("refund")

    with registry.isolated():
        inside = registry.known()
        declare("mail")

    assert inside == ()
    assert registry.definitions() == (outer.definition,)
