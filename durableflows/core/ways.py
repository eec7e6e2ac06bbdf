"""Ways to go on that wait for something: time, a signal, another run, or many branches at once.

Owns their values and the words that steps write them with. Written by users' steps, read by `core.returned`; carried
out by `arrivals` inside the settlement. Never moves a run.

    return sleep(timedelta(days=2), then=self.remind)
    return wait_for("paid", timeout=timedelta(days=7), then=self.ship, on_timeout=self.give_up)
    return child(Packing, {"order": 7}, then=self.ship, on_failure=self.give_up)
    return each(self.notify, run.state.customers, key=str, limit=10, failures="collect", then=self.report)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar

from durableflows.core import shape
from durableflows.core.payload import JSON, check_text
from durableflows.core.refs import StepRef
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidDefinition, InvalidState

Item = TypeVar("Item")

MOST_ITEMS = 1000
LONGEST_KEY = 200
LONGEST_SIGNAL = 100

Failures: TypeAlias = Literal["stop", "collect"] | int
"""What an item that failed for good does: stop the run, be collected, or be tolerated up to so many."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on with `then` after a while, or at a moment; exactly one of the two is given."""

    then: str
    delay: timedelta | None
    until: datetime | None

    def due(self, now: datetime) -> datetime:
        """When it goes on."""
        if self.until is not None:
            return self.until
        assert self.delay is not None
        return now + self.delay


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Go on with `then` when the signal is here; with `on_timeout` when it did not come in time."""

    signal: str
    then: str
    timeout: timedelta | None
    on_timeout: str | None


@dataclass(frozen=True, slots=True)
class Child:
    """Start another run and go on with `then` when it has succeeded; with `on_failure` when it ended otherwise.

    `workflow`, `version`: None for the highest; `data`: the child's state, checked when `returned` reads this.
    """

    workflow: object
    version: int | None
    data: object
    then: str
    on_failure: str | None


@dataclass(frozen=True, slots=True)
class Each:
    """Go on with `step` once for each item, `limit` at a time, and with `then` when all branches have ended.

    `items`: (item key, item as JSON); `tolerates`: how many may fail for good, None for all of them.
    """

    step: str
    items: tuple[tuple[str, JSON], ...]
    then: str
    limit: int | None
    tolerates: int | None


Way: TypeAlias = Sleep | WaitFor | Child | Each
"""A way to go on that is more than a step."""


def sleep(delay: timedelta | datetime, *, then: StepRef) -> Sleep:
    """Go on with a step after a time span, or at an aware moment. A restart does not make it longer.

    Raises InvalidDefinition for anything else than a positive time span or an aware moment
    """
    if isinstance(delay, datetime):
        if delay.tzinfo is None:
            raise InvalidDefinition(f"sleep({delay!r}): a moment without a time zone means another one elsewhere")
        return Sleep(_name(then, "sleep", "then"), None, delay.astimezone(UTC))
    return Sleep(_name(then, "sleep", "then"), _span(delay, "sleep", "delay"), None)


def wait_for(
    signal: str, *, then: StepRef, timeout: timedelta | None = None, on_timeout: StepRef | None = None
) -> WaitFor:
    """Go on with a step when `api.signal(run, signal, ...)` has come, also when it came before; `run.signal` holds it.

    Shapes and units   timeout: with it `on_timeout` says where to go; without both, the run's deadline is the limit
    Raises             InvalidDefinition for a name that is no text, or one of the two without the other
    """
    name: object = signal
    if not isinstance(name, str) or not name or len(name) > LONGEST_SIGNAL:
        raise InvalidDefinition(f"wait_for({signal!r}): a name of 1 to {LONGEST_SIGNAL} characters is needed")
    if (timeout is None) != (on_timeout is None):
        raise InvalidDefinition(f"wait_for({signal!r}): timeout and on_timeout belong together: give both or neither")
    return WaitFor(
        signal=signal,
        then=_name(then, "wait_for", "then"),
        timeout=None if timeout is None else _span(timeout, "wait_for", "timeout"),
        on_timeout=None if on_timeout is None else _name(on_timeout, "wait_for", "on_timeout"),
    )


def child(
    workflow: object,
    state: Mapping[str, object] | WorkflowState,
    *,
    then: StepRef,
    on_failure: StepRef | None = None,
    version: int | None = None,
) -> Child:
    """Start a run of another workflow, and go on when it has ended; `run.child` holds its result, handed over once.

    The child has its own history, budget and approvals; it is cancelled when this run ends before it, and lives no
    longer than this run's deadline. Without `on_failure`, a child that did not succeed fails this run.
    """
    return Child(
        workflow=workflow,
        version=version,
        data=state,
        then=_name(then, "child", "then"),
        on_failure=None if on_failure is None else _name(on_failure, "child", "on_failure"),
    )


def each(
    step: StepRef,
    items: Iterable[Item],
    *,
    then: StepRef,
    key: Callable[[Item], str] | None = None,
    limit: int | None = None,
    failures: Failures = "stop",
) -> Each:
    """Go on with a step once for each item, in branches side by side, and with `then`, a join, when all have ended.

    Shapes and units   items: values that can be written as JSON, at most MOST_ITEMS; in the step `run.item`;
                       key: names an item for people and in idempotency keys, default its position; limit: branches
                       at a time; failures: "stop" fails the run with the first item, "collect" gives them all to
                       `run.results(step)`, a number tolerates so many
    Raises             InvalidState for two items with one key, too many, or one that is not JSON;
                       InvalidDefinition for a limit or failures that mean nothing
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidDefinition(f"each: limit={limit!r}, a whole number from 1 is needed, or None")
    return Each(
        step=_name(step, "each", "step"),
        items=_items(list(items), key),
        then=_name(then, "each", "then"),
        limit=limit,
        tolerates=_tolerated(failures),
    )


def _items(items: list[Any], key: Callable[[Any], str] | None) -> tuple[tuple[str, JSON], ...]:
    if len(items) > MOST_ITEMS:
        raise InvalidState(
            f"each: {len(items)} items, at most {MOST_ITEMS} at once: go round in a loop, or give parts to children"
        )
    named: dict[str, JSON] = {}
    for position, item in enumerate(items):
        name = str(position) if key is None else key(item)
        check_text(name, LONGEST_KEY, "the key of an item")
        if not name or name in named:
            raise InvalidState(f"each: item {position} has the key {name!r}: keys must be unique and not empty")
        named[name] = shape.plain_marked(item, what=f"item {name}")
    return tuple(named.items())


def _tolerated(failures: object) -> int | None:
    if failures == "stop":
        return 0
    if failures == "collect":
        return None
    if type(failures) is int and failures >= 0:
        return failures
    raise InvalidDefinition(f'each: failures={failures!r}, "stop", "collect" or a number is needed')


def _span(span: object, what: str, option: str) -> timedelta:
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise InvalidDefinition(f"{what}: {option}={span!r}, a time span is needed, like timedelta(days=2)")
    return span


def _name(ref: object, what: str, option: str) -> str:
    if not isinstance(ref, StepRef):
        raise InvalidDefinition(f"{what}: {option}={ref!r} is not a step: write {option}=self.<step>")
    return ref.name
