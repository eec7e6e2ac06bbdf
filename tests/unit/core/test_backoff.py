"""How long to wait: exponential, jittered, never zero, never shorter than asked for (S3.7, R11)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableflows.core.backoff import SHORTEST_SECONDS, delay_seconds
from durableflows.core.definition import Retry
from durableflows.core.retry_after import LONGEST_SECONDS

RETRY = Retry(attempts=10, base_seconds=2, cap_seconds=60)


class Fixed(Random):
    """A source that always draws the same."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize(
    ("attempt", "draw", "wanted"),
    [
        (1, 0.0, 1.0),
        (1, 1.0, 3.0),
        (2, 0.0, 2.0),
        (3, 0.5, 8.0),
        (5, 1.0, 48.0),
        (6, 1.0, 60.0),
        (60, 1.0, 60.0),
        (10**9, 0.0, 30.0),
        (0, 1.0, 3.0),
        (-3, 1.0, 3.0),
    ],
)
def test_the_delay_doubles_up_to_its_cap(attempt: int, draw: float, wanted: float):
    """S1.8, B.4."""
    assert delay_seconds(attempt, RETRY, Fixed(draw)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("asked", "draw", "wanted"),
    [
        (None, 1.0, 3.0),
        (0, 1.0, 3.0),
        (-5, 1.0, 3.0),
        (1, 1.0, 3.0),
        (120, 0.0, 120.0),
        (120, 1.0, 122.0),
        (10**12, 0.5, LONGEST_SECONDS),
    ],
)
def test_what_the_provider_asks_for_is_a_floor(asked: float | None, draw: float, wanted: float):
    assert delay_seconds(1, RETRY, Fixed(draw), retry_after_seconds=asked) == pytest.approx(wanted)


@given(
    st.integers(-5, 10**6),
    st.floats(0.001, 1000),
    st.floats(0, 10_000),
    st.none() | st.floats(-10, 10**7),
    st.integers(),
)
def test_bounds(attempt: int, base: float, more: float, asked: float | None, seed: int):
    retry = Retry(base_seconds=base, cap_seconds=base + more)

    delay = delay_seconds(attempt, retry, Random(seed), retry_after_seconds=asked)

    assert delay >= SHORTEST_SECONDS
    assert delay <= max(SHORTEST_SECONDS, retry.cap_seconds, (asked or 0) + base)
    if asked is not None and 0 < asked <= LONGEST_SECONDS:
        assert delay >= asked


def test_many_that_fail_together_do_not_come_back_together():
    """R11: 200 steps with the default settings, at their first failure and at later ones."""
    rng = Random(7)
    for attempt, seconds in ((1, 1.8), (2, 3.6), (4, 14), (9, 140)):
        delays = sorted(delay_seconds(attempt, Retry(), rng) for _ in range(200))

        assert delays[-1] - delays[0] > seconds
        assert max(sum(at <= other < at + seconds / 9 for other in delays) for at in delays) < 50
