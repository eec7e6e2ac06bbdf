"""How the sandbox fails: the kinds, what an order for a fault says, and which request gets which fault.

Owns the plan of faults. Pure apart from its lock and its seeded random numbers; carrying a fault out is the duty of
`provider` and `line`.
"""

import random
import threading
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from customer_ops.sandbox.forms import Params


class Kind(StrEnum):
    """One way to fail, named by when it happens."""

    # before anything was done
    REFUSE = "refuse"  # the connection is reset at once
    CUT_BEFORE = "cut_before"  # closed without an answer
    TIMEOUT_BEFORE = "timeout_before"  # no answer until the client gives up
    LATE = "late"  # the request is on its way for a while, then goes on as if it had just arrived
    RATE_LIMITED = "rate_limited"  # 429, with Retry-After when `retry_after` is given
    ERROR_BEFORE = "error_before"  # 5xx; `stored` lets the key keep it
    UNAUTHORIZED = "unauthorized"  # 401, as with an expired key
    FORBIDDEN = "forbidden"  # 403
    KEY_IN_USE = "key_in_use"  # 409
    # while the key is in use
    SLOW = "slow"  # the endpoint works for `seconds`, or until released, then acts
    # in the act
    PENDING = "pending"  # the refund is not done at once
    # after the act
    ERROR_AFTER = "error_after"  # acted, then 5xx
    CUT_AFTER = "cut_after"
    TIMEOUT_AFTER = "timeout_after"
    HALF_ANSWER = "half_answer"  # closed in the middle of the body
    HTML_ANSWER = "html_answer"  # 200 with a page
    BAD_JSON = "bad_json"  # 200, complete, cut-off JSON
    TRICKLE = "trickle"  # one byte each `seconds`


BEFORE = frozenset(
    {
        Kind.REFUSE, Kind.CUT_BEFORE, Kind.TIMEOUT_BEFORE, Kind.LATE, Kind.RATE_LIMITED, Kind.ERROR_BEFORE,
        Kind.UNAUTHORIZED, Kind.FORBIDDEN, Kind.KEY_IN_USE,
    }
)  # fmt: skip


class Fault(BaseModel):
    """One order: what goes wrong, for which requests, how often. By default the next POST alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    times: int = Field(default=1, ge=1)
    skip: int = Field(default=0, ge=0, description="let so many matching requests pass first")
    # which requests
    method: str | None = "POST"
    path: str | None = Field(default=None, description="the beginning of the path")
    charge: str | None = None
    key: str | None = None
    metadata: dict[str, str] = {}
    # how
    seconds: float | None = Field(default=None, ge=0, description="how long it is held; without: until released")
    status: int = Field(default=500, ge=500, le=599)
    stored: bool | None = Field(default=None, description="does the key remember the 5xx? default: as Stripe does")
    retry_after: str | None = None
    then: Literal["succeeded", "failed"] | None = None
    after_seconds: float = Field(default=0.0, ge=0)
    after_reads: int = Field(default=0, ge=0)
    failure_reason: str = "declined"

    def matches(self, seen: "Sighting") -> bool:
        """Is this request meant?"""
        sent = {name: seen.params.get(f"metadata[{name}]") for name in self.metadata}
        return (
            self.method in (None, seen.method)
            and (self.path is None or seen.path.startswith(self.path))
            and self.charge in (None, seen.params.get("charge"))
            and self.key in (None, seen.key)
            and sent == self.metadata
        )


class Rate(BaseModel):
    """Faults by chance: a share of the requests, kinds drawn by weight, the same for the same seed and order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: float = Field(ge=0, le=1)
    seed: int = 0
    mix: dict[Kind, float] = {}
    method: str | None = "POST"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a plan looks at."""

    method: str
    path: str
    params: Params
    key: str | None


# Everything here ends well by itself when the caller behaves; nothing keeps a visitor of the demo waiting for long.
DEFAULT_MIX = {
    Kind.REFUSE: 2.0,
    Kind.CUT_AFTER: 2.0,
    Kind.HALF_ANSWER: 1.0,
    Kind.RATE_LIMITED: 2.0,
    Kind.ERROR_BEFORE: 1.0,
    Kind.ERROR_AFTER: 2.0,
    Kind.KEY_IN_USE: 1.0,
    Kind.SLOW: 2.0,
    Kind.PENDING: 2.0,
}
_BY_CHANCE = {"seconds": 0.5, "retry_after": "1", "then": "succeeded", "after_seconds": 2.0}


class FaultPlan:
    """All orders in force. Safe for many threads; each request gets at most one fault, the oldest order first."""

    def __init__(self, rate: Rate | None = None) -> None:
        self._lock = threading.Lock()
        self._orders: deque[_Order] = deque()
        self._configured = rate or Rate(rate=0)
        self.set_rate(self._configured)

    def add(self, fault: Fault) -> None:
        """Put one more order at the end."""
        with self._lock:
            self._orders.append(_Order(fault, left=fault.times, to_skip=fault.skip))

    def set_rate(self, rate: Rate) -> None:
        """Fail by chance from now on; the random numbers start again from the seed."""
        with self._lock:
            self._rate = rate
            self._random = random.Random(rate.seed)  # noqa: S311 - chance, not secrecy

    def clear(self) -> None:
        """Withdraw all orders and go back to the rate that the sandbox was started with."""
        with self._lock:
            self._orders.clear()
        self.set_rate(self._configured)

    def waiting(self) -> list[dict[str, object]]:
        """Say which orders were not used up."""
        with self._lock:
            return [order.fault.model_dump(mode="json") | {"times": order.left} for order in self._orders]

    def take(self, seen: Sighting) -> Fault | None:
        """Give the fault of this request and count it."""
        with self._lock:
            for order in self._orders:
                if order.fault.matches(seen) and order.is_due():
                    if order.left == 0:
                        self._orders.remove(order)
                    return order.fault
            return self._by_chance(seen)

    def _by_chance(self, seen: Sighting) -> Fault | None:
        if self._rate.rate == 0 or self._rate.method not in (None, seen.method):
            return None
        mix = self._rate.mix or DEFAULT_MIX
        chance, kind = self._random.random(), self._random.choices(list(mix), list(mix.values()))[0]
        return Fault.model_validate({"kind": kind, **_BY_CHANCE}) if chance < self._rate.rate else None


@dataclass(slots=True)
class _Order:
    fault: Fault
    left: int
    to_skip: int

    def is_due(self) -> bool:
        if self.to_skip:
            self.to_skip -= 1
            return False
        self.left -= 1
        return True
