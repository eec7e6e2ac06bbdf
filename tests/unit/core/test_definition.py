"""Values of a definition that carry a rule of their own."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from durableflows import Escalate, Facts, InvalidState, Money
from durableflows.core.approval import ApprovalSpec
from durableflows.core.payload import sha256


def test_facts_are_written_as_json() -> None:
    facts = Facts(
        binding={"amount": Money(9007199254740993, "USD"), "limit": Decimal("1.10"), "lines": [1, None]},
        context={"at": datetime(2026, 1, 2, tzinfo=UTC), "id": UUID(int=1), "wait": timedelta(hours=1)},
    )

    assert facts.dump() == {
        "binding": {
            "amount": {"amount_minor": 9007199254740993, "currency": "USD"},
            "limit": "1.10",
            "lines": [1, None],
        },
        "context": {"at": "2026-01-02T00:00:00Z", "id": "00000000-0000-0000-0000-000000000001", "wait": "PT1H"},
    }
    assert sha256(facts.dump()) == sha256(Facts(context=dict(facts.context), binding=dict(facts.binding)).dump())


def test_text_that_cannot_be_stored_is_marked_so_that_somebody_is_asked() -> None:
    """R30."""
    asked = Facts(binding={"to": "a\0b\ud800", "a\0": 1}, context={"\ud800": ["\ud800"]})

    assert asked.dump() == {
        "binding": {"to": "a⟦U+0000⟧b⟦U+D800⟧", "a⟦U+0000⟧": 1},
        "context": {"⟦U+D800⟧": ["⟦U+D800⟧"]},
    }


@pytest.mark.parametrize("value", [object(), float("nan"), {"deep": [float("inf")]}, {1: object()}])
def test_facts_that_have_no_json_form_are_refused(value: object) -> None:
    with pytest.raises(InvalidState, match="binding facts"):
        Facts(binding={"amount": value}).dump()


@pytest.mark.parametrize(
    ("on_expiry", "permissions"),
    [
        ("deny", []),
        (Escalate("a.one"), ["a.one"]),
        (Escalate("a.one", then="deny"), ["a.one"]),
        (Escalate("a.one", then=Escalate("a.two", expires=timedelta(days=1))), ["a.one", "a.two"]),
    ],
)
def test_ladder(on_expiry: Any, permissions: list[str]) -> None:
    """S1.20, S3.39."""
    spec = ApprovalSpec(title="", shows=Facts, permission="a.b", approved="x", rejected="y", on_expiry=on_expiry)

    assert [rung.permission for rung in spec.ladder()] == permissions
