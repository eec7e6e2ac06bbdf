"""What a step may return: values that say where the run goes, never side effects.

Owns those values. Written by users' steps, read by `core.decide`. Never moves a run.

    return self.pay                      go to that step
    return self.pay, self.tell           go to both, in parallel
    return succeed({"refund": "re_1"})   end the run, with a result
    return fail("no such charge")        end the run as failed
    (nothing)                            go to the step's one `to`, or succeed when it is declared end=True
"""

from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from durableflows.core.payload import JSON
from durableflows.errors import InvalidDefinition


@dataclass(frozen=True, slots=True)
class StepRef:
    """The name of a step, as `self.pay` in a step body gives it. Return it; it cannot be called."""

    name: str

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        raise InvalidDefinition(
            f"{self.name}(...): return the step, do not call it. Write `return self.{self.name}`: "
            "the run goes there after this step's checkpoint is stored"
        )


@dataclass(frozen=True, slots=True)
class Goto:
    """Go on with these steps; more than one run in parallel."""

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Succeed:
    """End the run as SUCCEEDED, with a result that any JSON reader can use."""

    result: JSON = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run as FAILED, for the given reason."""

    reason: str


Directive: TypeAlias = Goto | Succeed | Fail
"""What the engine reads."""

StepReturn: TypeAlias = StepRef | tuple[StepRef, ...] | list[StepRef] | Succeed | Fail | None
"""What a step body may return."""


def succeed(result: JSON = None) -> Succeed:
    """End the run as SUCCEEDED with this result."""
    return Succeed(result)


def fail(reason: str) -> Fail:
    """End the run as FAILED for this reason; it is shown to people, so no secrets in it."""
    return Fail(reason)
