"""What passes between the engine and code that acts outside: one call, three answers to "did it happen?", and what a
provider tells on its own.

Owns `EffectCall`, which the engine makes for each send and effect functions receive first, the answers of lookup
functions, and what readers of events return. Never sends anything and never writes a row.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from durableflows.errors import InvalidDefinition, NeverSent

R_co = TypeVar("R_co", covariant=True)

OWN_SHARE = 0.9
"""Of the time of a call: what an adapter has for itself before the engine ends the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCall:
    """One send of one effect: its key and how long it may take.

    Shapes and units   send: 1 for the first send of this operation; send_by: seconds on this process's monotonic clock
    """

    key: str
    operation: str
    effect: str
    provider: str
    run_id: str
    step: str
    send: int
    first_dispatched_at: datetime | None
    timeout_seconds: float
    send_by: float

    def check(self) -> None:
        """Refuse to send when it is too late. Call it right before bytes leave, at each redirect and reconnect.

        Raises NeverSent after `send_by`. A worker that was stopped between the stored intent and its first byte
        would otherwise send when everybody has come to believe that nothing can be under way any more.
        """
        late_seconds = time.monotonic() - self.send_by
        if late_seconds > 0:
            text = f"{self.effect}: {late_seconds:.1f} s too late to send, nothing was sent"
            raise NeverSent(text, code="too_late")  # of our own making: it says nothing about the provider

    def remaining_seconds(self) -> float:
        """Say how many seconds an adapter may take: never less than 0, and a tenth less than `timeout_seconds`.

        The engine ends the call after `timeout_seconds`, and then nobody knows how far it got. An adapter that gives
        up by itself, a little earlier, can say whether anything was sent.
        """
        own_seconds = OWN_SHARE * self.timeout_seconds
        return max(0.0, min(own_seconds, self.send_by + own_seconds - time.monotonic()))


@dataclass(frozen=True, slots=True)
class Found(Generic[R_co]):
    """Answer of a lookup: it happened, and this is the receipt."""

    receipt: R_co


@dataclass(frozen=True, slots=True)
class NotFound:
    """Answer of a lookup: the provider knows nothing of it."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Answer of a lookup: it cannot be known now (search index behind, more than one match, provider down)."""

    reason: str


LookupAnswer: TypeAlias = Found[R_co] | NotFound | CannotTell
"""What a lookup function returns: lookup(call, **the same arguments) -> Found | NotFound | CannotTell."""


class EventOutcome(StrEnum):
    """What an event says of the act."""

    PENDING = "pending"
    """It is accepted, neither done nor failed."""
    HAPPENED = "happened"
    FAILED = "failed"
    """It did not come about, or was taken back: for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReading:
    """What a project's reader has found in the body of an event.

    key         the effect's key, where the request carried it (call.key, in the provider's metadata)
    reference   the provider's own name of the act: the `id` of its receipt; for providers that give no key back
    receipt     of the effect's receipt type; needed unless it failed
    facts       argument of the effect -> what the event says of it; where one differs, the event contradicts
    at          when it happened, by the provider's clock: of two ends the later one counts
    Raises      InvalidDefinition for a reading that names no effect, or has no receipt of what happened
    """

    outcome: EventOutcome
    key: str = ""
    reference: str = ""
    receipt: object = None
    facts: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    at: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, EventOutcome):
            raise InvalidDefinition(f"EventReading: outcome={self.outcome!r}, an EventOutcome is needed")
        if not self.key and not self.reference:
            raise InvalidDefinition("EventReading: a key or a reference is needed, or return None: about no effect")
        if self.receipt is None and self.outcome is not EventOutcome.FAILED:
            raise InvalidDefinition(f"EventReading: {self.outcome} without a receipt")
        if self.at is not None and self.at.tzinfo is None:
            raise InvalidDefinition("EventReading: at needs a time zone")


EventReader: TypeAlias = Callable[[Mapping[str, Any]], EventReading | None]
"""Pure: the body of an event -> what it says, or None for one that is about no effect of this kind."""
