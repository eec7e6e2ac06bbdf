"""What passes between the engine and code that acts outside: one call, and three answers to "did it happen?".

Owns `EffectCall`, which the engine makes for each send and effect functions receive first, and the answers
of lookup functions. Never sends anything and never writes a row.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from durableflows.errors import NeverSent

R_co = TypeVar("R_co", covariant=True)


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
            raise NeverSent(f"{self.effect}: {late_seconds:.1f} s too late to send, nothing was sent")

    def remaining_seconds(self) -> float:
        """Say how many seconds the call may still take: at most `timeout_seconds`, never less than 0."""
        left_seconds = self.send_by + self.timeout_seconds - time.monotonic()
        return max(0.0, min(self.timeout_seconds, left_seconds))


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
