"""One run with branches: two workers, leases that are freed under them, effects, limits, and operators.

A message is a hint, so a READY row may be claimed at any time; whether one arrives is checked elsewhere. Source:
claims.py, ledger.py, services/{reconcile,sweeps,limits,operations,redrive}.py, reopening.py.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import UUID

from durableflows.core.plan import Visit, back_to
from durableflows.core.states import EndingPhase
from tests.model.branches import Branches
from tests.model.rows import (
    CANCEL,
    DEAD,
    DEATH,
    EXTEND,
    FREED,
    JOIN,
    LIMIT,
    LOST,
    NOBODY,
    OPEN,
    OPEN_EFFECT,
    PAUSE,
    READY,
    RECON,
    REDRIVE,
    RUN,
    SHUT,
    TURN,
    Row,
    State,
    Worker,
    at,
    counted,
    is_busy,
    open_rows,
    purpose,
    put,
    spend,
)
from tests.model.search import DO, FAULT, HUMAN, TIME, Move

Moves = Iterator[Move[State]]


class Run(Branches):
    """The model. What operators may do is bounded by allowances."""

    def start(self) -> State:
        """The first step is READY."""
        return State(rows=(Row(next(iter(self.flow.ways))),), left=self.r.left)

    def has_ended(self, s: State) -> bool:
        """It has an end; from some an operator lets it go on."""
        return s.run != "live"

    def rests(self, s: State) -> bool:
        """It was paused."""
        return s.paused

    def plain(self, s: State) -> State:
        """The two workers are alike."""
        a, b = s.workers
        if a <= b:
            return s
        swap = {0: 1, 1: 0}
        rows = tuple(row._replace(holder=swap[row.holder]) if row.holder in swap else row for row in s.rows)
        return s._replace(workers=(b, a), rows=rows)

    def moves(self, s: State) -> Moves:
        """All that may happen."""
        for i in (0, 1):
            if s.workers[i].row == NOBODY:
                yield from self._claims(s, i)
            else:
                yield from self._worker(s, i)
        for n in open_rows(s):
            yield from self._leases(s, n)
            yield from self._reconciler(s, n)
        if s.run == "live" and s.why:
            yield Move(DO, "sweep: quiet ends", self.conclude(s))
        yield from self._endings(s)
        yield from self._operators(s)
        if s.left[REDRIVE] and (s.run == "failed" or (s.run == "live" and s.paused)):
            yield from self._redrives(s)

    def _claims(self, s: State, i: int) -> Moves:
        if s.paused and self.r.claim_halts:
            return
        for n in open_rows(s):
            if s.rows[n].st == READY and self.lets(s, n):
                t = put(s, n, st=RUN, holder=i, begun=s.rows[n].begun or len(s.rows))
                bad = "P1 a paused run begins a step" if s.paused else ""
                yield Move(DO, f"w{i} claims {_name(s, n)}", at(t, i, Worker(n, "started", s.data)), bad)

    def _worker(self, s: State, i: int) -> Moves:
        w = s.workers[i]
        row, mine = s.rows[w.row], s.rows[w.row].holder == i
        if s.left[DEATH]:
            t = at(spend(s, DEATH), i, Worker())
            yield Move(FAULT, f"w{i} dies", put(t, w.row, holder=DEAD) if mine else t)
        if w.at == "started":
            is_paid = row.name in self.flow.pays
            yield self._reserve(s, i) if is_paid else Move(DO, f"w{i} performs", at(s, i, w._replace(at="known")))
        elif w.at == "sent":
            yield from self._sent(s, i)
        elif w.at == "acted":
            known = row.fx in OPEN_EFFECT and row.issue == w.issue
            t = at(put(s, w.row, fx="C") if known else s, i, w._replace(at="known") if mine else Worker())
            yield Move(DO, f"w{i} records the receipt", t)
            if s.left[LOST]:
                yield Move(FAULT, f"answer to w{i} lost", at(spend(s, LOST), i, w._replace(at="lost")))
        elif w.at == "lost":
            t = at(s, i, Worker())
            in_doubt = self.conclude(put(t, w.row, fx="U" if row.fx == "D" else row.fx, st=RECON, holder=NOBODY))
            yield Move(DO, f"w{i} records doubt", in_doubt if mine else t)
        else:
            yield from self._settles(s, i)

    def _reserve(self, s: State, i: int) -> Move[State]:
        w, n = s.workers[i], s.workers[i].row
        row, idle = s.rows[n], at(s, i, Worker())
        if row.holder != i:
            return Move(DO, f"w{i} lost its lease", idle)
        halted = s.paused or not self.lets(s, n)
        if halted and self.r.reserve_halts:
            t = put(idle, n, st=RECON if row.fx in OPEN_EFFECT else READY, holder=NOBODY)
            return Move(DO, f"w{i} is halted", self.conclude(t))
        if row.fx == "C" and not row.choice:
            return Move(DO, f"w{i} finds the receipt", at(s, i, w._replace(at="known")))
        issue = row.issue + (1 if row.choice and self.r.repeats_anew else 0)
        t = put(s, n, fx="D", issue=issue, choice=row.choice and not self.r.choice_counts_once)
        return Move(
            DO, f"w{i} writes DISPATCHED", at(t, i, w._replace(at="sent", issue=issue)), self._forbidden(s, n, issue)
        )

    def _forbidden(self, s: State, n: int, issue: int) -> str:
        if s.paused:
            return "P2 a paused run sends"
        if s.why and not (s.rows[n].of_cleanup and s.phase is EndingPhase.CLEANUP):
            return "P3 an ending run sends"
        if s.rows[n].choice and is_busy(s, n):
            return "R3 repeated while a send of the same effect is open"
        if s.rows[n].choice and (n, issue) in s.keys:
            return "R4 repeated under the key of what has happened"
        return ""

    def _sent(self, s: State, i: int) -> Moves:
        w = s.workers[i]
        row, key = s.rows[w.row], (w.row, w.issue)
        books = s.books if key in s.keys else counted(s.books, purpose(row))
        t = at(s._replace(books=books, keys=s.keys | {key}), i, w._replace(at="acted"))
        bad = "P6 a request leaves after a confirmed cancel" if s.run == "cancelled" else ""
        if s.phase is not EndingPhase.SETTLING and not row.of_cleanup:
            bad = "P7 a request of the main path acts while a clean-up takes back what it did"
        yield Move(DO, f"provider acts on {_name(s, w.row)}", t, bad)
        if row.holder != i:
            yield Move(TIME, f"settle time of w{i}'s request passed", at(s, i, Worker()))
        if s.left[LOST]:
            yield Move(FAULT, f"request of w{i} lost", at(spend(s, LOST), i, w._replace(at="lost")))

    def _settles(self, s: State, i: int) -> Moves:
        w, n = s.workers[i], s.workers[i].row
        row, t = s.rows[n], at(s, i, Worker())
        if row.holder != i and (self.r.settle_checks_lease or row.st not in OPEN):
            yield Move(DO, f"w{i} lost its lease", t)
            return
        if s.data != w.base and self.r.merge == "again":
            yield Move(DO, f"w{i}: the state has changed, again", self.conclude(put(t, n, st=READY, holder=NOBODY)))
            return
        bad = "" if row.holder == i else "P4 settled without the lease"
        data = w.base | 1 << n
        if data & s.data != s.data:
            bad = "B4 a branch's change of the state is lost"
        for way in self.flow.ways[row.name]:
            if not (way.once and any(one.name == row.name for one in s.rows[:n])):
                label = f"w{i} settles {_name(s, n)}: {way.said} {' '.join(way.to)}".rstrip()
                yield Move(DO, label, self.settle(t._replace(data=data), n, way), bad)

    def _leases(self, s: State, n: int) -> Moves:
        row = s.rows[n]
        if row.st != RUN or not (row.holder == DEAD or s.left[FREED]):
            return
        freed = put(s, n, fx="U" if row.fx == "D" else row.fx, holder=NOBODY)
        freed = self.conclude(put(freed, n, st=RECON if row.fx in OPEN_EFFECT else READY))
        if row.holder == DEAD:
            yield Move(DO, f"dead lease on {_name(s, n)} freed", freed)
        else:
            yield Move(FAULT, f"lease of slow w{row.holder} freed", spend(freed, FREED))

    def _reconciler(self, s: State, n: int) -> Moves:
        row = s.rows[n]
        if row.st != RECON:
            return
        if row.fx not in OPEN_EFFECT:
            goes_on = not s.why or self.lets(s, n)
            yield Move(DO, f"{_name(s, n)} is settled", put(s, n, st=READY) if goes_on else self.conclude(s))
            return
        if self.lets(s, n) and not s.paused:
            yield Move(DO, f"{_name(s, n)}: same key again", put(s, n, st=READY))
        if not is_busy(s, n):
            found = (n, row.issue) in s.keys
            yield Move(DO, f"lookup of {_name(s, n)}: {found}", put(s, n, fx="C" if found else "-"))

    def _endings(self, s: State) -> Moves:
        if s.run == "live" and s.phase is EndingPhase.CLEANUP and s.left[LIMIT]:
            t = spend(s, LIMIT)._replace(phase=EndingPhase.CLOSING)
            yield Move(FAULT, "the clean-up's time is over", self.conclude(t))
        if s.run == "live" and s.why in ("", "limit") and s.left[CANCEL]:  # it overtakes a limit
            yield Move(HUMAN, "cancel", self.conclude(spend(s, CANCEL)._replace(why="cancel", paused=False)))
        if s.run == "live" and not s.why and s.left[LIMIT]:
            # A limit ends everything, and would hide what stands still until then.
            t = spend(s, LIMIT)._replace(why="limit", paused=False)
            yield Move(FAULT, "deadline", self.conclude(t))

    def _operators(self, s: State) -> Moves:
        if s.run == "live" and not s.why and not s.paused and s.left[PAUSE]:
            yield Move(HUMAN, "pause", spend(s, PAUSE)._replace(paused=True))
        if s.paused:
            yield Move(HUMAN, "resume", self.go_on(s._replace(paused=False)))
        ended = s.run == "limit" and any(row.stood for row in s.rows)
        if s.left[EXTEND] and (ended or (s.run == "live" and s.why == "limit")):
            t = spend(s, EXTEND)._replace(run="live", why="", result=s.result and self.r.keeps_result)
            yield Move(HUMAN, "extend", self.go_on(t))

    def _redrives(self, s: State) -> Moves:
        if self.r.refuses_open and any(row.fx in OPEN_EFFECT for row in s.rows):
            return
        if self.r.refuses_running and any(row.st == RUN for row in s.rows):
            return
        last: dict[tuple[str, str], int] = {}
        for n, row in enumerate(s.rows):
            if row.begun and not row.of_cleanup and not (row.rewound and self.r.refuses_rewound):
                last[row.name, row.item] = n
        waiting = {n for n in last.values() if {s.rows[n].st, s.rows[n].stood} & {JOIN, TURN}}
        for n in last.values():
            if n in waiting and self.r.refuses_waiting:
                continue
            t = self._redrive(s, n, repeat=False)
            bad = "E3 a redriven run fails at once for what was not tried again" if t.why or t.run != "live" else ""
            yield Move(HUMAN, f"redrive from {_name(s, n)}", t, bad)
            if self.r.repeats and self._may_repeat(s, n):
                yield Move(HUMAN, f"redrive from {_name(s, n)}, repeat", self._redrive(s, n, repeat=True))

    def _route(self, s: State, target: int) -> tuple[list[int], list[int], list[int]]:
        """The visits that came after the target; of these, the joins that wait again; those that failed the run too."""
        others = [n for n, row in enumerate(s.rows) if n != target and not row.rewound]
        if self.r.origins:
            back = back_to(self._visit(s, target), [self._visit(s, n) for n in others], self.flow.reaches)
            after, again = sorted(pk.int for pk in back.visits), sorted(pk.int for pk in back.waiting)
        else:
            ahead = self.flow.reaches[s.rows[target].name]
            after = [n for n in others if s.rows[n].name in ahead and (n > target or s.rows[n].begun > target)]
            again = []
        failed = [n for n in others if s.rows[n].stood == "end" and n not in after]
        also = [n for n in failed if (way := s.rows[n].said) is not None and way.said == "fail"]
        return after, again if self.r.joins_wait_again else [], also if self.r.also else []

    def _visit(self, s: State, n: int) -> Visit:
        row = s.rows[n]
        return Visit(
            id=UUID(int=n),
            name=row.name,
            is_join=row.name in self.flow.joins,
            is_waiting=JOIN in (row.st, row.stood),
            created_at=_hour(2 * n),
            started_at=_hour(2 * row.begun - 1) if row.begun else None,
            came_from=UUID(int=row.came) if row.came >= 0 else None,
            joined=[UUID(int=join) for join in row.joined],
            gather=UUID(int=row.gather) if row.gather >= 0 else None,
        )

    def _may_repeat(self, s: State, target: int) -> bool:
        after, _, also = self._route(s, target)
        done = [n for n in (target, *after, *also) if s.rows[n].fx == "C"]
        return bool(done) and not (self.r.waits_for_sends and any(is_busy(s, n) for n in done))

    def _redrive(self, s: State, target: int, *, repeat: bool) -> State:
        after, again, also = self._route(s, target)
        route = [target, *after, *also]
        s = self._choose(s, [n for n in route if repeat and s.rows[n].fx == "C"])
        ended = any((way := s.rows[n].said) is not None and way.said in ("ok", "end") for n in route)
        s = spend(s, REDRIVE)._replace(run="live", why="", paused=False, result=s.result and not ended)
        s = s._replace(phase=EndingPhase.SETTLING)
        for n in after:
            s = put(s, n, st=SHUT if s.rows[n].st in OPEN else s.rows[n].st, holder=NOBODY, stood="")
            s = put(s, n, rewound=self.r.visits_kept, said=None, late=frozenset())
        names = {s.rows[n].name for n in after}
        for n, row in enumerate(s.rows):
            s = put(s, n, late=row.late - names)
        for n in again:
            s = self.stand_again(s, n, st=JOIN)
        for n in (target, *also):
            s = self.begin_again(s, n)
        return self.go_on(s)

    def _choose(self, s: State, chosen: list[int]) -> State:
        """Put the choice on the rows; an older one that was not carried out ends."""
        book = dict(s.chosen)
        for n, row in enumerate(s.rows):
            book[purpose(row)] = book.get(purpose(row), 0) + (n in chosen) - row.choice
            s = put(s, n, choice=n in chosen)
        return s._replace(chosen=tuple(sorted((name, count) for name, count in book.items() if count)))


def _name(s: State, n: int) -> str:
    row = s.rows[n]
    which = "" if sum(one.name == row.name and one.item == row.item for one in s.rows) == 1 else f"#{n}"
    return f"{row.name}{which} {row.item}".rstrip()


@cache
def _hour(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
