"""Makes a failing schedule shorter while it still fails: what is left is what it takes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from durableflows.testing.faults import Schedule, schedule

MOST_TRIES = 30


def shrink(failing: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The shortest schedule found that still fails, after at most MOST_TRIES more plays."""
    tries = 0
    while True:
        for simpler in _simpler(failing):
            tries += 1
            if tries > MOST_TRIES:
                return failing
            if fails(simpler):
                failing = simpler
                break
        else:
            return failing


def _simpler(given: Schedule) -> Iterator[Schedule]:
    """One fault less; then one fault at an earlier time."""
    for fault in given.faults:
        yield given.without(fault)
    for fault in given.faults:
        for nth in range(1, fault.nth):
            earlier = replace(fault, nth=nth)
            yield schedule(earlier if one is fault else one for one in given.faults)
