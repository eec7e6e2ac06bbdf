"""The charts of the dashboard: bars and spans as numbers for a drawing that stretches. Pure; reads no rows.

A drawing is FULL high and has a column of COLUMN for each hour; what is written stands beside it, not in it, so that
letters keep their size on every screen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil, log

from durableflows.core.states import RunState
from durableflows.reading.ends import Hour

FULL, COLUMN, GAP = 1000, 100, 12
THINNEST = 8
LABELS_EVERY = 6
GOOD = frozenset({RunState.SUCCEEDED})
CALM = frozenset({RunState.CANCELLED, RunState.COMPENSATED, RunState.ABANDONED})
LOOKS: Mapping[str, str] = {"good": "ended well", "calm": "called off, undone or given up", "bad": "failed"}
"""What a bar is made of, from the bottom, and the words for it."""
MARKS: Sequence[tuple[float, str]] = (
    *((0.01, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h")),
    *((6 * 3600, "6 h"), (86400, "1 day"), (7 * 86400, "7 days"), (30 * 86400, "30 days"), (365 * 86400, "1 year")),
)
"""Where a span's scale has a line: each as far from the next, and between them by the logarithm."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a column: where it begins from the top, how high it is, and its look."""

    y: int
    height: int
    look: str


@dataclass(frozen=True, slots=True)
class Column:
    """One hour: from where, what is drawn, and what it means in words."""

    x: int
    bars: list[Bar]
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`labels`: of the lines across, from the top; `hours`: what is written below, where each part begins."""

    columns: list[Column]
    labels: list[str]
    hours: list[datetime]
    summary: str
    width: int
    lines: list[int]
    bar_width: int = COLUMN - 2 * GAP
    full: int = FULL


def look_of(state: str) -> str:
    """How an end is drawn."""
    return "good" if state in GOOD else "calm" if state in CALM else "bad"


def throughput(hours: Sequence[Hour], words: Sequence[str]) -> Chart | None:
    """How many runs have ended in each hour; None for none. `words`: each hour, said."""
    most = max(hour.total for hour in hours)
    if not most:
        return None
    top = _round_top(most)
    columns = [_column(number, list(_stack(hour, top)), words[number]) for number, hour in enumerate(hours)]
    total = sum(hour.total for hour in hours)
    summary = f"{total:,} ended in {len(hours)} hours, at most {most:,} in one of them."
    return _chart(columns, [f"{top:,}", f"{top // 2:,}", "0"], hours, summary)


def latency(hours: Sequence[Hour], words: Sequence[str]) -> Chart | None:
    """From half to 95 % of the runs that ended well in each hour; None where none did."""
    spans = {number: span for number, hour in enumerate(hours) if (span := _span(hour)) is not None}
    if not spans:
        return None
    marks = _marks_around([seconds for span in spans.values() for seconds in span])
    columns = [_column(number, _reach(spans.get(number), marks), words[number]) for number in range(len(hours))]
    names = [name for _, name in reversed(marks)]
    slowest = max(span[1] for span in spans.values())
    summary = f"In the slowest hour 95 % were done within {said(timedelta(seconds=slowest))}."
    return _chart(columns, names, hours, summary)


def said(took: timedelta | None) -> str:
    """A span of time in two numbers at most: "42 ms", "3 min 20 s", "2 d 4 h"; a dash for none."""
    if took is None:
        return "–"
    seconds = max(0.0, took.total_seconds())
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, place = next((size, place) for place, (size, _) in enumerate(units) if seconds >= size)
    whole, rest = divmod(int(seconds), size)
    smaller, name = units[place + 1]
    return f"{whole} {units[place][1]}" + (f" {rest // smaller} {name}" if rest // smaller else "")


def _chart(columns: list[Column], labels: list[str], hours: Sequence[Hour], summary: str) -> Chart:
    below = [hour.start for hour in hours[::LABELS_EVERY]]
    lines = [FULL * number // (len(labels) - 1) for number in range(len(labels))]
    return Chart(columns, labels, below, summary, len(hours) * COLUMN, lines)


def _column(number: int, bars: list[Bar], words: str) -> Column:
    return Column(number * COLUMN + GAP, bars, words)


def _stack(hour: Hour, top: int) -> Iterator[Bar]:
    """The parts of a bar, from the bottom: what is there is seen, however little it is."""
    floor = FULL
    for look in LOOKS:
        count = sum(count for state, count in hour.ended.items() if look_of(state) == look)
        if count:
            height = min(floor, max(THINNEST, round(FULL * count / top)))
            floor -= height
            yield Bar(floor, height, look)


def _round_top(most: int) -> int:
    """The next even number of one figure: 2, 4, 6, 8, 10, 20, 40 …"""
    size = int(10 ** (len(str(most)) - 1))
    return next(top for top in (1 * size, 2 * size, 4 * size, 6 * size, 8 * size, 10 * size) if top >= most and top > 1)


def _span(hour: Hour) -> tuple[float, float] | None:
    if hour.half_within is None or hour.most_within is None:
        return None
    return hour.half_within.total_seconds(), hour.most_within.total_seconds()


def _marks_around(seconds: Sequence[float]) -> list[tuple[float, str]]:
    """The marks from the last one below all values to the first one above them; two at least."""
    below = [place for place, (mark, _) in enumerate(MARKS) if mark <= min(seconds)]
    above = [place for place, (mark, _) in enumerate(MARKS) if mark >= max(seconds)]
    first = below[-1] if below else 0
    last = above[0] if above else len(MARKS) - 1
    return list(MARKS[min(first, len(MARKS) - 2) : max(last, first + 1) + 1])


def _reach(span: tuple[float, float] | None, marks: Sequence[tuple[float, str]]) -> list[Bar]:
    """From the half to the 95 %, with a thick end where the half is."""
    if span is None:
        return []
    half, most = (_height(seconds, marks) for seconds in span)
    cap = 2 * THINNEST
    half = min(half, FULL - cap)
    return [
        Bar(FULL - max(most, half + cap), max(most - half, cap), "reach"),
        Bar(FULL - half - cap, cap, "half"),
    ]


def _height(seconds: float, marks: Sequence[tuple[float, str]]) -> int:
    """How high a span stands, of FULL."""
    step = FULL / (len(marks) - 1)
    for number, ((low, _), (high, _)) in enumerate(pairwise(marks)):
        if seconds <= high:
            part = log(max(seconds, low) / low) / log(high / low)
            return ceil(step * (number + part))
    return FULL
