"""A step that waits for another run, and all that may cross between the two: start, end, cancel, extension, redrive.

Two carriers (workers or tickers) each look without a lock and then act under one; messages are lost or doubled, for
whoever looks may do so at any time. Source: services/children.py, services/limits.py, services/redrive.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.search import DO, FAULT, HUMAN, Move

LIVE = ("live", "asked")
WAITS, BEFORE, ON, SHUT, DONE = "waits", "before", "on", "shut", "done"


@dataclass(frozen=True)
class Rules:
    """What the protocol chooses; the defaults are what the code does."""

    one_child: bool = True  # one child a waiting step: unique in the database
    looks_again: bool = True  # under the lock: does the step wait still?
    hand_over_locks_child: bool = True  # ... and is the child ended still?
    reopen_asks_parent: bool = True  # a child goes on only while its end is awaited
    sweeps: bool = True  # what is due is found without a message
    cancels_left: bool = True  # a child that nobody waits for any more is cancelled
    cancel_looks_again: bool = True  # under the parent's lock: does still nobody wait for it?
    redrive_asks_children: bool = True  # a redrive does not go back before a child that has not ended well
    pause_starts_none: bool = True
    comings: int = 2  # redrives, extensions and pauses
    reopens: int = 1


class State(NamedTuple):
    """`carriers`: what each saw to be due. `told`: what the parent was told, in `tellings` of this coming."""

    parent: str = WAITS
    why: str = ""  # shut by: limit, cancel
    paused: bool = False
    child: str = ""  # live, asked (its cancel), ok, failed, cancelled
    cancelled_by: str = ""  # person, crossing
    started: int = 0
    told: str = ""
    tellings: int = 0
    carriers: tuple[str, str] = ("", "")
    reopening: bool = False  # a child's extension has looked, and holds the child's lock
    message: bool = True
    comings: int = 0
    reopens: int = 0
    has_ended: bool = False  # the parent had ended at some time


class Children:
    """The model."""

    def __init__(self, rules: Rules) -> None:
        self.r = rules

    def start(self) -> State:
        """A step has just begun to wait."""
        return State()

    def has_ended(self, s: State) -> bool:
        """Both have ended."""
        return s.parent in (SHUT, DONE) and s.child not in LIVE

    def rests(self, s: State) -> bool:
        """Somebody has paused it."""
        return s.paused

    def plain(self, s: State) -> State:
        """Carriers are alike."""
        first, second = sorted(s.carriers)
        return s._replace(carriers=(first, second))

    def broken(self, s: State) -> str:
        """Invariants of a state."""
        if s.started > 1:
            return "C1 two children of one wait"
        if s.tellings > 1:
            return "C2 an end is handed over twice"
        if s.told and s.child != s.told:
            return "C3 the child went on after its end was handed over"
        if s.cancelled_by == "crossing" and not s.has_ended:
            return "C4 the child of a run that goes on is cancelled"
        return ""

    def moves(self, s: State) -> Iterator[Move[State]]:
        """Carriers, the child, the parent, people."""
        for k in (0, 1):
            yield from self._carrier(s, k)
        if s.message:
            yield Move(FAULT, "message lost", s._replace(message=False))
        yield from self._child(s)
        yield from self._reopen(s)
        yield from self._parent(s)
        yield from self._redrive(s)
        yield from self._pause(s)

    def _carrier(self, s: State, k: int) -> Iterator[Move[State]]:
        if not s.carriers[k]:
            seen = self._due(s)
            if seen and (s.message or (self.r.sweeps and self._swept(s, seen))):
                yield Move(DO, f"carrier sees: {seen}", self._carries(s, k, seen))
                yield Move(
                    DO, f"carrier with a message sees: {seen}", self._carries(s, k, seen)._replace(message=False)
                )
            return
        what, t = s.carriers[k], self._carries(s, k, "")
        yield Move(FAULT, "carrier dies", t)
        if what == "start":
            yield self._start(t)
        elif what == "cancel":
            yield self._cancel(t)
        elif not (s.reopening and self.r.hand_over_locks_child):  # else: the lock is taken, it is left for later
            yield self._hand_over(t, what)

    def _carries(self, s: State, k: int, what: str) -> State:
        return s._replace(carriers=(what, s.carriers[1]) if k == 0 else (s.carriers[0], what))

    def _due(self, s: State) -> str:
        """What a look without a lock finds; of a hand-over, which end it saw."""
        if s.parent == WAITS:
            return "start" if not s.child else "" if s.child in LIVE else s.child
        return "cancel" if s.child == "live" and self.r.cancels_left else ""

    def _swept(self, s: State, seen: str) -> bool:
        return seen == "cancel" or not s.paused

    def _start(self, s: State) -> Move[State]:
        waits = s.parent == WAITS or not self.r.looks_again
        if not waits or (s.paused and self.r.pause_starts_none) or (s.child and self.r.one_child):
            return Move(DO, "nothing to start", s)
        broken = (
            "C5 a run that stands still or has ended starts a child" if s.paused or s.parent in (SHUT, DONE) else ""
        )
        return Move(DO, "child started", s._replace(child="live", started=s.started + 1, message=True), broken)

    def _hand_over(self, s: State, seen: str) -> Move[State]:
        if s.parent != WAITS and self.r.looks_again:
            return Move(DO, "nobody waits any more", s)
        if self.r.hand_over_locks_child and s.child in LIVE:
            return Move(DO, "the child goes on again", s)
        end = s.child if self.r.hand_over_locks_child else seen
        broken = "" if s.parent in (WAITS, ON) else "C6 an end is handed over to a run that has ended"
        return Move(DO, f"handed over: {end}", s._replace(parent=ON, told=end, tellings=s.tellings + 1), broken)

    def _cancel(self, s: State) -> Move[State]:
        if s.child != "live":
            return Move(DO, "nothing to cancel", s)
        if s.parent == WAITS and self.r.cancel_looks_again:
            return Move(DO, "the step waits again", s)
        broken = "C7 a child that is awaited again is cancelled" if s.parent == WAITS else ""
        return Move(DO, "the child's cancel is asked", s._replace(child="asked", cancelled_by="crossing"), broken)

    def _child(self, s: State) -> Iterator[Move[State]]:
        if s.child in LIVE and not s.reopening:
            ended = s._replace(message=True)
            if s.child == "asked":
                yield Move(DO, "child cancelled", ended._replace(child="cancelled"))
                return
            # A child that nobody waits for must not need to come to an end of its own.
            kind = DO if s.parent == WAITS else FAULT
            yield Move(kind, "child ends well", ended._replace(child="ok"))
            yield Move(kind, "child fails", ended._replace(child="failed"))
            yield Move(HUMAN, "child's cancel asked", s._replace(child="asked", cancelled_by="person"))

    def _reopen(self, s: State) -> Iterator[Move[State]]:
        """`extend` or `redrive` of the child: under its lock, with a look at the parent's step."""
        if s.reopening:
            yield Move(DO, "child goes on", s._replace(child="live", reopening=False, reopens=s.reopens + 1))
        elif (
            s.child == "failed" and s.reopens < self.r.reopens and (s.parent == WAITS or not self.r.reopen_asks_parent)
        ):
            yield Move(HUMAN, "child is extended: it is awaited", s._replace(reopening=True))

    def _parent(self, s: State) -> Iterator[Move[State]]:
        if s.parent == ON and not s.paused:
            yield Move(DO, "parent ends", s._replace(parent=DONE, has_ended=True))
        if s.parent in (WAITS, BEFORE, ON):
            shut = s._replace(parent=SHUT, paused=False, message=True, has_ended=True)
            yield Move(HUMAN, "parent cancelled", shut._replace(why="cancel"))
            if s.parent == WAITS:
                # It ends everything, and would hide what stands still until then.
                yield Move(FAULT, "parent's deadline", shut._replace(why="limit"))
        if s.parent == SHUT and s.why == "limit" and s.comings < self.r.comings:
            waits = s._replace(parent=WAITS, why="", message=True, comings=s.comings + 1)
            yield Move(HUMAN, "parent extended: its step waits again", waits)

    def _redrive(self, s: State) -> Iterator[Move[State]]:
        """From before the wait: the visit is closed, and the run comes to it again."""
        may = not self.r.redrive_asks_children or s.child in ("", "ok")
        stands = s.parent == ON or (s.parent == WAITS and s.paused)
        if stands and may and s.comings < self.r.comings:
            back = s._replace(parent=BEFORE, paused=False, told="", tellings=0, message=True, comings=s.comings + 1)
            yield Move(HUMAN, "parent sent back before the wait", back)
        if s.parent == BEFORE:
            yield Move(DO, "parent comes to the wait again", s._replace(parent=WAITS, message=True))

    def _pause(self, s: State) -> Iterator[Move[State]]:
        if s.parent in (WAITS, ON) and not s.paused and s.comings < self.r.comings:
            yield Move(HUMAN, "parent paused", s._replace(paused=True, comings=s.comings + 1))
        if s.paused:
            yield Move(HUMAN, "parent resumed", s._replace(paused=False, message=True))


HOLDS = {"a wait and its child": Children(Rules())}
DEEP = {"four comings, two reopenings": Children(Rules(comings=4, reopens=2))}
DROPS = {
    "two carriers start one each": (Children(Rules(one_child=False)), "C1"),
    "whether the step waits is only looked at before the lock": (Children(Rules(looks_again=False)), "C"),
    "the end is handed over without the child's lock": (Children(Rules(hand_over_locks_child=False)), "C3"),
    "a child goes on though its end was handed over": (Children(Rules(reopen_asks_parent=False)), "C3"),
    "only messages carry": (Children(Rules(sweeps=False)), "limbo"),
    "a child that is left lives on until it ends by itself": (Children(Rules(cancels_left=False)), "limbo"),
    "whether nobody waits is only looked at before the lock": (Children(Rules(cancel_looks_again=False)), "C7"),
    "a redrive goes back before a child that goes on": (Children(Rules(redrive_asks_children=False)), "C4"),
    "a paused run starts its child": (Children(Rules(pause_starts_none=False)), "C5"),
}
"""One rule dropped -> the invariant that breaks."""
