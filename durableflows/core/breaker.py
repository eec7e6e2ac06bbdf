"""When a provider is left alone: what an answer says about its health, and what its breaker lets through.

Pure: rows as values in, decisions out. Only the dependency's health counts: not refusals, not our own mistakes, and not
what was begun before the breaker last changed. Source: design, section 5; specification S3.12; R12.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from durableflows.core.outcomes import AnswerKind
from durableflows.errors import NeverSent, UnknownOutcome

TOO_LATE = "too_late"
"""Code of a send that our own worker gave up at `send_by`: it says nothing about the provider."""

SERVER_ERRORS = 500


class BreakerState(StrEnum):
    """Closed: requests may leave. Paused: none does until a person resumes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    PAUSED = "paused"


class Health(StrEnum):
    """What one answer says about the provider. UNTOLD: nothing, it was our own mistake, or asks for patience."""

    UNTOLD = ""
    WELL = "well"
    FAILED = "failed"


_ANSWERED = frozenset(
    {
        *(AnswerKind.RECEIPT, AnswerKind.ACCEPTED, AnswerKind.REJECTED),
        *(AnswerKind.CONFLICT, AnswerKind.IN_USE, AnswerKind.ALREADY),
    }
)


def health_of(kind: AnswerKind, error: BaseException | None) -> Health:
    """Say what a send's answer tells about the provider.

    A refusal is an answer, so it is well. Too many (429) asks for patience, and credentials for a person. An answer of
    5xx has failed, whatever it means for the request; so have a connection that was not made and an answer that did
    not come. An exception that nobody has classified is a mistake of ours.
    """
    if kind in _ANSWERED:
        return Health.WELL
    details = getattr(error, "details", None) or {}
    status = details.get("status")
    if isinstance(status, int) and kind in (AnswerKind.UNKNOWN, AnswerKind.NOT_DONE):
        if status >= SERVER_ERRORS:
            return Health.FAILED
        return Health.WELL if kind is AnswerKind.UNKNOWN else Health.UNTOLD
    if kind is AnswerKind.NOT_SENT and isinstance(error, NeverSent | OSError):
        return Health.UNTOLD if details.get("code") == TOO_LATE else Health.FAILED
    if kind is AnswerKind.UNKNOWN and isinstance(error, UnknownOutcome | OSError):
        return Health.FAILED
    return Health.UNTOLD


@dataclass(frozen=True, slots=True)
class Breaker:
    """A provider's breaker as it was read.

    changed_at   since when it is in this very state, None: it never changed; since: when it was left alone
    """

    provider: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    changed_at: datetime | None = None
    open_until: datetime | None = None
    probe_until: datetime | None = None
    changed_by: str = ""
    reason: str = ""
    since: datetime | None = None


class Gate(StrEnum):
    """What a breaker does with a send now."""

    THROUGH = "through"
    PROBE = "probe"
    HOLD = "hold"


def gate(breaker: Breaker, now: datetime) -> Gate:
    """Say whether a send may go through, may be the one probe, or is held.

    A probe that was not heard of until `probe_until` has lost the place: its worker is gone. Where the clock was set
    back by more than the whole pause nobody can say how much of it is over, and one request tries (P12).
    """
    if breaker.state is BreakerState.CLOSED:
        return Gate.THROUGH
    if breaker.state is BreakerState.PAUSED:
        return Gate.HOLD
    until = breaker.open_until if breaker.state is BreakerState.OPEN else breaker.probe_until
    return Gate.PROBE if until is None or now >= until or _was_set_back(breaker, until, now) else Gate.HOLD


def _was_set_back(breaker: Breaker, until: datetime, now: datetime) -> bool:
    since = breaker.changed_at
    return since is not None and now < since - (until - since)


def held_until(breaker: Breaker, now: datetime) -> datetime:
    """When it makes sense to look again; of a paused one nobody knows, so now."""
    times = {BreakerState.OPEN: breaker.open_until, BreakerState.HALF_OPEN: breaker.probe_until}
    return max(times.get(breaker.state) or now, now)


def mark(breaker: Breaker) -> str:
    """What somebody who decides about it must have seen: that it is in use, left alone, or paused, and since when.

    While it is left alone requests try now and then whether it is back: that is no other standing.
    """
    if breaker.state is BreakerState.PAUSED:
        return f"paused {breaker.changed_at.isoformat() if breaker.changed_at else ''}"
    return "in use" if breaker.state is BreakerState.CLOSED else "left alone"


def counts(breaker: Breaker, begun_at: datetime, now: datetime) -> bool:
    """Does a send that began then speak about the breaker as it is now? What was under way at the trip does not."""
    since = counted_from(breaker, now)
    return since is None or begun_at >= since


def counted_from(breaker: Breaker, now: datetime) -> datetime | None:
    """Since when sends speak about the breaker; None: all do. A change that is yet to come was before a clock was set
    back, and so was what was under way then."""
    return None if breaker.changed_at is None or breaker.changed_at > now else breaker.changed_at


def has_tripped(last: Sequence[Health], failures_in_a_row: int | None) -> bool:
    """Have the newest sends all failed? `last`: those since the breaker last changed, newest first."""
    wanted = failures_in_a_row
    return wanted is not None and len(last) >= wanted and all(one is Health.FAILED for one in last[:wanted])


def after_probe(health: Health, now: datetime, cool_down_seconds: float) -> tuple[BreakerState, datetime | None]:
    """Say what a probe's answer makes of the breaker, and until when it is open.

    A probe that says nothing about the provider gives its place back: the next send is a probe at once.
    """
    if health is Health.WELL:
        return BreakerState.CLOSED, None
    pause = cool_down_seconds if health is Health.FAILED else 0.0
    return BreakerState.OPEN, now + timedelta(seconds=pause)
