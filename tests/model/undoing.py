"""Two effects that are undone: who may start it, what it waits for, in which order, and what comes late.

The main path does both effects at once, by two workers; then one undo at a time is written, sent, lost, sent again
under its key, refused. Several triggers (a failure, a cancel, two persons) come at any moment. A request flies until it
lands or is lost; one may fly for longer than the settle time, so that "absent" was wrong.
Source: undoing.py, core/ending.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.search import DO, FAULT, HUMAN, TIME, Move

LIVE, SETTLING, UNDO, ENDED = "live", "settling", "undo", "ended"
OPEN = ("D", "U")
BOTH = (0, 1)


@dataclass(frozen=True)
class Rules:
    """What the protocol chooses; the defaults are what the code does."""

    settles_first: bool = True  # what is in doubt, or flies, comes first
    halts: bool = True  # a reserve reads the trigger
    is_one: bool = True  # one undo an effect: a second trigger finds the first one's rows
    reverse: bool = True
    one_by_one: bool = True
    keeps_key: bool = True  # a second send of an undo is under the first one's key
    doubts: bool = True  # an undo that is lost is in doubt, not failed
    looks_again: bool = True  # what is to be undone is asked before each undo, not once at the beginning
    late_alerts: bool = True  # a receipt that comes after the end is told
    failed_goes_on: bool = True  # a failing undo leaves the others
    freed: int = 1
    lost: int = 1
    late: int = 1
    refused: int = 1
    triggers: int = 2


class Row(NamedTuple):
    """An effect and its undo. `did`, `undid`: what the provider has done, and how often."""

    state: str = ""  # D, U, C, ABSENT, UNDOING, UNDONE, UNDO_FAILED
    flies: bool = False
    did: bool = False
    undo: str = ""  # D, U, C, R
    undo_flies: bool = False
    undid: int = 0
    keys: int = 0  # under how many keys the provider has undone it
    told: bool = False  # the undo's answer is on its way


def _anew(row: Row) -> Row:
    return row._replace(state="C", undo="", undid=0, told=False, undo_flies=False)


class State(NamedTuple):
    """`order`: as they were confirmed. `fixed`: what was to be undone at the beginning, where that is kept."""

    phase: str = LIVE
    end: str = ""
    rows: tuple[Row, Row] = (Row(), Row())
    order: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    alert: bool = False
    triggers: int = 0
    freed: int = 0
    lost: int = 0
    late: int = 0
    refused: int = 0


class Undoing:
    """The model."""

    def __init__(self, rules: Rules) -> None:
        self.r = rules

    def start(self) -> State:
        """A run that is about to act."""
        return State()

    def has_ended(self, s: State) -> bool:
        """It was undone, as far as it could be."""
        return s.phase == ENDED

    def rests(self, s: State) -> bool:
        """Nobody has asked for an undo yet."""
        return s.phase == LIVE

    def plain(self, s: State) -> State:
        """Order matters: nothing is alike."""
        return s

    def broken(self, s: State) -> str:
        """Invariants of a state."""
        if any(row.keys > 1 for row in s.rows):
            return "U1 undone twice"
        quiet = s.phase == ENDED and not any(row.flies or row.undo_flies or row.told for row in s.rows)
        left = any(row.did and not row.undid for row in s.rows)
        untold = any(row.did and row.state == "ABSENT" for row in s.rows)
        if quiet and not s.alert and left and not untold:
            return "U4 it ended as undone, and something is not"
        if s.phase == ENDED and any(row.state in (*OPEN, "UNDOING") for row in s.rows):
            return "P15 it ended while something is open"
        if s.end == "COMPENSATED" and any(row.state == "UNDO_FAILED" for row in s.rows) and not s.alert:
            return "U5 a failed undo is told to nobody"
        if s.phase == ENDED and not s.late and any(row.state == "C" for row in s.rows):
            return "U8 it ended before all was tried"
        if not s.late and any(row.undid and not row.did for row in s.rows):
            return "U6 undone before it was done"
        return ""

    def moves(self, s: State) -> Iterator[Move[State]]:
        """Workers, the provider, triggers, the end."""
        for i in BOTH:
            yield from self._act(s, i)
            yield from self._provider(s, i)
            yield from self._undo(s, i)
        if s.triggers < self.r.triggers and s.phase != ENDED:
            yield Move(HUMAN, "trigger", self._trigger(s))
        yield from self._phases(s)

    def _put(self, s: State, i: int, row: Row) -> State:
        return s._replace(rows=(row, s.rows[1]) if i == 0 else (s.rows[0], row))

    def _trigger(self, s: State) -> State:
        t = s._replace(triggers=s.triggers + 1)
        if s.phase == LIVE:
            return t._replace(phase=SETTLING)
        if s.phase == UNDO and not self.r.is_one:  # it begins anew, with rows of its own
            again = [_anew(row) if row.state in ("UNDOING", "UNDONE") else row for row in s.rows]
            return t._replace(rows=(again[0], again[1]))
        return t

    def _act(self, s: State, i: int) -> Iterator[Move[State]]:
        """The main path's worker, and whoever takes its lease."""
        row = s.rows[i]
        if row.state == "" and (s.phase == LIVE or (not self.r.halts and s.phase == UNDO)):
            yield Move(DO, f"{i} sent", self._put(s, i, row._replace(state="D", flies=True)))
        if row.state == "D" and s.freed < self.r.freed:
            yield Move(FAULT, f"{i} freed", self._put(s._replace(freed=s.freed + 1), i, row._replace(state="U")))
        if row.state in OPEN and row.did:
            yield Move(DO, f"{i} confirmed", self._confirm(s, i))
        if row.state == "D" and not row.flies and not row.did:
            yield Move(TIME, f"{i} timed out", self._put(s, i, row._replace(state="U")))
        if row.state == "U" and not row.did and (not row.flies or s.late < self.r.late):
            t = s._replace(late=s.late + 1) if row.flies else s
            yield Move(
                FAULT if row.flies else DO, f"{i} looked up: absent", self._put(t, i, row._replace(state="ABSENT"))
            )
        if row.state == "ABSENT" and row.did and not row.undo:
            yield Move(DO, f"{i} receipt after all", self._late(s, i))

    def _confirm(self, s: State, i: int) -> State:
        return self._put(s._replace(order=(*s.order, i)), i, s.rows[i]._replace(state="C"))

    def _late(self, s: State, i: int) -> State:
        t = self._confirm(s, i)
        return t._replace(alert=True) if s.phase == ENDED and self.r.late_alerts else t

    def _provider(self, s: State, i: int) -> Iterator[Move[State]]:
        row = s.rows[i]
        if row.flies:
            broken = "U3 it arrives beside its undo" if s.phase == UNDO and not s.late else ""
            yield Move(TIME, f"{i} lands", self._put(s, i, row._replace(flies=False, did=True)), broken)
            if s.lost < self.r.lost:
                t = s._replace(lost=s.lost + 1)
                yield Move(FAULT, f"{i} lost", self._put(t, i, row._replace(flies=False)))
        if row.undo_flies:
            anew = row.undid == 0 or not self.r.keeps_key
            landed = row._replace(undo_flies=False, undid=1, keys=row.keys + anew, told=True)
            yield Move(TIME, f"undo {i} lands", self._put(s, i, landed))
            if s.refused < self.r.refused and not row.undid:
                t = s._replace(refused=s.refused + 1)
                yield Move(FAULT, f"undo {i} refused", self._fail(t, i))

    def _fail(self, s: State, i: int) -> State:
        row = s.rows[i]._replace(undo_flies=False, undo="R", state="UNDO_FAILED")
        t = self._put(s, i, row)._replace(alert=True)
        return t if self.r.failed_goes_on else t._replace(phase=ENDED, end="COMPENSATION_FAILED")

    def _undo(self, s: State, i: int) -> Iterator[Move[State]]:
        row = s.rows[i]
        if s.phase == UNDO and row.state == "C" and self._is_next(s, i):
            broken = self._out_of_order(s, i)
            yield Move(DO, f"undo {i} begins", self._put(s, i, row._replace(state="UNDOING", undo="")), broken)
        if s.phase == UNDO and row.state == "UNDOING" and row.undo in ("", "U") and not row.told:
            yield Move(DO, f"undo {i} sent", self._put(s, i, row._replace(undo="D", undo_flies=True)))
        if row.undo == "D" and row.undo_flies and s.freed < self.r.freed:
            t = s._replace(freed=s.freed + 1)
            if self.r.doubts:
                yield Move(FAULT, f"undo {i} freed", self._put(t, i, row._replace(undo="U")))
            else:
                failed = row._replace(undo="R", state="UNDO_FAILED")
                yield Move(FAULT, f"undo {i} freed", self._put(t, i, failed)._replace(alert=True))
        if row.told:
            done = row._replace(told=False, undo="C", state="UNDONE")
            if s.lost < self.r.lost and row.undo == "D":
                lost = row._replace(told=False, undo="U")
                yield Move(FAULT, f"undo {i}: answer lost", self._put(s._replace(lost=s.lost + 1), i, lost))
            broken = "U2 what is undone counts as left" if row.state == "UNDO_FAILED" else ""
            yield Move(DO, f"undo {i} confirmed", self._put(s, i, done), broken)

    def _to_undo(self, s: State) -> list[int]:
        known = BOTH if self.r.looks_again else s.fixed
        return [i for i in s.order if i in known and s.rows[i].state == "C"]

    def _is_next(self, s: State, i: int) -> bool:
        if self.r.one_by_one and any(row.state == "UNDOING" for row in s.rows):
            return False
        left = self._to_undo(s)
        return i in left and (not self.r.reverse or i == left[-1])

    def _out_of_order(self, s: State, i: int) -> str:
        """Is something that was confirmed later not undone yet, nor known to have failed?"""
        later = s.order[s.order.index(i) + 1 :]
        waits = any(s.rows[j].state in ("C", "UNDOING") for j in later)
        return "U7 not in reverse order" if waits else ""

    def _phases(self, s: State) -> Iterator[Move[State]]:
        # A request that flies for longer than the settle time is one that nobody knows of.
        known = any(row.state in OPEN or (row.flies and row.state != "ABSENT") for row in s.rows)
        if s.phase == SETTLING and not (known and self.r.settles_first):
            fixed = tuple(i for i in BOTH if s.rows[i].state == "C")
            yield Move(DO, "undo begins", s._replace(phase=UNDO, fixed=fixed))
        if s.phase == UNDO and not self._to_undo(s) and not any(row.state == "UNDOING" for row in s.rows):
            failed = any(row.state == "UNDO_FAILED" for row in s.rows)
            yield Move(DO, "end", s._replace(phase=ENDED, end="COMPENSATION_FAILED" if failed else "COMPENSATED"))


ALL = Rules()
HOLDS = {"two effects, two triggers": Undoing(ALL)}
DEEP = {"three triggers, two of each fault": Undoing(Rules(triggers=3, freed=2, lost=2, late=2, refused=2))}
DROPS = {
    "the undo begins while something is in doubt": (Undoing(Rules(settles_first=False, late=0)), "U"),
    "a reserve does not look at the trigger": (Undoing(Rules(halts=False, late=0)), "U"),
    "each trigger undoes anew": (Undoing(Rules(is_one=False)), "U1"),
    "an undo sent again has another key": (Undoing(Rules(keeps_key=False)), "U1"),
    "in the order of what was done": (Undoing(Rules(reverse=False)), "U7"),
    "all at once": (Undoing(Rules(one_by_one=False)), "U7"),
    "a lost undo counts as failed": (Undoing(Rules(doubts=False)), "U2"),
    "what is to be undone is written down at the beginning": (Undoing(Rules(looks_again=False)), "U4"),
    "what comes after the end is told to nobody": (Undoing(Rules(late_alerts=False)), "U4"),
    "an undo that fails ends the run": (Undoing(Rules(failed_goes_on=False, late=0)), "U8"),
}
"""One rule dropped -> the invariant that breaks."""
