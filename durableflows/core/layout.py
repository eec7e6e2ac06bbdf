"""A workflow's graph as a picture: which step stands where, and the way of each arrow. Pure; draws nothing itself.

Layers from top to bottom, by the longest way from the start; an arrow that leads back, and one that passes a layer,
gets places of its own between the steps, so that no line runs through a box. Source: Sugiyama, Tagawa and Toda (1981).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from durableflows.core.definition import StepDefinition

WIDTH, HEIGHT, ACROSS, DOWN, NARROW = 168, 46, 28, 54, 16
"""A box, the room between boxes beside and below each other, and what an arrow takes that passes between them."""
TURNS = 6
"""So often the layers are sorted by where their neighbours stand."""

Place = tuple[str, str, int]
"""A step, or a point of an arrow between two steps: from, to, layer."""


@dataclass(frozen=True, slots=True)
class Box:
    """A step: its left upper corner."""

    name: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from a step to another, through these points. `when`: "" for whatever the body returns."""

    source: str
    target: str
    when: str
    points: tuple[tuple[int, int], ...]
    is_back: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and arrows on a sheet of this size."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def edges(step: StepDefinition) -> Iterator[tuple[str, str]]:
    """Where a run can go from a step, and when: "" for whatever the body returns."""
    if step.approval is not None:
        yield step.approval.approved, "approved"
        yield step.approval.rejected, "rejected"
        if step.approval.fallback:
            yield step.approval.fallback, "nobody answered"
    else:
        yield from ((to, "") for to in step.to)
    if step.on_refused is not None:
        yield step.on_refused, "refused"
    if step.on_failure is not None:
        yield step.on_failure, "failed"


def layout(steps: Mapping[str, StepDefinition], start: str) -> Picture:
    """Place each step of a workflow. Steps that a clean-up begins with stand on top, as the start does."""
    ways: dict[tuple[str, str], list[str]] = {}
    for step in steps.values():
        for to, when in edges(step):
            ways.setdefault((step.name, to), []).append(when)
    back = _backward([start, *steps], ways)
    forward = [(target, source) if (source, target) in back else (source, target) for source, target in ways]
    forward = [pair for pair in dict.fromkeys(forward) if pair[0] != pair[1]]
    layer = _layers(list(steps), forward)
    rows = _sorted_rows(layer, forward)
    return _drawn(rows, ways, back, layer)


def _backward(names: Sequence[str], ways: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that lead back to a step that the way to them has come through."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for source, target in ways:
        after[source].append(target)
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    for first in names:
        trail: list[tuple[str, Iterator[str]]] = [(first, iter(after[first]))] if first not in done else []
        on_trail = {first}
        while trail:
            name, ahead = trail[-1]
            following = next(ahead, None)
            if following is None:
                done.add(name)
                on_trail.discard(name)
                trail.pop()
            elif following in on_trail:
                back.add((name, following))
            elif following not in done:
                on_trail.add(following)
                trail.append((following, iter(after[following])))
    return back


def _layers(names: Sequence[str], forward: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The length of the longest way that leads to each step."""
    layer = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for source, target in forward:
            if layer[target] <= layer[source]:
                layer[target], moved = layer[source] + 1, True
        if not moved:
            break
    return layer


def _sorted_rows(layer: Mapping[str, int], forward: Sequence[tuple[str, str]]) -> list[list[Place]]:
    """Who stands in each layer, in an order in which few arrows cross."""
    rows: list[list[Place]] = [[] for _ in range(max(layer.values()) + 1)]
    for name, number in layer.items():
        rows[number].append((name, "", number))
    near: dict[Place, list[Place]] = {place: [] for row in rows for place in row}
    for source, target in forward:
        chain = _chain(source, target, layer)
        for place in chain[1:-1]:
            rows[place[2]].append(place)
        for one, other in pairwise(chain):
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
    for turn in range(TURNS):
        for row in rows if turn % 2 == 0 else rows[::-1]:
            at = {place: _middle(index, other) for other in rows for index, place in enumerate(other)}
            aim = {place: _mean([at[one] for one in near[place]], at[place]) for place in row}
            row.sort(key=aim.__getitem__)
    return rows


def _chain(source: str, target: str, layer: Mapping[str, int]) -> list[Place]:
    """An arrow's places from layer to layer."""
    between = [(source, target, number) for number in range(layer[source] + 1, layer[target])]
    return [(source, "", layer[source]), *between, (target, "", layer[target])]


def _middle(index: int, row: Sequence[Place]) -> float:
    return index - (len(row) - 1) / 2


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _drawn(
    rows: Sequence[Sequence[Place]],
    ways: Mapping[tuple[str, str], Sequence[str]],
    back: set[tuple[str, str]],
    layer: Mapping[str, int],
) -> Picture:
    spans = [sum(_wide(place) + ACROSS for place in row) - ACROSS for row in rows]
    width, height = max(spans) + 2 * ACROSS, len(rows) * (HEIGHT + DOWN) - DOWN // 2
    at: dict[Place, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        x = (width - spans[number]) // 2
        for place in row:
            at[place] = (x + _wide(place) // 2, DOWN // 4 + number * (HEIGHT + DOWN))
            x += _wide(place) + ACROSS
    boxes = tuple(Box(name, x - WIDTH // 2, y) for (name, to, _), (x, y) in at.items() if not to)
    arrows = tuple(
        Arrow(*pair, ", ".join(filter(None, whens)), _points(pair, at, back, layer), pair in back)
        for pair, whens in ways.items()
    )
    return Picture(width, height, boxes, arrows)


def _wide(place: Place) -> int:
    return NARROW if place[1] else WIDTH


def _points(
    pair: tuple[str, str], at: Mapping[Place, tuple[int, int]], back: set[tuple[str, str]], layer: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """From the foot of one box to the head of the other; of an arrow back, from the head to the foot."""
    source, target = pair
    if source == target:
        x, y = at[(source, "", layer[source])]
        side, middle = x + WIDTH // 2, y + HEIGHT // 2
        return (side, middle - 10), (side + ACROSS // 2, middle), (side, middle + 10)
    upper, lower = (target, source) if pair in back else (source, target)
    chain = [at[place] for place in _chain(upper, lower, layer)]
    shift = 12 if pair in back else 0
    (first_x, first_y), *inner, (last_x, last_y) = chain
    # Between two boxes the line runs straight down through the layer that it passes.
    passed = [point for x, y in inner for point in ((x + shift, y), (x + shift, y + HEIGHT))]
    points = ((first_x + shift, first_y + HEIGHT), *passed, (last_x + shift, last_y))
    return points[::-1] if pair in back else points
