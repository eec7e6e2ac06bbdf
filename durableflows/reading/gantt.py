"""A run's steps on a line of time: when each was tried, and when it waited. Numbers for a drawing; reads no rows.

The scale bends: between two things that happened a span is drawn by the logarithm of its length, so that a try of
a second is seen beside a wait of days. What is written beside the drawing has the true times.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import log2
from uuid import UUID

from durableflows.core.states import StepState
from durableflows.explain_words import state_words
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.reading.window import EPOCH
from durableflows.templatetags.durableflows import lasted

FULL = 1000
THINNEST = 6
"""Of FULL: what is shorter is drawn so wide, to be seen."""
TICKS = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A span on the line: from where, how wide, and what it was: work, wait, or how a try ended."""

    x: int
    width: int
    look: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One step on the line, in numbers and in words."""

    step: StepRun
    tries: Sequence[StepAttempt]
    bars: list[Bar]
    standing: str
    worked: str
    waited: str


@dataclass(frozen=True, slots=True)
class Chart:
    """All lanes, and moments to hold on to: where on the line, and when."""

    lanes: list[Lane]
    ticks: list[tuple[int, datetime]]
    full: int = FULL


def chart(
    run: WorkflowRun, steps: Sequence[StepRun], tries: Mapping[UUID, Sequence[StepAttempt]], now: datetime
) -> Chart:
    """Put the steps on the line, in the order in which they were made."""
    end = run.ended_at or now
    spans = [(step, tries.get(step.pk, ())) for step in steps]
    scale = Scale([run.created_at, end, *_moments(spans)], end)
    lanes = [_lane(step, made, scale, end) for step, made in spans]
    return Chart(lanes, scale.ticks())


def _moments(spans: Sequence[tuple[StepRun, Sequence[StepAttempt]]]) -> Iterator[datetime]:
    for step, made in spans:
        for at in (step.created_at, step.ended_at, *(at for one in made for at in (one.started_at, one.ended_at))):
            if at is not None:
                yield at


class Scale:
    """From moments to places between 0 and FULL."""

    def __init__(self, moments: Sequence[datetime], end: datetime) -> None:
        self.moments = sorted({min(at, end) for at in moments})
        spans = [log2(1 + (b - a).total_seconds() * 20) + 0.2 for a, b in pairwise(self.moments)]
        total, reached = sum(spans) or 1.0, 0.0
        self.places = [0]
        for span in spans:
            reached += span
            self.places.append(round(reached / total * FULL))

    def place(self, at: datetime) -> int:
        """Where a moment lies: one of those that the scale was made of, or the end."""
        return self.places[min(bisect_left(self.moments, at), len(self.places) - 1)]

    def ticks(self) -> list[tuple[int, datetime]]:
        """A few moments, far enough from each other to be written."""
        shown: list[tuple[int, datetime]] = []
        for at, place in zip(self.moments, self.places, strict=True):
            if not shown or place - shown[-1][0] >= FULL // TICKS:
                shown.append((place, at))
        return shown


def _lane(step: StepRun, made: Sequence[StepAttempt], scale: Scale, end: datetime) -> Lane:
    stop = step.ended_at or end
    whole = _bar(step.created_at, stop, "wait" if step.state != StepState.WAITING_HUMAN else "person", scale)
    bars = [whole, *(_bar(one.started_at, one.ended_at or stop, _look(one), scale) for one in made)]
    busy = sum(((one.ended_at or stop) - one.started_at).total_seconds() for one in made)
    idle = max(0.0, (stop - step.created_at).total_seconds() - busy)
    return Lane(step, made, bars, state_words(step.state, "steprun"), _span(busy), _span(idle))


def _look(one: StepAttempt) -> str:
    if one.ended_at is None:
        return "work"
    return "bad" if one.error_class or one.outcome.lower() in ("failed", "lost") else "good"


def _bar(start: datetime, stop: datetime, look: str, scale: Scale) -> Bar:
    x = scale.place(start)
    width = max(scale.place(max(start, stop)) - x, THINNEST)
    return Bar(min(x, FULL - THINNEST), min(width, FULL - min(x, FULL - THINNEST)), look)


def _span(seconds: float) -> str:
    """How long, in words; "" for nothing."""
    return lasted(EPOCH, EPOCH + timedelta(seconds=seconds)) if seconds > 0 else ""
