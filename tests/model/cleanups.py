"""A run of one paying step and its clean-up: two workers, freed leases, lost answers, a cancel or a failure any time.

What comes next is decided by `core.ending` itself. Source: endings.py, claims.py, ledger.py, services/reconcile.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from durableflows.core import ending
from durableflows.core.states import EndingPhase, EndingReason
from tests.model.search import DO, FAULT, HUMAN, TIME, Move

PAY, FREE = 0, 1
READY, RUN, RECON, SHUT, NOT_YET, STANDS = "READY", "RUNNING", "NEEDS_RECONCILIATION", "ended", "", "PARKED"
OPEN = (READY, RUN, RECON, STANDS)
NOBODY, DEAD = -1, 8
IN_DOUBT = ("D", "U")
NAMES = ("pay", "free")
SETTLING, CLEANUP, CLOSING = EndingPhase.SETTLING, EndingPhase.CLEANUP, EndingPhase.CLOSING


class Row(NamedTuple):
    """A step with its effect: - none, D dispatched, U unknown, C confirmed."""

    st: str = NOT_YET
    holder: int = NOBODY
    fx: str = "-"


class Worker(NamedTuple):
    """Where a worker is: at no step, or started, sent, acted, lost (no answer), known (the effect is settled)."""

    row: int = NOBODY
    at: str = ""


class State(NamedTuple):
    """`acted`: what the provider did. `failed`: the clean-up was given up."""

    rows: tuple[Row, Row] = (Row(READY), Row())
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    why: str = ""
    phase: EndingPhase = SETTLING
    end: str = ""
    acted: tuple[bool, bool] = (False, False)
    failed: bool = False
    left: tuple[int, ...] = ()


ALLOWANCES = ("death", "freed", "lost", "cancel", "fails", "late")
DEATH, FREED, LOST, CANCEL, FAILS, LATE = range(6)


def allow(**more: int) -> tuple[int, ...]:
    """How often each may come."""
    return tuple(more.get(name, 0) for name in ALLOWANCES)


@dataclass(frozen=True)
class Rules:
    """What the engine obeys; a search drops one."""

    left: tuple[int, ...]
    waits_for_doubt: bool = True
    waits_for_sends: bool = True
    takes_leases: bool = True
    reserve_looks: bool = True
    closing_waits: bool = True
    reconciles_ready: bool = True
    failure_ends_it: bool = True


@dataclass(frozen=True)
class Cleaning:
    """The model."""

    r: Rules

    def start(self) -> State:
        """`pay` is READY."""
        return State(left=self.r.left)

    def has_ended(self, s: State) -> bool:
        """It has an end."""
        return bool(s.end)

    def rests(self, s: State) -> bool:
        """Nothing here waits for a person."""
        return False

    def plain(self, s: State) -> State:
        """The two workers are alike."""
        a, b = s.workers
        if a <= b:
            return s
        swap = {0: 1, 1: 0}
        rows = (_swapped(s.rows[0], swap), _swapped(s.rows[1], swap))
        return s._replace(workers=(b, a), rows=rows)

    def broken(self, s: State) -> str:
        """What must hold in each state."""
        if s.end and any(row.fx in IN_DOUBT for row in s.rows):
            return "P15 it has ended with an effect in doubt"
        if s.end == "stopped" and s.acted[PAY] and not s.acted[FREE] and not s.failed:
            return "C what was taken was not given back, and nobody is told"
        return ""

    def moves(self, s: State) -> Iterator[Move[State]]:
        """All that may happen."""
        for i in (0, 1):
            yield from self._claims(s, i) if s.workers[i].row == NOBODY else self._works(s, i)
        for n in (PAY, FREE):
            yield from self._leases(s, n)
            yield from self._reconciles(s, n)
        if s.why and not s.end:
            yield Move(DO, "sweep: quiet ends", self._conclude(s))
        if s.left[CANCEL] and not s.why and not s.end:
            yield Move(HUMAN, "cancel", self._conclude(_spend(s, CANCEL)._replace(why=str(EndingReason.CANCEL))))
        if s.left[LATE] and s.phase is CLEANUP and not s.end:  # a bound would hide what stands still until then
            yield Move(FAULT, "the clean-up's time is over", self._conclude(_given_up(_spend(s, LATE))))

    def _goes_on(self, s: State, n: int) -> bool:
        going = ending.goes_on(is_ending=bool(s.why), phase=s.phase, of_cleanup=n == FREE)
        return going and not s.end

    def _claims(self, s: State, i: int) -> Iterator[Move[State]]:
        for n in (PAY, FREE):
            if s.rows[n].st == READY and self._goes_on(s, n):
                yield Move(DO, f"w{i} claims {NAMES[n]}", _at(_put(s, n, st=RUN, holder=i), i, Worker(n, "started")))

    def _works(self, s: State, i: int) -> Iterator[Move[State]]:
        w, n = s.workers[i], s.workers[i].row
        row, mine = s.rows[n], s.rows[n].holder == i
        if s.left[DEATH]:
            dead = _at(_spend(s, DEATH), i, Worker())
            yield Move(FAULT, f"w{i} dies", _put(dead, n, holder=DEAD) if mine else dead)
        if w.at == "started":
            yield self._reserves(s, i)
        elif w.at == "sent":
            yield from self._sent(s, i)
        elif w.at == "acted":
            done = _put(s, n, fx="C") if row.fx in IN_DOUBT else s
            yield Move(DO, f"w{i} records the receipt", _at(done, i, w._replace(at="known") if mine else Worker()))
            if s.left[LOST]:
                yield Move(FAULT, f"answer to w{i} lost", _at(_spend(s, LOST), i, w._replace(at="lost")))
        elif w.at == "lost":
            doubt = _put(s, n, fx="U" if row.fx == "D" else row.fx, st=RECON, holder=NOBODY) if mine else s
            yield Move(DO, f"w{i} records doubt", self._conclude(_at(doubt, i, Worker())))
        else:
            yield from self._settles(s, i)

    def _reserves(self, s: State, i: int) -> Move[State]:
        n, idle = s.workers[i].row, _at(s, i, Worker())
        row = s.rows[n]
        if row.holder != i:
            return Move(DO, f"w{i} lost its lease", idle)
        if not self._goes_on(s, n) and self.r.reserve_looks:
            back = RECON if row.fx in IN_DOUBT else READY
            return Move(DO, f"w{i} is halted", self._conclude(_put(idle, n, st=back, holder=NOBODY)))
        if row.fx == "C":
            return Move(DO, f"w{i} finds the receipt", _at(s, i, Worker(n, "known")))
        bad = "I2 the main path sends beside its clean-up" if n == PAY and _is_left(s) else ""
        return Move(DO, f"w{i} writes DISPATCHED", _at(_put(s, n, fx="D"), i, Worker(n, "sent")), bad)

    def _sent(self, s: State, i: int) -> Iterator[Move[State]]:
        n = s.workers[i].row
        acted = (True, s.acted[FREE]) if n == PAY else (s.acted[PAY], True)
        bad = "I2 a request of the main path arrives beside its clean-up" if n == PAY and _is_left(s) else ""
        yield Move(DO, f"provider acts on {NAMES[n]}", _at(s._replace(acted=acted), i, Worker(n, "acted")), bad)
        if s.rows[n].holder != i:
            yield Move(TIME, f"settle time of w{i}'s request passed", _at(s, i, Worker()))
        if s.left[LOST]:
            yield Move(FAULT, f"request of w{i} lost", _at(_spend(s, LOST), i, Worker(n, "lost")))

    def _settles(self, s: State, i: int) -> Iterator[Move[State]]:
        n, idle = s.workers[i].row, _at(s, i, Worker())
        if s.rows[n].holder != i:
            yield Move(DO, f"w{i} lost its lease", idle)
            return
        done = _put(idle, n, st=SHUT, holder=NOBODY)
        if n == PAY and not s.why:
            yield Move(DO, f"w{i} settles pay: the run succeeds", done._replace(end="done"))
        else:
            yield Move(DO, f"w{i} settles {NAMES[n]}", self._conclude(done))
        if s.left[FAILS]:
            yield Move(FAULT, f"w{i}: {NAMES[n]} fails for good", self._fails(_spend(done, FAILS), n))

    def _fails(self, s: State, n: int) -> State:
        if n == PAY:
            return self._conclude(s._replace(why=s.why or str(EndingReason.FAILURE)))
        if not self.r.failure_ends_it:
            return _put(s, n, st=STANDS)
        return self._conclude(_given_up(s))

    def _leases(self, s: State, n: int) -> Iterator[Move[State]]:
        row = s.rows[n]
        if row.st != RUN or s.end or not (row.holder == DEAD or s.left[FREED]):
            return
        freed = _put(s, n, fx="U" if row.fx == "D" else row.fx, holder=NOBODY)
        freed = self._conclude(_put(freed, n, st=RECON if row.fx in IN_DOUBT else READY))
        if row.holder == DEAD:
            yield Move(DO, f"dead lease on {NAMES[n]} freed", freed)
        else:
            yield Move(FAULT, f"lease of slow w{row.holder} freed", _spend(freed, FREED))

    def _reconciles(self, s: State, n: int) -> Iterator[Move[State]]:
        row = s.rows[n]
        if row.st != RECON or s.end:
            return
        if row.fx not in IN_DOUBT:
            yield Move(DO, f"{NAMES[n]} is settled", _put(s, n, st=READY) if self._goes_on(s, n) else self._conclude(s))
            return
        if self._goes_on(s, n):
            yield Move(DO, f"{NAMES[n]}: same key again", _put(s, n, st=READY))
        if not _is_busy(s, n):
            yield Move(DO, f"lookup of {NAMES[n]}: {s.acted[n]}", _put(s, n, fx="C" if s.acted[n] else "-"))

    def _conclude(self, s: State) -> State:
        if not s.why or s.end:
            return s
        still_open = [n for n in (PAY, FREE) if s.rows[n].st in OPEN]
        if s.phase is not CLEANUP and self.r.reconciles_ready:
            for n in still_open:
                if s.rows[n].st == READY and s.rows[n].fx in IN_DOUBT:
                    s = _put(s, n, st=RECON)
        following = ending.next_of(self._as_ending(s, still_open))
        if following is ending.Next.WAIT:
            return s
        for n in still_open:
            s = _put(s, n, st=SHUT, holder=NOBODY) if self.r.takes_leases else _put(s, n, st=SHUT)
        if following is ending.Next.CLEAN_UP:
            return _put(s._replace(phase=CLEANUP), FREE, st=READY)
        return s._replace(end="stopped")

    def _as_ending(self, s: State, still_open: list[int]) -> ending.Ending:
        waits = self.r.closing_waits or s.phase is not CLOSING
        return ending.Ending(
            reason=s.why,
            phase=s.phase,
            has_cleanup=True,
            has_open_effects=waits and self.r.waits_for_doubt and any(s.rows[n].fx in IN_DOUBT for n in still_open),
            has_open_sends=waits and self.r.waits_for_sends and any(_is_busy(s, n) for n in (PAY, FREE)),
            has_open_steps=bool(still_open),
        )


def _is_left(s: State) -> bool:
    """Is the main path closed: has its clean-up begun, or the run ended?"""
    return s.phase is not SETTLING or s.end == "stopped"


def _is_busy(s: State, n: int) -> bool:
    """May a request be on its way: is a send open?"""
    return any(worker.row == n and worker.at in ("sent", "acted", "lost") for worker in s.workers)


def _given_up(s: State) -> State:
    return s._replace(phase=CLOSING, failed=True)


def _put(s: State, n: int, **change: object) -> State:
    rows = list(s.rows)
    rows[n] = rows[n]._replace(**change)  # type: ignore[arg-type]
    return s._replace(rows=(rows[0], rows[1]))


def _at(s: State, i: int, worker: Worker) -> State:
    other = s.workers[1 - i]
    return s._replace(workers=(worker, other) if i == 0 else (other, worker))


def _spend(s: State, what: int) -> State:
    left = list(s.left)
    left[what] -= 1
    return s._replace(left=tuple(left))


def _swapped(row: Row, swap: dict[int, int]) -> Row:
    return row._replace(holder=swap.get(row.holder, row.holder))


CANCELLED = allow(death=1, freed=1, lost=1, cancel=1)
FAILED = allow(freed=1, lost=1, fails=1)
GIVEN_UP = allow(freed=1, lost=1, cancel=1, fails=1, late=1)

HOLDS = {
    "a cancel": Cleaning(Rules(CANCELLED)),
    "a failure": Cleaning(Rules(FAILED)),
    "a clean-up that fails or is late": Cleaning(Rules(GIVEN_UP)),
}
DEEP = {"all of it": Cleaning(Rules(allow(death=2, freed=2, lost=2, cancel=1, fails=2, late=1)))}
DROPS = {
    "a clean-up begins while an effect is in doubt": (Cleaning(Rules(CANCELLED, waits_for_doubt=False)), "P15"),
    "a clean-up begins while a send is open": (Cleaning(Rules(CANCELLED, waits_for_sends=False)), "I2"),
    "a clean-up takes no leases, and a reserve does not look": (
        Cleaning(Rules(CANCELLED, takes_leases=False, reserve_looks=False)),
        "I2",
    ),
    "a clean-up that was given up ends while its effect is in doubt": (
        Cleaning(Rules(GIVEN_UP, closing_waits=False)),
        "P15",
    ),
    "a READY step in doubt is not reconciled": (Cleaning(Rules(CANCELLED, reconciles_ready=False)), "limbo"),
    "a clean-up that failed stands still": (Cleaning(Rules(GIVEN_UP, failure_ends_it=False)), "limbo"),
}
"""One rule dropped -> the invariant that breaks."""
