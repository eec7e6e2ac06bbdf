"""What a step may return: values that say where the run goes, never side effects.

Owns those values. Written by users' steps, read by `core.decide`. Never moves a run.

    return self.pay                      go to that step
    return self.pay, self.tell           go to both, in parallel
    return succeed({"refund": "re_1"})   end the run, with a result
    return fail("no such charge")        end the run as failed
    (nothing)                            go to the step's one `to`, or succeed when it is declared end=True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from durableflows.core.payload import JSON, canonical, storable, storable_text
from durableflows.core.wording import did_you_mean
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


def directive_of(returned: object, *, step: str, to: Sequence[str], end: bool) -> Directive:
    """Read what a step body returned, against what the step declares.

    Raises InvalidDefinition for anything that is not a way out of this step: an unexpected value is an error, never
    a success. InvalidState for a result that is not JSON.
    """
    if isinstance(returned, Fail):
        return Fail(storable_text(str(returned.reason)))
    if isinstance(returned, Succeed):
        canonical(returned.result)
        return Succeed(storable(returned.result))
    if returned is None:
        return _way_on(step=step, to=to, end=end)
    named = [returned] if isinstance(returned, StepRef) else returned
    if not isinstance(named, tuple | list) or not named:
        raise InvalidDefinition(
            f"step {step} returned {returned!r}: return self.<step>, succeed(...), fail(...) or nothing"
        )
    targets = tuple(_target(ref, step=step, to=to) for ref in named)
    if len(set(targets)) != len(targets):
        raise InvalidDefinition(f"step {step} returned the same step twice: {', '.join(targets)}")
    return Goto(targets)


def _way_on(*, step: str, to: Sequence[str], end: bool) -> Directive:
    if end and not to:
        return Succeed()
    if len(to) == 1 and not end:
        return Goto((to[0],))
    ways = " or ".join([*(f"self.{name}" for name in to), *(["succeed()"] if end else [])])
    raise InvalidDefinition(f"step {step} returned nothing and may go more than one way: return {ways}")


def _target(ref: object, *, step: str, to: Sequence[str]) -> str:
    if not isinstance(ref, StepRef):
        raise InvalidDefinition(f"step {step} returned {ref!r} as a step: return self.<step>")
    if ref.name not in to:
        declared = ", ".join(to) or "none"
        raise InvalidDefinition(
            f"step {step} returned {ref.name!r}, which is not in its `to` ({declared}){did_you_mean(ref.name, to)}"
        )
    return ref.name
