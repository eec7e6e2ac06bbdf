"""The rows of one run with branches, as values, and what a workflow of the models declares.

Read by `run`, which moves them. Source: models/step.py, core/definition.py, services/redrive.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from durableflows.core.states import EndingPhase

READY, RUN, JOIN, TURN, RECON = "READY", "RUNNING", "WAITING branches", "WAITING turn", "NEEDS_RECONCILIATION"
DONE, FAIL, SHUT = "SUCCEEDED", "FAILED_PERMANENT", "CANCELLED"
OPEN = frozenset({READY, RUN, JOIN, TURN, RECON})
NOBODY, DEAD = -1, 8
"""A lease without a holder, and one whose holder is gone."""
OPEN_EFFECT = ("D", "U")


class Way(NamedTuple):
    """One thing that a body may decide. `items`: of the step `to[0]`, gathered by the join `then`."""

    said: str  # go, each, ok (the run succeeds, with a result), end (it succeeds without), fail, collected (an item)
    to: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    then: str = ""
    limit: int = 9
    once: bool = False  # only on a branch's first visit: a loop that ends


@dataclass(frozen=True)
class Flow:
    """A declared workflow. Steps in `joins` gather, those in `pays` have one effect."""

    ways: Mapping[str, tuple[Way, ...]]
    joins: frozenset[str] = frozenset()
    pays: frozenset[str] = frozenset()
    cleanup: str = ""  # the step that gives back what a run holds that has failed or was cancelled
    is_one_branch: bool = False  # all effects of a step are for the same purpose, by whatever way the run comes
    edges: Mapping[str, tuple[str, ...]] | None = None  # the declared `to`, when more is declared than is gone

    @cached_property
    def reaches(self) -> dict[str, frozenset[str]]:
        """For each step, all that a run can come to from it."""
        return {name: frozenset(self._from(name)) for name in self.ways}

    def _from(self, name: str) -> set[str]:
        found: set[str] = set()
        ahead = list(self.to(name))
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead.extend(self.to(one))
        return found

    def to(self, name: str) -> tuple[str, ...]:
        """The steps that this one declares."""
        if self.edges is not None and name in self.edges:
            return self.edges[name]
        return tuple(one for way in self.ways[name] for one in (*way.to, way.then) if one)


class Row(NamedTuple):
    """A visit of a step, with the effect that it may have."""

    name: str
    item: str = ""
    root: str = ""  # the branch that it belongs to, for the books
    st: str = READY
    holder: int = NOBODY
    came: int = -1
    joined: tuple[int, ...] = ()
    gather: int = -1
    limit: int = 9
    begun: int = 0  # how many rows there were when it first began; 0: it never has
    said: Way | None = None
    fx: str = "-"  # its effect: - none, D dispatched, U unknown, C confirmed
    issue: int = 1
    choice: bool = False  # an operator wants it once more
    stood: str = ""  # kept for who lets the run go on: a state, or `end`
    rewound: bool = False
    of_cleanup: bool = False
    late: frozenset[str] = frozenset()  # joins that have begun without waiting for this one


class Worker(NamedTuple):
    """Where a worker is at a row: started, sent, acted, lost (no answer), known (the effect is settled)."""

    row: int = -1
    at: str = ""
    base: int = 0
    issue: int = 0  # of the effect that it sends


class State(NamedTuple):
    """`data`: the visits whose changes the run's state holds. `books`: what the provider did, for whom, how often."""

    rows: tuple[Row, ...]
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    run: str = "live"  # live, or its end: done, failed, limit, cancelled
    why: str = ""  # it is ending: limit, failure, cancel
    phase: EndingPhase = EndingPhase.SETTLING
    paused: bool = False
    data: int = 0
    result: bool = False
    keys: frozenset[tuple[int, int]] = frozenset()  # that the provider has acted on: visit, issue
    books: tuple[tuple[str, int], ...] = ()
    chosen: tuple[tuple[str, int], ...] = ()
    left: tuple[int, ...] = ()  # allowances, by the places below
    broken: str = ""


ALLOWANCES = ("death", "freed", "lost", "limit", "extend", "redrive", "pause", "cancel")
DEATH, FREED, LOST, LIMIT, EXTEND, REDRIVE, PAUSE, CANCEL = range(8)


def allow(**more: int) -> tuple[int, ...]:
    """How often each fault and each verb may come; the others never."""
    assert set(more) <= set(ALLOWANCES)
    return tuple(more.get(name, 0) for name in ALLOWANCES)


def put(s: State, n: int, **change: object) -> State:
    """Write a row."""
    rows = list(s.rows)
    rows[n] = rows[n]._replace(**change)  # type: ignore[arg-type]
    return s._replace(rows=tuple(rows))


def at(s: State, i: int, worker: Worker) -> State:
    """Move a worker."""
    other = s.workers[1 - i]
    return s._replace(workers=(worker, other) if i == 0 else (other, worker))


def spend(s: State, what: int) -> State:
    """Use an allowance up by one."""
    left = list(s.left)
    left[what] -= 1
    return s._replace(left=tuple(left))


def counted(book: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    """A book with one more."""
    counts = dict(book)
    counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts.items()))


def purpose(row: Row) -> str:
    """For whom an effect is done: the same for each walk over the same ground."""
    return f"{row.name} {row.item} {row.root}"


def open_rows(s: State) -> list[int]:
    """The rows that have not ended, oldest first."""
    return [n for n, row in enumerate(s.rows) if row.st in OPEN]


def is_busy(s: State, n: int) -> bool:
    """May a request of this row be on its way: is a send of it open?"""
    return any(worker.row == n and worker.at in ("sent", "acted", "lost") for worker in s.workers)
