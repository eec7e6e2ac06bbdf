"""What a step may return: values that say where the run goes, never side effects.

Owns those values. Written by users' steps, read by `core.decide`. Never moves a run.

    return self.pay                      go to that step
    return self.pay, self.tell           go to both, in parallel
    return sleep(timedelta(days=1), then=self.remind)     wait first: see `core.ways`
    return succeed({"refund": "re_1"})   end the run, with a result
    return fail("no such charge")        end the run as failed
    return compensate("no seats left")   undo what the run did, in reverse order, and end it
    (nothing)                            go to the step's one `to`, or succeed when it is declared end=True
"""

from dataclasses import dataclass
from typing import TypeAlias

from durableflows.core.payload import JSON
from durableflows.core.refs import StepRef
from durableflows.core.ways import Way


@dataclass(frozen=True, slots=True)
class Goto:
    """Go on with these steps, and in these ways; more than one run in parallel."""

    steps: tuple[str, ...]
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class Succeed:
    """End the run as SUCCEEDED, with a result that any JSON reader can use."""

    result: JSON = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run as FAILED, for the given reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Compensate:
    """Undo what the run did, and end it as COMPENSATED, for the given reason."""

    reason: str


Directive: TypeAlias = Goto | Succeed | Fail | Compensate
"""What the engine reads."""

Onward: TypeAlias = StepRef | Way
"""One way to go on."""

StepReturn: TypeAlias = Onward | tuple[Onward, ...] | list[Onward] | list[StepRef] | Succeed | Fail | Compensate | None
"""What a step body may return."""


def succeed(result: JSON = None) -> Succeed:
    """End the run as SUCCEEDED with this result."""
    return Succeed(result)


def fail(reason: str) -> Fail:
    """End the run as FAILED for this reason; it is shown to people, so no secrets in it."""
    return Fail(reason)


def compensate(reason: str) -> Compensate:
    """Undo what the run did, newest first, and end it; the reason is shown to people, so no secrets in it.

    What is in doubt is settled first. Effects without `undo=` stay done, and are listed as not reversible.
    """
    return Compensate(reason)
