"""Guards that one schedule of a simulation finds: some are dropped in each run of the tests, by `make guards` all."""

import pytest

from tests.guards.listed import BY_NAME, changes_of
from tests.guards.runner import IN_MEMORY, judge, judge_all

QUICK = [
    "a send is charged when it is reserved",
    "the key is made of no attempt",
    "a lease past its time is void",
    "what was sent and not claimed is sent again",
]


@pytest.mark.parametrize("name", QUICK)
def test_a_guard_that_is_dropped_is_found_by_one_schedule(name: str):
    guard = BY_NAME[name]

    verdict = judge(guard, changes_of(guard), IN_MEMORY)

    assert verdict.is_red, verdict.why


def test_without_a_loss_the_same_schedules_find_nothing():
    verdict = judge_all([BY_NAME[name].found_by for name in QUICK], IN_MEMORY)

    assert (verdict.is_red, verdict.why) == (False, "")
