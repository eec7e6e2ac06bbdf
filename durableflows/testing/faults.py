"""What can go wrong in a simulation, as values that can be written on one line and read back.

A schedule is a few faults: `crash@effect-after-answer#1 answer-lost@payments.refund#2 lose@message#3 reject@person#1`.
Each says what happens, where, and at which time of coming by there. Everything that is not named goes well.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from durableflows.boundaries import Boundary
from durableflows.core.wording import did_you_mean
from durableflows.errors import InvalidState


class Behaviour(StrEnum):
    """What a provider does with one request."""

    ANSWERS = "answers"
    """It acts and answers."""
    ANSWER_LOST = "answer-lost"
    """It acts, and the answer is lost."""
    REQUEST_LOST = "request-lost"
    """It does not act, and nobody learns so."""
    REFUSED = "refused"
    """The connection is refused: nothing has left."""
    BUSY = "busy"
    """It says that it did not process the request (429, 503)."""
    ERROR_ACTED = "5xx-acted"
    """It acts and answers with an error of its own."""
    ERROR = "5xx"
    """It does not act and answers with an error of its own."""
    PENDING = "pending"
    """It accepts, and is done a minute later."""
    SLOW = "slow"
    """It gives no answer in time, and acts afterwards, within the settle time."""
    INDEX_LATE = "index-late"
    """It acts, the answer is lost, and lookups find it only near the end of the settle time."""
    CANNOT_TELL = "cannot-tell"
    """It acts, the answer is lost, and the first two lookups cannot tell."""
    REJECTED = "rejected"
    """It refuses the request for good."""


class Strike(StrEnum):
    """What happens to whoever crosses a boundary."""

    CRASH = "crash"
    """The process dies and nobody notices: its lease runs out."""
    KILL = "kill"
    """The pool's child dies and its parent says so at once."""
    STALL = "stall"
    """It stops until its lease is gone and others have worked on; then it goes on as if nothing had been."""
    CANCEL = "cancel"
    """Somebody cancels the run at this moment."""


class Post(StrEnum):
    """What the broker does with one message."""

    LOSE = "lose"
    DOUBLE = "double"
    LATE = "late"
    """It comes after others that were sent later, or after the end."""


class Verdict(StrEnum):
    """What the person says who is asked."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    """Nobody answers; each rung of the ladder passes."""


class Telling(StrEnum):
    """How an event comes that a provider sends on its own. Without one of these it is lost."""

    TOLD = "told"
    """It comes when what it tells of has happened."""
    EARLY = "told-early"
    """It comes before the answer to the request."""
    DOUBLED = "told-twice"
    LATE = "told-late"
    """It comes hours later, after others, or after the end."""


MESSAGE, PERSON, EVENT = "message", "person", "event"
SLUGS = {member.name.lower().replace("_", "-"): member for member in Boundary}
PLACES = {boundary: slug for slug, boundary in SLUGS.items()}

OUTSIDE = (
    Boundary.CLAIM_AFTER_COMMIT,
    Boundary.EFFECT_BEFORE_RESERVE,
    Boundary.EFFECT_AFTER_RESERVE,
    Boundary.EFFECT_AFTER_ANSWER,
    Boundary.EFFECT_AFTER_RECEIPT,
    Boundary.LOOKUP_BEFORE_COMMIT,
)
"""Boundaries that are crossed outside any transaction: others can go on while somebody stands there."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """`what` happens at `place`, when something comes by there for the `nth` time (from 1)."""

    what: str
    place: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.what}@{self.place}#{self.nth}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of one simulation, in any order."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.faults)) or "-"

    def without(self, fault: Fault) -> "Schedule":
        """The same schedule with one fault less."""
        return Schedule(tuple(one for one in self.faults if one is not fault))

    def at(self, place: str, kinds: type[StrEnum], nth: int) -> str:
        """What happens at a place for the nth time; '' when nothing is named."""
        known = {str(kind) for kind in kinds}
        found = (one.what for one in self.faults if (one.place, one.nth) == (place, nth) and one.what in known)
        return next(found, "")


def schedule(faults: Iterable[Fault]) -> Schedule:
    """A schedule of these faults; of two at the same place and time the first counts."""
    kept: dict[tuple[str, int], Fault] = {}
    for fault in faults:
        kept.setdefault((fault.place, fault.nth), fault)
    return Schedule(tuple(kept.values()))


def parse(line: str) -> Schedule:
    """Read a schedule as it was printed. Raises InvalidState naming the word that cannot be read."""
    return schedule(_fault(word) for word in line.split() if word != "-")


def _fault(word: str) -> Fault:
    what, at, rest = word.partition("@")
    place, _, nth = rest.rpartition("#") if "#" in rest else (rest, "", "1")
    if not at or not place or not nth.isascii() or not nth.isdigit() or int(nth) < 1:
        raise InvalidState(f"{word!r} is not a fault: write WHAT@PLACE#TIME, as in crash@claim-after-commit#1")
    known = _kinds_of(place)
    if what not in known:
        raise InvalidState(f"{word!r}: {what!r} does not happen at {place}{did_you_mean(what, known)}")
    return Fault(what, place, int(nth))


def _kinds_of(place: str) -> list[str]:
    if place in SLUGS:
        return [str(strike) for strike in Strike]
    if place == MESSAGE:
        return [*map(str, Post), str(Strike.CANCEL)]
    if place == EVENT:
        return [*map(str, Telling)]
    if place == PERSON:
        return [*map(str, Verdict)]
    return [*map(str, Behaviour)]  # the name of an effect
