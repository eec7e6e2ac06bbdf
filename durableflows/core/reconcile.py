"""What may happen next with an effect whose outcome is not settled.

Pure: (facts of the row, now) -> what to do and when. Source: P5; protocol, rules 3, 4, 9, 10.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from durableflows.core.states import EffectState

MAX_LOOKUPS = 10
REPEAT = "repeat"
"""A person's explicit choice to do a confirmed effect once more, under a new key, as the effect's verdict."""


class Next(StrEnum):
    """What an effect needs. In order of urgency: a person outranks all that goes by itself."""

    SETTLED = "settled"
    RESEND = "resend"
    LOOK_UP = "look up"
    WAIT = "wait"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class EffectFacts:
    """An effect row and its declaration, as of a lock. `asked_again`: a person wants one more lookup, not made yet.

    said_already   a send was answered by "it is already so": whether by us, only a lookup or a person can tell
    """

    name: str
    state: EffectState
    key_window: timedelta | None
    settle_seconds: float
    has_lookup: bool
    resend_when_absent: bool
    accepted_within: timedelta | None
    first_dispatched_at: datetime | None
    settles_at: datetime | None
    lookup_count: int
    next_lookup_at: datetime | None
    lookup_must_end_by: datetime | None
    accepted_at: datetime | None
    person_said_absent: bool
    said_already: bool = False
    has_event: bool = False
    asked_again: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """What to do, at the earliest when, and why in words."""

    next: Next
    at: datetime
    reason: str


def may_resend(
    first_dispatched_at: datetime | None, key_window: timedelta | None, settle_seconds: float, now: datetime
) -> bool:
    """Will the provider still know the key when a request sent now arrives? (rule 9: our window ends earlier)"""
    if key_window is None or first_dispatched_at is None:
        return False
    return now < first_dispatched_at + key_window - timedelta(seconds=settle_seconds)


def next_for(effect: EffectFacts, now: datetime, *, is_halted: bool, has_tries: bool, not_before: datetime) -> Move:
    """Say what this effect needs next.

    is_halted   the run is parked or ending: nothing is sent again, not even under the same key (rule 10)
    has_tries   the step may be tried again
    not_before  the step's own backoff: no re-send earlier
    """
    if effect.state in (EffectState.UNKNOWN, EffectState.DISPATCHED):
        return _in_doubt(effect, now, may_send=has_tries and not is_halted, not_before=not_before)
    if effect.state is EffectState.ACCEPTED:
        return _accepted(effect, now)
    if effect.state is EffectState.ABSENT and not is_halted:
        if effect.person_said_absent or (effect.resend_when_absent and has_tries and not effect.said_already):
            return Move(Next.RESEND, not_before, f"{effect.name} did not happen and is sent again under a new key")
        return Move(Next.PERSON, now, _absent(effect))
    return Move(Next.SETTLED, now, f"{effect.name} is settled")


def _absent(effect: EffectFacts) -> str:
    if effect.said_already:
        return f"the provider says that {effect.name} is already done, and a lookup does not find it; a person decides"
    return f"a lookup says that {effect.name} did not happen; a person decides about a new try"


def _in_doubt(effect: EffectFacts, now: datetime, *, may_send: bool, not_before: datetime) -> Move:
    at = max(now, not_before)
    may_send = may_send and not effect.said_already  # another send would only hear the same, or its stored form
    if may_send and may_resend(effect.first_dispatched_at, effect.key_window, effect.settle_seconds, at):
        return Move(Next.RESEND, at, f"the answer to {effect.name} was lost; it is asked again under the same key")
    if not effect.has_lookup:
        return Move(Next.PERSON, now, f"nobody can be asked whether {effect.name} happened; a person must find out")
    if effect.settles_at is not None and now < effect.settles_at:
        return Move(Next.WAIT, effect.settles_at, f"{effect.name} may still arrive; it is looked up after that")
    return _look_up(effect, now)


def _look_up(effect: EffectFacts, now: datetime) -> Move:
    if effect.lookup_count >= MAX_LOOKUPS:
        return Move(Next.PERSON, now, f"{effect.lookup_count} lookups could not tell whether {effect.name} happened")
    if effect.lookup_must_end_by is not None and now < effect.lookup_must_end_by:
        return Move(Next.WAIT, effect.lookup_must_end_by, f"{effect.name} is being looked up")
    at = max(now, effect.next_lookup_at or now)
    return Move(Next.LOOK_UP, at, f"the provider is asked whether {effect.name} happened")


def _accepted(effect: EffectFacts, now: datetime) -> Move:
    within, since = effect.accepted_within, effect.accepted_at
    ends_at = None if within is None or since is None else since + within
    if ends_at is not None and now >= ends_at and not effect.asked_again:
        return Move(Next.PERSON, now, f"{effect.name} was accepted and is not done after {within}")
    if not effect.has_lookup and effect.has_event and ends_at is not None and now < ends_at:
        return Move(Next.WAIT, ends_at, f"{effect.name} was accepted; the provider tells the rest")
    if not effect.has_lookup:
        return Move(Next.PERSON, now, f"{effect.name} was accepted; nobody can be asked whether it is done")
    if effect.lookup_must_end_by is not None and now < effect.lookup_must_end_by:
        return Move(Next.WAIT, effect.lookup_must_end_by, f"{effect.name} is being looked up")
    at = max(now, effect.next_lookup_at or now)
    return Move(Next.LOOK_UP, at, f"{effect.name} was accepted; the provider is asked whether it is done")


_URGENCY = (Next.PERSON, Next.LOOK_UP, Next.WAIT, Next.RESEND, Next.SETTLED)


def most_urgent(moves: Iterable[Move]) -> Move | None:
    """The move that decides for the step: it is sent again only when no other effect of it is in the way."""
    ordered = sorted(moves, key=lambda move: (_URGENCY.index(move.next), move.at))
    return ordered[0] if ordered else None
