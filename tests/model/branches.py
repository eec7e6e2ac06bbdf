"""How branches of a run arrive, wait for each other and end: what `arrivals` and `progress` do under the run's lock.

Everything here is part of one transaction: state in, state out. Source: arrivals.py, progress.py, core/plan.py.
"""

from dataclasses import dataclass
from uuid import UUID

from durableflows.core.ending import Ending, Next, goes_on, next_of
from durableflows.core.plan import OpenStep, Origin, joins_ready, may_take_up
from durableflows.core.states import EndingPhase, EndingReason
from tests.model.rows import (
    DONE,
    FAIL,
    JOIN,
    NOBODY,
    OPEN,
    OPEN_EFFECT,
    READY,
    RECON,
    SHUT,
    TURN,
    Flow,
    Row,
    State,
    Way,
    allow,
    is_busy,
    open_rows,
    put,
)

ENDS = {"limit": "limit", "failure": "failed", "cancel": "cancelled"}


@dataclass(frozen=True)
class Rules:
    """What the protocol chooses; the defaults are what the code does."""

    join: str = "reach"  # begins when nobody can come | count: when as many have come as lead to it | first
    join_kept: bool = True  # who comes to a join that waits makes no second one
    oldest_begins: bool = True  # of joins that wait for each other
    gathers_items: bool = True  # an item's branch is waited for where no edge leads to the join, too
    each_makes_join: bool = True
    turns: bool = True  # an item that ends lets the next one begin
    merge: str = "again"  # a body whose state was changed meanwhile runs again | last: it overwrites
    settle_checks_lease: bool = True
    ends_with_last: bool = True  # a run succeeds with the last of its branches
    settles_first: bool = True  # P15: nothing ends while an effect is open
    cancel_waits: bool = True  # ... and no cancel is confirmed while a send is open
    keeps_ends: bool = True  # what a step decided while the run was ending already is kept
    keeps_result: bool = True  # an extension takes the end back, not the result
    failure_first: bool = True  # ... and of several a failure counts first
    turns_again: bool = True  # a run that goes on lets items begin, and joins
    reserve_halts: bool = True  # an ending or paused run sends nothing
    claim_halts: bool = True
    leaves_others: bool = True  # a visit that a branch beside this one had come to is not taken up
    joins_are_shared: bool = True  # but a join belongs to no branch: whoever comes first takes it up
    visits_kept: bool = True  # a redrive takes visits up again, with their keys
    origins: bool = True  # what came after a step is what it has led to | by graph and time
    joins_wait_again: bool = True  # a join that others have come to waits again at once
    lands_first: bool = True  # no clean-up begins while a request of the main path may arrive
    cleans_up: bool = True  # what a run holds is given back before it ends
    closes_cleanup: bool = True  # what a clean-up that has failed left open is settled, too
    also: bool = True  # all branches that have failed the run are tried again
    refuses_open: bool = True  # no redrive while an effect is open
    refuses_running: bool = True  # ... or a worker is at a step
    refuses_rewound: bool = True  # ... or to a step that the run will come to again anyhow
    refuses_waiting: bool = True  # ... or to a join, or an item, that waits for others
    keeps_limit: bool = True  # an item that is sent back waits for its turn, too
    waits_for_sends: bool = True  # no repeat while a send of the effect is open
    choice_counts_once: bool = True
    repeats_anew: bool = True  # a repeat has a key of its own
    left: tuple[int, ...] = allow(death=1, freed=1)
    repeats: bool = False  # operators choose to repeat


class Branches:
    """The part of the model that a settlement and the operators' verbs share."""

    def __init__(self, flow: Flow, rules: Rules) -> None:
        self.flow, self.r = flow, rules

    def arrive(self, s: State, n: int, name: str) -> State:
        """The next visit of a step, after row n; at a join, wait for the other branches."""
        if name in self.flow.joins:
            return self.come_to_join(s, n, name)[0]
        return self._take(s, n, name, s.rows[n].item, READY, s.rows[n].gather)[0]

    def _take(self, s: State, n: int, name: str, item: str, st: str, gather: int) -> tuple[State, int]:
        """Make a visit, or take one up again that a redrive went back before."""
        root = "" if self.flow.is_one_branch else s.rows[n].root or name
        change = {"st": st, "came": n, "root": root, "gather": gather, "late": s.rows[n].late}
        change["of_cleanup"] = s.phase is EndingPhase.CLEANUP
        again = [m for m, row in enumerate(s.rows) if row.rewound and (row.name, row.item) == (name, item)]
        own = [m for m in again if s.rows[m].came == n]
        of_all = not self.r.leaves_others or (name in self.flow.joins and self.r.joins_are_shared)
        free = own or [m for m in again if of_all or self._may_take_up(s, m, n)]
        if not free:
            row = Row(name, item)._replace(**change)  # type: ignore[arg-type]
            return s._replace(rows=(*s.rows, row)), len(s.rows)
        return self.stand_again(s, free[0], **change), free[0]

    def _may_take_up(self, s: State, m: int, by: int) -> bool:
        rows = {
            UUID(int=n): Origin(
                came_from=UUID(int=row.came) if row.came >= 0 else None,
                joined=[UUID(int=join) for join in row.joined],
                is_join=row.name in self.flow.joins,
                is_rewound=row.rewound,
                is_open=row.st in OPEN,
            )
            for n, row in enumerate(s.rows)
        }
        return may_take_up(UUID(int=m), UUID(int=by), rows)

    def stand_again(self, s: State, m: int, **change: object) -> State:
        """Take an ended visit up again: its effect and key stay."""
        fresh = {"said": None, "joined": (), "stood": "", "rewound": False, "holder": NOBODY}
        return put(s, m, **{**fresh, **change})

    def come_to_join(self, s: State, n: int, name: str) -> tuple[State, int]:
        """The join that waits, or a new visit of it; keeps who has come."""
        waiting = [m for m in open_rows(s) if s.rows[m].name == name and s.rows[m].st == JOIN]
        if waiting and self.r.join_kept:
            m = waiting[0]
        else:
            late = s.rows[n].late
            s, m = self._take(s, n, name, "", JOIN, -1)
            s = put(s, m, root="", late=late)
        if name in s.rows[n].late:
            s = s._replace(broken="J1 a branch comes to a join that has begun without it")
        return put(s, n, joined=(*s.rows[n].joined, m)), m

    def open_each(self, s: State, n: int, way: Way) -> State:
        """The branches of all items: the first ones READY, the others when it is their turn."""
        join = -1
        if self.r.each_makes_join:
            s, join = self.come_to_join(s, n, way.then)
            s = put(s, join, limit=way.limit)
        for place, item in enumerate(way.items):
            s, _ = self._take(s, n, way.to[0], item, READY if place < way.limit else TURN, join)
        return s

    def begin_turns(self, s: State) -> State:
        """Let the next items of each group begin."""
        for join in {s.rows[n].gather for n in open_rows(s) if s.rows[n].st == TURN}:
            group = [n for n in open_rows(s) if s.rows[n].gather == join]
            begun = {s.rows[n].item for n in group if s.rows[n].st != TURN}
            waiting = [n for n in group if s.rows[n].st == TURN]
            for n in waiting[: max(s.rows[join].limit - len(begun), 0)]:
                s = put(s, n, st=READY)
        return s

    def begin_joins(self, s: State) -> State:
        """Let joins begin that nobody comes to any more. Who is open then must not come to them later."""
        ready = self._ready(s)
        if len({s.rows[m].name for m in ready}) < len(ready):
            s = s._replace(broken="J2 two visits of one join begin for the same branches")
        for m in ready:
            s = self.begins(put(s, m, st=READY), m)
        return s

    def begins(self, s: State, join: int) -> State:
        """Note for the books: who is open now must not come to this join any more."""
        for n in open_rows(s):
            if n != join and s.rows[n].st != JOIN:
                s = put(s, n, late=s.rows[n].late | {s.rows[join].name})
        return s

    def _ready(self, s: State) -> list[int]:
        rows = [(n, s.rows[n]) for n in open_rows(s)]
        joins = [(n, row) for n, row in rows if row.st == JOIN]
        if not joins:
            return []
        if self.r.join == "first":
            return [n for n, _ in joins]
        if self.r.join == "count":
            return [n for n, row in joins if self._comers(s, n) >= self._leads_to(row.name)]
        gathers = self.r.gathers_items
        steps = [
            OpenStep(
                UUID(int=n), row.name, row.st == JOIN, UUID(int=row.gather) if gathers and row.gather >= 0 else None
            )
            for n, row in rows
        ]
        if not self.r.oldest_begins and len(joins) == len(rows) > 1:
            return []
        return [pk.int for pk in joins_ready(steps, self.flow.reaches)]

    def _comers(self, s: State, join: int) -> int:
        return sum(join in row.joined for row in s.rows)

    def _leads_to(self, name: str) -> int:
        return sum(name in self.flow.to(step) for step in self.flow.ways)

    def settle(self, s: State, n: int, way: Way) -> State:
        """A visit ends as its body has decided; what follows begins in the same commit."""
        s = put(s, n, st=FAIL if way.said in ("fail", "collected") else DONE, holder=NOBODY, said=way)
        if way.said == "go":
            for name in way.to:
                s = self.arrive(s, n, name)
        elif way.said == "each":
            s = self.open_each(s, n, way)
        elif way.said != "collected":
            s = self._end(s, n, way)
        if self.lets(s, n):
            s = self.begin_joins(self.begin_turns(s) if self.r.turns else s)
        return self.conclude(s)

    def lets(self, s: State, n: int) -> bool:
        """May this step be tried and waited for?"""
        of_cleanup = s.rows[n].of_cleanup
        return s.run == "live" and goes_on(is_ending=bool(s.why), phase=s.phase, of_cleanup=of_cleanup)

    def _end(self, s: State, n: int, way: Way) -> State:
        if s.rows[n].of_cleanup:
            return s._replace(phase=EndingPhase.CLOSING) if way.said == "fail" else s
        if (s.why or way.said == "fail") and self.r.keeps_ends:
            s = put(s, n, stood="end")
        return s if s.why else self.carry_end(s, n, way)

    def carry_end(self, s: State, n: int, way: Way) -> State:
        """End the run as a step has decided, or let it go on until its other branches have ended too."""
        if way.said == "fail":
            return s._replace(why="failure", paused=False)
        s = s._replace(result=s.result or way.said == "ok")
        others = [m for m in open_rows(s) if m != n]
        return s if others and self.r.ends_with_last else s._replace(run="done")

    def conclude(self, s: State) -> State:
        """End a run that is ending and has become quiet."""
        if s.run != "live":
            return s
        if not s.why:
            return s if open_rows(s) else s._replace(broken="B2 no step is open, and the run has no end")
        for n in open_rows(s):
            if s.rows[n].st == READY and s.rows[n].fx in OPEN_EFFECT and s.phase is not EndingPhase.CLEANUP:
                s = put(s, n, st=RECON)
        following = next_of(self._ending(s))
        if following is Next.WAIT:
            return s
        for n in open_rows(s):
            s = put(s, n, st=SHUT, holder=NOBODY, stood="" if s.rows[n].of_cleanup else s.rows[n].st)
        if following is Next.END:
            return s._replace(run=ENDS[s.why])
        clean_up = Row(self.flow.cleanup, root="clean-up", of_cleanup=True)
        return s._replace(phase=EndingPhase.CLEANUP, rows=(*s.rows, clean_up))

    def _ending(self, s: State) -> Ending:
        settles = self.r.settles_first and (self.r.closes_cleanup or s.phase is not EndingPhase.CLOSING)
        lands = self.r.cancel_waits if not self.flow.cleanup else self.r.lands_first
        return Ending(
            reason=str(EndingReason(s.why if s.why != "limit" else "deadline")),
            phase=s.phase,
            has_cleanup=bool(self.flow.cleanup) and self.r.cleans_up and s.why in ("failure", "cancel"),
            undoes=False,
            has_to_undo=False,
            has_children=False,
            has_open_effects=settles and any(s.rows[n].fx in OPEN_EFFECT for n in open_rows(s)),
            has_open_sends=lands and any(is_busy(s, n) for n in range(len(s.rows))),
            has_open_steps=bool(open_rows(s)),
        )

    def go_on(self, s: State) -> State:
        """Every step that the end had closed stands where it stood; an end that was kept is carried out."""
        for n, row in enumerate(s.rows):
            if row.stood not in ("", "end"):
                s = self.stand_again(s, n, st=row.stood) if row.stood in (JOIN, TURN) else self.begin_again(s, n)
        s = self._end_now(s)
        if self.r.turns_again and s.run == "live" and not s.why:
            s = self.begin_joins(self.begin_turns(s))
        return self.conclude(s)

    def _end_now(self, s: State) -> State:
        """Carry out the ends that were kept; a failure first, and it keeps the others."""
        ends = [(n, row.said) for n, row in enumerate(s.rows) if row.stood == "end" and row.said is not None]
        if self.r.failure_first and any(way.said == "fail" for _, way in ends):
            return s._replace(why="failure", paused=False)
        for n, way in ends:
            s = put(s, n, stood="")
            s = self.carry_end(s, n, way) if s.run == "live" else s._replace(result=s.result or way.said == "ok")
        return s

    def begin_again(self, s: State, n: int) -> State:
        """Make a visit READY once more; an item behind those that are under way, when they are as many as may be."""
        row = s.rows[n]
        begun = {
            one.item
            for one in s.rows
            if one.gather == row.gather and one.item != row.item and (one.stood or one.st) in OPEN - {TURN}
        }
        has_turn = row.st in OPEN or row.gather < 0 or len(begun) < s.rows[row.gather].limit
        s = self.stand_again(s, n, st=READY if has_turn or not self.r.keeps_limit else TURN)
        return self.begins(s, n) if row.name in self.flow.joins else s

    def broken(self, s: State) -> str:
        """Invariants of a state."""
        if s.broken:
            return s.broken
        if s.run != "live" and any(row.fx in OPEN_EFFECT for row in s.rows):
            return "P15 the run ended while an effect is open"
        if self.flow.cleanup and s.run in ("failed", "cancelled") and not self._is_given_back(s):
            return "P8 the run ended with what it holds, and nobody is told"
        if dict(s.books) and any(count > 1 + dict(s.chosen).get(name, 0) for name, count in s.books):
            return "R1 an effect is done again that nobody chose to repeat"
        joins = [row.name for row in s.rows if row.st == JOIN]
        if len(joins) > len(set(joins)):
            return "J2 two visits of a join wait at once"
        for join, row in enumerate(s.rows):
            under_way = {one.item for one in s.rows if one.gather == join and one.st in OPEN - {TURN}}
            if len(under_way) > row.limit:
                return "J3 more items are under way than may be"
        return self._at_success(s) if s.run == "done" else ""

    def _is_given_back(self, s: State) -> bool:
        """Nothing was taken, or the clean-up is done, or was given up: that is an alert."""
        took = any(row.fx == "C" and not row.of_cleanup for row in s.rows)
        return not took or s.phase is EndingPhase.CLOSING or any(row.of_cleanup and row.st == DONE for row in s.rows)

    def _at_success(self, s: State) -> str:
        """When all is done, nothing that counts may have been left."""
        if any(row.st in OPEN for row in s.rows):
            return "B1 the run succeeded while a branch is open"
        for n, row in enumerate(s.rows):
            if row.rewound or row.said is None:
                continue
            if row.said.said == "fail":
                return "E1 a failure is forgotten"
            if row.said.said == "ok" and not s.result:
                return "E2 a result is lost"
            if row.fx == "C" and not dict(s.books).get(f"{row.name} {row.item} {row.root}"):
                return "R2 an effect of another branch is taken for one's own"
            if not self._was_followed(s, n, row.said):
                return "B3 a branch is lost"
        return ""

    def _was_followed(self, s: State, n: int, way: Way) -> bool:
        ended = [m for m, row in enumerate(s.rows) if row.st in (DONE, FAIL) and not row.rewound]
        led_to = {s.rows[m].name for m in ended if s.rows[m].came == n or m in s.rows[n].joined}
        wanted = (
            way.to if way.said == "go" else (way.then, *(way.to if way.items else ())) if way.said == "each" else ()
        )
        return led_to >= set(wanted)
