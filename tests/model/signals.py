"""Signals to a run: sent twice, early, late, at the moment of a time-out, and again after a redrive.

Each of two senders sends one signal, as often as it likes, under a dedup key of its own. A run listens once, or goes
elsewhere when nothing comes in time, and may be sent back. Source: services/{signals,sweeps}.py, arrivals.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.search import DO, HUMAN, TIME, Move

BEFORE, WAITS, HEARD, ELSE, FAILED, ENDED = "before", "waits", "heard", "else", "failed", "ended"


@dataclass(frozen=True)
class Rules:
    """What the protocol chooses; the defaults are what the code does."""

    keeps_early: bool = True  # one that comes before the wait is kept
    drops_repeats: bool = True  # the same dedup key again is the same signal
    uses_once: bool = True  # a signal that a step has used is not given to another
    locks_run: bool = True  # arrival and wait, time-out and signal see each other: the run's lock
    gives_again: bool = True  # a visit that is done again gets its signal again
    frees: bool = True  # a visit that was gone back before has used none
    sends: int = 2
    redrives: int = 2


class Stored(NamedTuple):
    """A signal's row. `used_by`: the visit that got it, -1 none."""

    sender: int
    used_by: int = -1


class State(NamedTuple):
    """`at`: where the run is. `visit`: the one of two that it waits for. `heard`: the signals that visits have got."""

    at: str = BEFORE
    visit: int = 0
    stored: tuple[Stored, ...] = ()
    heard: tuple[int, int] = (-1, -1)  # by visit: the sender of what it got
    rewound: tuple[bool, bool] = (False, False)
    sent: tuple[int, int] = (0, 0)
    looked: bool = False  # without the lock: the wait has looked for early signals, and does not stand yet
    redrives: int = 0


class Signals:
    """The model. The run waits for `go` and then does visit 0 or 1; a redrive may lead it to the other one."""

    def __init__(self, rules: Rules) -> None:
        self.r = rules

    def start(self) -> State:
        """It does not wait yet."""
        return State()

    def has_ended(self, s: State) -> bool:
        """It has done what it listened for, or has failed."""
        return s.at in (ENDED, FAILED)

    def rests(self, s: State) -> bool:
        """It waits for a signal that nobody has sent."""
        return s.at == WAITS and not self._all_kept(s)

    def plain(self, s: State) -> State:
        """As it is."""
        return s

    def _all_kept(self, s: State) -> bool:
        """Has somebody sent a signal that no visit which counts has used?"""
        used = {sender for n, sender in enumerate(s.heard) if not s.rewound[n] and sender >= 0}
        return any(s.sent[sender] and sender not in used for sender in (0, 1))

    def broken(self, s: State) -> str:
        """Invariants of a state."""
        got = [sender for n, sender in enumerate(s.heard) if sender >= 0 and not s.rewound[n]]
        if len(got) > len(set(got)):
            return "S1 a signal is used twice"
        if s.at == WAITS and self._all_kept(s):
            return "S2 a signal is lost: a run waits for what was sent"
        return ""

    def moves(self, s: State) -> Iterator[Move[State]]:
        """Senders, the run, the clock, an operator."""
        if s.at != ENDED:
            for sender in (0, 1):
                if s.sent[sender] < self.r.sends:
                    yield Move(HUMAN, f"signal {sender}", self._signal(s, sender))
        if s.at == BEFORE:
            for visit in (0, 1):
                yield from self._wait(s, visit)
        if s.at == WAITS:
            yield Move(TIME, "nothing came in time", s._replace(at=ELSE))
        if s.at == ELSE:
            yield Move(DO, "goes elsewhere, and listens again", s._replace(at=BEFORE))
        yield from self._goes_on(s)

    def _goes_on(self, s: State) -> Iterator[Move[State]]:
        if s.at == HEARD:
            yield Move(DO, "ends", s._replace(at=ENDED))
            yield Move(DO, "fails", s._replace(at=FAILED))
            if s.heard[1 - s.visit] < 0:
                yield Move(DO, "listens once more", s._replace(at=BEFORE))
        if s.at == FAILED and s.redrives < self.r.redrives:
            back = (s.heard[0] >= 0, s.heard[1] >= 0)
            yield Move(HUMAN, "redrive", s._replace(at=BEFORE, rewound=back, redrives=s.redrives + 1))

    def _signal(self, s: State, sender: int) -> State:
        sent = (s.sent[0] + (sender == 0), s.sent[1] + (sender == 1))
        if s.sent[sender] and self.r.drops_repeats:
            return s._replace(sent=sent)
        t = s._replace(sent=sent)
        if s.at == WAITS:
            return self._give(t, s.visit, Stored(sender))
        return t._replace(stored=(*s.stored, Stored(sender))) if self.r.keeps_early else t

    def _give(self, s: State, visit: int, one: Stored) -> State:
        rest = list(s.stored)
        if one in rest:
            rest.remove(one)
        heard = (one.sender, s.heard[1]) if visit == 0 else (s.heard[0], one.sender)
        used = one._replace(used_by=visit)
        return s._replace(at=HEARD, visit=visit, heard=heard, stored=tuple(sorted((*rest, used))), looked=False)

    def _wait(self, s: State, visit: int) -> Iterator[Move[State]]:
        """Begin to wait, and take what is there already."""
        if s.heard[visit] >= 0 and not s.rewound[visit]:
            return
        label = f"waits for visit {visit}"
        kept = self._kept(s, visit)
        rewound = (s.rewound[0] and visit != 0, s.rewound[1] and visit != 1)
        waits = s._replace(at=WAITS, visit=visit, rewound=rewound, looked=False)
        waits = waits._replace(heard=(-1, s.heard[1]) if visit == 0 else (s.heard[0], -1))
        if s.looked:
            yield Move(DO, label, waits)
        elif kept:
            yield Move(DO, f"{label}, which is here", self._give(waits, visit, kept[0]))
        elif self.r.locks_run:
            yield Move(DO, label, waits)
        else:
            yield Move(DO, "looks for early signals: none", s._replace(looked=True))

    def _kept(self, s: State, visit: int) -> list[Stored]:
        """Own first, then those that nobody has used, then those of a visit that was gone back before."""
        own = [one for one in s.stored if one.used_by == visit and self.r.gives_again]
        new = [one for one in s.stored if one.used_by < 0 or not self.r.uses_once]
        free = [one for one in s.stored if one.used_by >= 0 and s.rewound[one.used_by] and self.r.frees]
        return [*own, *new, *free]


HOLDS = {"two senders and two redrives": Signals(Rules())}
DEEP = {"four redrives": Signals(Rules(sends=3, redrives=4))}
DROPS = {
    "what comes early is thrown away": (Signals(Rules(keeps_early=False)), "S2"),
    "the same dedup key is another signal": (Signals(Rules(drops_repeats=False)), "S1"),
    "a used signal is given again": (Signals(Rules(uses_once=False)), "S1"),
    "signal and wait do not see each other": (Signals(Rules(locks_run=False)), "S2"),
    "a visit that is done again waits for a new signal": (Signals(Rules(gives_again=False, frees=False)), "S2"),
    "a signal stays with a visit that was gone back before": (Signals(Rules(frees=False)), "S2"),
}
"""One rule dropped -> the invariant that breaks."""
