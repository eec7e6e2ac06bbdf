"""Keys: the same for one logical operation, different for every other."""

import time
from typing import Any
from uuid import UUID

import pytest

from durableflows.core.keys import idempotency_key, new_id, new_token

RUN = UUID("01912345-6789-7abc-8def-0123456789ab")
OTHER_RUN = UUID("01912345-6789-7abc-8def-0123456789ac")
BASE: dict[str, Any] = {
    "run_id": RUN,
    "step": "pay",
    "visit": 1,
    "item": "",
    "operation": "payments.refund",
    "issue": 1,
}


def test_key_is_the_recipe_of_the_first_release() -> None:
    """R16, S3.24: a release that changes this literal repeats every action that is under way."""
    assert idempotency_key(**BASE) == "df_b5934139c1fa2a936a345397605fb9c8acfc39ee0e80999201474c21dc483f3d"


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": OTHER_RUN},  # the same step in a second run
        {"step": "pay_back"},
        {"visit": 2},  # loop iteration 2
        {"item": "order-7"},
        {"operation": "payments.refund/second_part"},  # a second partial refund of the same amount
        {"operation": "payments.refund/undo"},  # the compensation of the same step
        {"issue": 2},  # after the verdict "confirmed not done"
        {"step": "pay1", "visit": 11},  # borders between the parts are kept
        {"step": "", "item": "pay"},
    ],
)
def test_another_operation_has_another_key(change: dict[str, object]) -> None:
    """R16: second group."""
    assert idempotency_key(**{**BASE, **change}) != idempotency_key(**BASE)


def test_one_run_id_has_one_spelling() -> None:
    keys = {idempotency_key(**{**BASE, "run_id": spelled}) for spelled in (RUN, str(RUN), str(RUN).upper(), RUN.hex)}

    assert len(keys) == 1


def test_a_run_id_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="UUID"):
        idempotency_key(**{**BASE, "run_id": "run-1"})


def test_key_is_short_and_tells_nothing() -> None:
    """R16: at most 255 characters, no personal data."""
    key = idempotency_key(**{**BASE, "item": "jane@example.com" * 50, "operation": "mail.send"})

    assert len(key) == 67
    assert "jane" not in key


def test_ids_sort_by_time_and_are_version_7() -> None:
    """S2.24."""
    before_ms = time.time_ns() // 1_000_000
    first = new_id()
    while time.time_ns() // 1_000_000 == first.int >> 80:
        pass
    second = new_id()

    assert (first.version, first.variant) == (7, "specified in RFC 4122")
    assert first < second
    assert before_ms <= first.int >> 80 <= time.time_ns() // 1_000_000
    assert len({new_id() for _ in range(1000)}) == 1000


def test_tokens_are_random_version_4() -> None:
    tokens = {new_token() for _ in range(1000)}

    assert len(tokens) == 1000
    assert {(token.version, token.variant) for token in tokens} == {(4, "specified in RFC 4122")}
