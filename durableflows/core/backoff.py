"""How long to wait before the next attempt: exponential, jittered, never zero, never shorter than asked for.

Source: specification S1.8, S3.7; R11.
"""

from random import Random

from durableflows.core.definition import Retry
from durableflows.core.retry_after import LONGEST_SECONDS

SHORTEST_SECONDS = 0.1


def longest_seconds(retry: Retry) -> float:
    """Seconds that all delays between the declared attempts may take together, when nobody asks for longer ones."""
    total, full = 0.0, retry.base_seconds
    for done in range(1, retry.attempts):
        if full >= retry.cap_seconds:
            return total + (retry.attempts - done) * retry.cap_seconds
        total += min(full * 1.5, retry.cap_seconds)
        full *= 2
    return total


def delay_seconds(attempt: int, retry: Retry, rng: Random, *, retry_after_seconds: float | None = None) -> float:
    """Seconds to wait after attempt number `attempt` (1 is the first).

    Drawn between a half and one and a half of the exponential delay, and never above the cap: many steps that fail in
    one second come back over several. What the provider asked for is a floor; jitter only adds to it.
    """
    exponent = min(max(attempt, 1) - 1, 60)
    full = min(retry.cap_seconds, retry.base_seconds * 2.0**exponent)
    own = max(SHORTEST_SECONDS, full / 2 + rng.random() * (min(full * 1.5, retry.cap_seconds) - full / 2))
    if retry_after_seconds is None or retry_after_seconds <= 0:
        return own
    return min(LONGEST_SECONDS, max(own, retry_after_seconds + retry.base_seconds * rng.random()))
