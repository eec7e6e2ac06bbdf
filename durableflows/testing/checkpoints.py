"""Plays many schedules that begin alike without playing their beginning again and again.

Until its first fault strikes a schedule is the calm run. The calm run is played once, turn by turn, with a savepoint
before each turn; each schedule goes on from the last savepoint before its first fault.
"""

from collections.abc import Iterator, Sequence

from durableflows.testing import fakes
from durableflows.testing.faults import Schedule
from durableflows.testing.play import Outcome, Simulation

DEEPEST = 40
"""Savepoints within each other; schedules whose first fault comes later share this one."""

Waiting = dict[int, list[Schedule]]


def outcomes(first: Simulation, calm: Outcome, wanted: Sequence[Schedule]) -> Iterator[Outcome]:
    """Play all wanted schedules, those whose first fault comes last first.

    first   a simulation that has not begun; calm: how it goes without a fault
    """
    waiting: Waiting = {}
    for one in wanted:
        waiting.setdefault(_turns_before(one, calm), []).append(one)
    return _from(first, 0, waiting)


def _turns_before(wanted: Schedule, calm: Outcome) -> int:
    """How many turns are played before the first fault can strike. What the calm run does not meet strikes later."""
    turns = [calm.met[fault.place, fault.nth] for fault in wanted.faults if (fault.place, fault.nth) in calm.met]
    return min(min(turns, default=1) - 1, DEEPEST)


def _from(here: Simulation, played: int, waiting: Waiting) -> Iterator[Outcome]:
    if any(turns > played for turns in waiting):
        with fakes.rolled_back():
            further = here.branch(Schedule())
            if further.advance():
                yield from _from(further, played + 1, waiting)
                waiting = {turns: schedules for turns, schedules in waiting.items() if turns <= played}
    for turns, schedules in waiting.items():
        if turns >= played:
            for one in schedules:
                yield here.branch(one).finish()
