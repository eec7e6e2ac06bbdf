"""Which schedules are played: first every single fault, then every boundary with every provider behaviour and every
message fault, then mixtures drawn by a seed. Pure: the same survey, number and seed give the same list.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from random import Random

from durableflows.boundaries import Boundary
from durableflows.testing.faults import (
    EVENT,
    MESSAGE,
    OUTSIDE,
    PERSON,
    PLACES,
    Behaviour,
    Fault,
    Post,
    Schedule,
    Strike,
    Telling,
    Verdict,
    schedule,
)

MOST_FAULTS = 4
DEEPEST = 3
"""How often something comes by at a place before a single fault there is left to chance."""

FAULTY = tuple(behaviour for behaviour in Behaviour if behaviour is not Behaviour.ANSWERS)

# Not crossed when all goes well: what brings a worker there.
PROVOKED: Mapping[Boundary, tuple[str, str]] = {
    Boundary.TIMER_BEFORE_COMMIT: (Behaviour.REFUSED, ""),
    Boundary.TIMER_AFTER_COMMIT: (Behaviour.REFUSED, ""),
    Boundary.LOOKUP_BEFORE_COMMIT: (Behaviour.ANSWER_LOST, ""),
    Boundary.LOOKUP_AFTER_COMMIT: (Behaviour.ANSWER_LOST, ""),
    Boundary.PROVIDER_EVENT_BEFORE_COMMIT: (Telling.TOLD, EVENT),
    Boundary.PROVIDER_EVENT_AFTER_COMMIT: (Telling.TOLD, EVENT),
    Boundary.EVENT_JUDGED_BEFORE_COMMIT: (Telling.TOLD, EVENT),
    Boundary.EVENT_JUDGED_AFTER_COMMIT: (Telling.TOLD, EVENT),
    Boundary.CANCEL_BEFORE_COMMIT: (Strike.CANCEL, PLACES[Boundary.CLAIM_AFTER_COMMIT]),
    Boundary.CANCEL_AFTER_COMMIT: (Strike.CANCEL, PLACES[Boundary.CLAIM_AFTER_COMMIT]),
    Boundary.CLEANUP_BEFORE_COMMIT: (Strike.CANCEL, PLACES[Boundary.CLAIM_AFTER_COMMIT]),
    Boundary.CLEANUP_BEFORE_SEND: (Strike.CANCEL, PLACES[Boundary.CLAIM_AFTER_COMMIT]),
    Boundary.UNDO_BEFORE_COMMIT: (Strike.CANCEL, PLACES[Boundary.EFFECT_AFTER_RECEIPT]),
    Boundary.UNDO_BEFORE_SEND: (Strike.CANCEL, PLACES[Boundary.EFFECT_AFTER_RECEIPT]),
}
BESIDE_BEHAVIOUR = frozenset({str(Strike.CANCEL), str(Telling.TOLD)})
"""What brings somebody to a boundary whatever the provider does."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a run meets when nothing goes wrong. `pending`: effects whose provider can say "not done yet".

    `cleans_up`: a cancel leads to a clean-up; `undoes`: it lets be undone what was done;
    `events`: how many its providers could send on their own.
    """

    crossed: Mapping[Boundary, int]
    messages: int
    requests: int
    effects: tuple[str, ...]
    pending: Collection[str] = ()
    cleans_up: bool = False
    events: int = 0
    undoes: bool = False

    def behaviours(self, effect: str) -> list[Behaviour]:
        """What the provider of an effect may do besides answering."""
        return [one for one in FAULTY if one is not Behaviour.PENDING or effect in self.pending]

    @property
    def boundaries(self) -> list[Boundary]:
        """What is crossed, or can be brought about."""
        return [boundary for boundary in Boundary if boundary in self.crossed or self._can_be_provoked(boundary)]

    def _can_be_provoked(self, boundary: Boundary) -> bool:
        if boundary in PROVOKED and PROVOKED[boundary][1] == EVENT:
            return self.events > 0
        if boundary not in PROVOKED or (boundary.name.startswith("CLEANUP") and not self.cleans_up):
            return False
        if boundary.name.startswith("UNDO") and not self.undoes:
            return False
        return bool(self.effects) or PROVOKED[boundary][0] == Strike.CANCEL


def plan(survey: Survey, count: int, seed: int) -> list[Schedule]:
    """So many schedules: of single faults, pairs and triples all where there is room, else an even part, then mixtures.

    Each kind gets at most half of what the kinds before it have left.
    """
    planned: list[Schedule] = []
    for kind in (single_faults, pairs, triples):
        planned += spread(unique(kind(survey)), (count - len(planned) + 1) // 2)
    drawn = mixtures(survey, Random(seed))  # noqa: S311 - to be played again
    return [*planned, *(next(drawn) for _ in range(count - len(planned)))]


def unique(schedules: Iterable[Schedule]) -> list[Schedule]:
    """Each one once, in order."""
    return list(dict.fromkeys(schedules))


def spread(schedules: Sequence[Schedule], room: int) -> list[Schedule]:
    """All of them, or an even part in the same order."""
    if len(schedules) <= room:
        return list(schedules)
    return [schedules[place * len(schedules) // room] for place in range(room)]


def single_faults(survey: Survey) -> Iterator[Schedule]:
    """No fault; then each strike, behaviour, message fault and verdict alone."""
    yield Schedule()
    for effect in survey.effects:
        for behaviour in survey.behaviours(effect):
            yield schedule([Fault(behaviour, effect)])
    for boundary in survey.boundaries:
        for nth in range(1, min(survey.crossed.get(boundary, 1), DEEPEST) + 1):
            for strike in _strikes(boundary):
                yield schedule([Fault(strike, PLACES[boundary], nth), *_provoke(survey, boundary)])
    for nth in range(1, survey.messages + 1):
        for what in (*Post, Strike.CANCEL):
            yield schedule([Fault(what, MESSAGE, nth)])
    for nth in range(1, survey.requests + 1):
        for verdict in Verdict:
            yield schedule([Fault(verdict, PERSON, nth)])
    yield from _tellings(survey)


def _tellings(survey: Survey) -> Iterator[Schedule]:
    """Each way in which an event comes; of what is pending the two events in each order, and after a lost answer."""
    for nth in range(1, min(survey.events, DEEPEST) + 1):
        for how in Telling:
            yield schedule([Fault(how, EVENT, nth)])
    for effect in survey.pending if survey.events else ():
        for first, second in product(Telling, Telling):
            yield schedule([Fault(Behaviour.PENDING, effect), Fault(first, EVENT, 1), Fault(second, EVENT, 2)])
    for effect in survey.effects if survey.events else ():
        for behaviour, how in product((Behaviour.ANSWER_LOST, Behaviour.SLOW), Telling):
            yield schedule([Fault(behaviour, effect), Fault(how, EVENT, 1)])


def pairs(survey: Survey) -> Iterator[Schedule]:
    """Each boundary with each behaviour of each provider."""
    for strike, behaviour, provoked in _pairs(survey):
        yield schedule([strike, behaviour, *provoked])


def triples(survey: Survey) -> Iterator[Schedule]:
    """A crash at each boundary with each behaviour and each message fault; the messages take turns."""
    numbers = cycle(range(1, max(survey.messages, 1) + 1))
    for post in Post:
        for strike, behaviour, provoked in _pairs(survey):
            if strike.what == Strike.CRASH:
                yield schedule([strike, behaviour, *provoked, Fault(post, MESSAGE, next(numbers))])


def _pairs(survey: Survey) -> Iterator[tuple[Fault, Fault, list[Fault]]]:
    """A strike, a behaviour that a worker meets at about the same time, and what else it takes to come by there."""
    for boundary in survey.boundaries:
        for place, effect in enumerate(survey.effects, start=1):
            for behaviour in survey.behaviours(effect):
                for nth in _times(boundary, place):
                    for strike in _strikes(boundary):
                        provoked = [one for one in _provoke(survey, boundary) if one.what in BESIDE_BEHAVIOUR]
                        yield Fault(strike, PLACES[boundary], nth), Fault(behaviour, effect), provoked


def _times(boundary: Boundary, place: int) -> tuple[int, ...]:
    """At an effect's boundaries: when this effect is sent, and when it is sent again."""
    return (place, place + 1) if boundary.name.startswith("EFFECT") else (1,)


def mixtures(survey: Survey, rng: Random) -> Iterator[Schedule]:
    """Draw two to four faults, for ever."""
    kinds = [_draw_strike, _draw_strike, _draw_post]
    kinds += [_draw_behaviour, _draw_behaviour] if survey.effects else []
    kinds += [_draw_verdict] if survey.requests else []
    kinds += [_draw_telling] if survey.events else []
    while True:
        yield schedule(rng.choice(kinds)(survey, rng) for _ in range(rng.randint(2, MOST_FAULTS)))


def _draw_strike(survey: Survey, rng: Random) -> Fault:
    boundary = rng.choice(survey.boundaries)
    nth = rng.randint(1, survey.crossed.get(boundary, 1) + 1)
    return Fault(rng.choice(_strikes(boundary)), PLACES[boundary], nth)


def _draw_behaviour(survey: Survey, rng: Random) -> Fault:
    effect = rng.choice(survey.effects)
    return Fault(rng.choice(survey.behaviours(effect)), effect, rng.choice((1, 1, 1, 2, 2, 3)))


def _draw_post(survey: Survey, rng: Random) -> Fault:
    return Fault(rng.choice([*Post]), MESSAGE, rng.randint(1, survey.messages + 2))


def _draw_verdict(survey: Survey, rng: Random) -> Fault:
    return Fault(rng.choice([*Verdict]), PERSON, rng.randint(1, survey.requests))


def _draw_telling(survey: Survey, rng: Random) -> Fault:
    return Fault(rng.choice([*Telling]), EVENT, rng.randint(1, survey.events + 1))


def _strikes(boundary: Boundary) -> list[Strike]:
    return [*Strike] if boundary in OUTSIDE else [Strike.CRASH, Strike.KILL]


def _provoke(survey: Survey, boundary: Boundary) -> list[Fault]:
    what, place = PROVOKED.get(boundary, ("", ""))
    if not what or boundary in survey.crossed:
        return []
    if boundary.name.startswith("LOOKUP") and survey.pending:  # a key is sent again rather than looked up
        return [Fault(str(Behaviour.PENDING), next(iter(survey.pending)))]
    return [Fault(str(what), place or survey.effects[0])] if place or survey.effects else []
