"""Searches every state that a model can reach: invariants, a shortest way to what breaks, and whether all can end.

A model is a value that names its first state and the moves of each state. A database transaction is one move; an
outside call is several. Time is not counted: that it has passed is a move. Faults draw on small allowances, so that the
search ends. Nothing here knows the engine.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

DO, TIME, HUMAN, FAULT = "do", "time", "human", "fault"
"""Who makes a move: the engine, the clock, a person, bad luck."""
LIMBO = "limbo: no way to an end"
STUCK = "limbo: stuck, and nobody is asked"

S = TypeVar("S")


class Move(NamedTuple, Generic[S]):
    """One move. `broken`: the invariant that making it breaks."""

    kind: str
    label: str
    to: S
    broken: str = ""


class Model(Protocol[S]):
    """What can be searched."""

    def start(self) -> S:
        """The first state."""

    def moves(self, state: S) -> Iterable[Move[S]]:
        """All that may happen next."""

    def broken(self, state: S) -> str:
        """The invariant that this state breaks, or ''."""

    def has_ended(self, state: S) -> bool:
        """Is this an end?"""

    def rests(self, state: S) -> bool:
        """May it stay so until a person does something?"""

    def plain(self, state: S) -> S:
        """One name for all states that differ in nothing that matters."""


@dataclass(frozen=True)
class Found:
    """What a search has come to. `trace`: a shortest way to what is broken."""

    states: int
    broken: str = ""
    trace: tuple[str, ...] = ()


@dataclass
class _Graph(Generic[S]):
    states: list[S]
    index: dict[S, int]
    parent: list[tuple[int, str]]
    back: list[list[tuple[int, str]]]

    def add(self, state: S, came_from: int, label: str) -> int:
        n = self.index[state] = len(self.states)
        self.states.append(state)
        self.parent.append((came_from, label))
        self.back.append([])
        return n

    def trail(self, n: int) -> tuple[str, ...]:
        steps = []
        while n:
            n, label = self.parent[n]
            steps.append(label)
        return tuple(reversed(steps))


def search(model: Model[S], *, limit: int = 2_000_000) -> Found:
    """Search all of a model, breadth first. What is broken is told by its shortest trace."""
    first = model.plain(model.start())
    graph = _Graph([first], {first: 0}, [(0, "")], [[]])
    ahead = deque([0])
    while ahead:
        n = ahead.popleft()
        for move, state in _moves(model, graph.states[n]):
            m = graph.index.get(state)
            if m is None:
                m = graph.add(state, n, move.label)
                ahead.append(m)
            bad = move.broken or model.broken(state)
            if bad:
                return Found(len(graph.states), bad, (*graph.trail(n), move.label))
            if move.kind != FAULT:
                graph.back[m].append((n, move.kind))
        if len(graph.states) > limit:
            raise AssertionError(f"more than {limit} states: the model is not bounded enough")
    return _limbo(model, graph)


def _moves(model: Model[S], state: S) -> Iterator[tuple[Move[S], S]]:
    for move in model.moves(state):
        if move.to != state or move.broken:
            yield move, model.plain(move.to)


def _limbo(model: Model[S], graph: _Graph[S]) -> Found:
    """Can each state come to an end without faults, and without people to where it may rest?"""
    asks: list[tuple[str, Callable[[S], bool], tuple[str, ...]]] = [
        (LIMBO, model.has_ended, (DO, TIME, HUMAN)),
        (STUCK, lambda state: model.has_ended(state) or model.rests(state), (DO, TIME)),
    ]
    for what, is_goal, kinds in asks:
        good = [is_goal(state) for state in graph.states]
        ahead = deque(n for n, ok in enumerate(good) if ok)
        while ahead:
            for n, kind in graph.back[ahead.popleft()]:
                if kind in kinds and not good[n]:
                    good[n] = True
                    ahead.append(n)
        if not all(good):
            return Found(len(good), what, graph.trail(good.index(False)))
    return Found(len(graph.states))
