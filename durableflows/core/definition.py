"""What a declaration becomes: frozen values that the engine, the checks, the console and the docs read.

Owns the shapes of retry, budget, effect, step and workflow (approvals: `core.approval`). Made by `core.declare`
from class bodies and by users (Retry, Budget). Never changes after import, never runs a step.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Generic, NoReturn, TypeAlias, TypeVar

from pydantic import TypeAdapter

from durableflows.core import shape
from durableflows.core.approval import ApprovalSpec
from durableflows.core.arguments import Arguments
from durableflows.core.effects import EventReader
from durableflows.core.merge import Merge
from durableflows.core.migrations import MigrationDefinition
from durableflows.core.payload import JSON, sha256, storable_text
from durableflows.core.pins import Pins
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidDefinition

R_co = TypeVar("R_co", covariant=True)

SEND_BY_SECONDS = 5.0
"""How long after the stored intent an effect may still leave (design, section 4: reserve returns `send_by`)."""
LONGEST_TURN_KEY = 200
HARD_LIMIT_AFTER_SECONDS = 5
"""How long after a step's `timeout_seconds` its process is ended, where the pool can do that."""

StepFunction: TypeAlias = Callable[..., object]
"""A step body: called with the workflow instance and the run."""

Check: TypeAlias = Callable[..., object]
"""A recheck: called with the run; True or None goes on, False or a text (the reason) refuses."""


class StepKind(StrEnum):
    """What does a step's work: our code, a person, or the engine, which undoes what another step did."""

    TASK = "TASK"
    APPROVAL = "APPROVAL"
    UNDO = "UNDO"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long a step is tried again after a transient failure.

    Shapes and units   attempts: tries in all, the first one included; base_seconds: first delay, doubled each time
                       up to cap_seconds, with jitter; within: no new try later than this after the first
    Raises             InvalidDefinition for values that cannot work
    """

    attempts: int = 5
    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    within: timedelta | None = None

    def __post_init__(self) -> None:
        if not _is_count(self.attempts) or self.attempts < 1:
            raise InvalidDefinition(f"Retry: attempts={self.attempts!r}, at least 1 is needed")
        if not 0 < self.base_seconds <= self.cap_seconds:
            raise InvalidDefinition("Retry: 0 < base_seconds <= cap_seconds is needed")
        _refuse_nothing(self.within, "Retry: within")


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a run may use. None: no limit. Reaching one ends the run as EXHAUSTED_BUDGET.

    Shapes and units   attempts: tries of all steps; tool_calls: sends of effects; model_calls, cost_usd: calls by
                       `run.model_call`, at their real cost or else their estimate; iterations: repeated visits of
                       steps; idle: time without anything happening, while nobody and nothing outside is waited for
    """

    attempts: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    cost_usd: Decimal | None = None
    iterations: int | None = None
    idle: timedelta | None = None

    def __post_init__(self) -> None:
        _refuse_nothing(self.idle, "Budget: idle")
        for name in ("attempts", "tool_calls", "model_calls", "iterations"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise InvalidDefinition(f"Budget: {name}={value!r}, a whole number or None is needed")
        cost: object = self.cost_usd
        if cost is not None and not (isinstance(cost, Decimal) and cost.is_finite() and cost >= 0):
            raise InvalidDefinition(f'Budget: cost_usd={cost!r}, write Decimal("2.00"): floats are not exact')


@dataclass(frozen=True, kw_only=True, eq=False)
class EffectDefinition(Generic[R_co]):
    """An action outside that must not be repeated by accident. Used in a step by `run.effect(this, ...)`.

    Shapes and units   key_window: how long the provider honours a key, None: it has no keys; settle_seconds: after
                       which a send has landed or is lost; timeout_seconds: wall time of one call; accepted: whether
                       a receipt says "pending"; accepted_within: how long it may stay so before a person is asked;
                       event: reads what the provider tells on its own (`core.events.EventReading`);
                       one_at_a_time: called with the arguments, gives what only one send at a time may be about;
                       left_to_person: it has no key and no lookup, on purpose;
                       transactional: its writes in the engine's database commit with its row and its receipt;
                       undo: the effect that undoes it, given those of its arguments and of `receipt` that it names
    """

    name: str
    provider: str
    receipt: type[R_co]
    function: Callable[..., R_co]
    arguments: Arguments
    version: int = 1
    lookup: Callable[..., object] | None = None
    key_window: timedelta | None = None
    settle_seconds: float = 30.0
    timeout_seconds: float = 10.0
    accepted: Callable[[R_co], bool] | None = None
    accepted_within: timedelta | None = None
    resend_when_absent: bool = False
    left_to_person: bool = False
    event: EventReader | None = None
    one_at_a_time: Callable[..., object] | None = None
    undo: "EffectDefinition[object] | None" = None
    transactional: bool = False

    def turn_key(self, arguments: Mapping[str, JSON]) -> str:
        """What a send with these stored arguments takes turns for; '' when it takes none. Runs the project's code."""
        if self.one_at_a_time is None:
            return ""
        given = self.one_at_a_time(**self.load_arguments(arguments))
        text = storable_text("" if given is None else str(given))
        return text if len(text) <= LONGEST_TURN_KEY else sha256(text)

    @property
    def resend_window(self) -> timedelta | None:
        """How long after the first dispatch the same key may be sent again; None: the provider has no keys.

        The margin is what a request may need to arrive: the provider's clock may say "too old" while it flies.
        """
        return self.key_window and self.key_window - timedelta(seconds=self.settle_seconds)

    def dump_arguments(self, arguments: Mapping[str, object]) -> dict[str, JSON]:
        """Write arguments as JSON, checked strictly against the function's annotations, defaults filled in.

        Raises InvalidState naming the effect and each unknown, missing or ill-typed argument.
        """
        return self.arguments.dump(arguments, what=f"effect {self.name}")

    def load_arguments(self, data: Mapping[str, JSON]) -> dict[str, object]:
        """Read stored arguments: what the function is called with. Raises InvalidState when they do not fit."""
        return self.arguments.load(data, what=f"effect {self.name}")

    def dump_receipt(self, receipt: object) -> JSON:
        """Write a receipt as JSON; text that PostgreSQL cannot store is marked, never refused: a receipt is a fact.

        Raises InvalidState when it is not of the declared type.
        """
        what = f"receipt of effect {self.name}"
        given = storable_text(receipt) if isinstance(receipt, str) else receipt
        checked = shape.check(self._receipt_adapter, given, what=what)
        return shape.write_marked(self._receipt_adapter, checked, what=what)

    def load_receipt(self, data: JSON) -> R_co:
        """Read a stored receipt. Raises InvalidState when it does not fit the declared type."""
        return shape.load(self._receipt_adapter, data, what=f"receipt of effect {self.name}")

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        """Refuse: called directly it would act without a stored intent."""
        raise InvalidDefinition(
            f"effect {self.name} is called directly: use run.effect({self.function.__name__}, ...) in a step; "
            "in a test of the function itself, call its .function"
        )

    @cached_property
    def _receipt_adapter(self) -> TypeAdapter[R_co]:
        return TypeAdapter(self.receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """One node of a workflow. `to` lists where it may go; the three `on_…` and `recheck` lead elsewhere."""

    name: str
    kind: StepKind
    function: StepFunction | None = None
    to: tuple[str, ...] = ()
    start: bool = False
    end: bool = False
    join: bool = False
    effects: tuple[EffectDefinition[object], ...] = ()
    queue: str | None = None
    retry: Retry = field(default_factory=Retry)
    atomic: bool = False
    timeout_seconds: float = 60.0
    recheck: Check | None = None
    on_refused: str | None = None
    on_failure: str | None = None
    permanent: tuple[type[Exception], ...] = ()
    transient: tuple[type[Exception], ...] = ()
    approval: ApprovalSpec | None = None

    @property
    def leads_to(self) -> tuple[str, ...]:
        """Each step that a run can go to from here, by whatever way, once each."""
        ways = (*self.to, self.on_refused, self.on_failure)
        return tuple(dict.fromkeys(way for way in ways if way is not None))


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkflowDefinition:
    """A whole workflow, read once from its class.

    `structure` is the fingerprint of steps, edges, effects with versions, and state schema; two releases with the same
    structure can go on with each other's runs. `merges`: fields whose changes by branches are brought together.
    `migrations`: by the version that they come from. `workflow` is the one instance that step functions get as `self`.
    `on_failure`, `on_cancel`: the steps that a clean-up begins with; `cleanup_within`: how long all of it may take.
    `undo_on_failure`, `undo_on_cancel`, `undo_within`: the same of undoing what was done; `undo_steps`: the steps that
    the engine adds for that. `effects`: all that are used, with those that undo them.
    """

    name: str
    version: int
    doc: str
    state_type: type[WorkflowState]
    steps: Mapping[str, StepDefinition]
    start: str
    deadline: timedelta
    budget: Budget
    effects: Mapping[str, EffectDefinition[object]]
    structure: str
    merges: Mapping[str, Merge]
    migrations: Mapping[int, MigrationDefinition]
    pins: Pins
    workflow: object
    on_failure: str | None
    on_cancel: str | None
    cleanup_within: timedelta
    undo_on_failure: bool
    undo_on_cancel: bool
    undo_within: timedelta
    undo_steps: Mapping[str, StepDefinition]

    @property
    def all_steps(self) -> tuple[StepDefinition, ...]:
        """Its steps, and those that undo what they did."""
        return (*self.steps.values(), *self.undo_steps.values())

    @cached_property
    def cleanup_steps(self) -> frozenset[str]:
        """Those that a clean-up alone goes through: nothing from the start leads to one."""
        seen, waiting = set[str](), [self.start]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self.steps[name].leads_to
        return frozenset(self.steps) - seen

    def has_step(self, name: str) -> bool:
        """Is this one of its steps, or one that undoes what they did?"""
        return name in self.steps or name in self.undo_steps

    def step(self, name: str) -> StepDefinition:
        """Return a step, or one that undoes. Raises InvalidDefinition with the known names."""
        found = self.steps.get(name) or self.undo_steps.get(name)
        if found is None:
            raise InvalidDefinition(f"{self.name} v{self.version} has no step {name!r}; it has {', '.join(self.steps)}")
        return found

    @cached_property
    def code(self) -> str:
        """Digest of the class's source, docstrings and all; '' where there is none. It warns, it decides nothing."""
        try:
            return sha256(inspect.getsource(type(self.workflow)))
        except (OSError, TypeError):
            return ""

    @cached_property
    def has_joins(self) -> bool:
        """Do branches come together somewhere?"""
        return any(step.join for step in self.steps.values())

    @cached_property
    def reaches(self) -> Mapping[str, frozenset[str]]:
        """For each step, all that a run can come to from it, by whatever way; itself only by a loop."""
        return {name: frozenset(self._reached_from(name)) for name in self.steps}

    def _reached_from(self, name: str) -> set[str]:
        found: set[str] = set()
        ahead = list(self.steps[name].leads_to)
        while ahead:
            following = ahead.pop()
            if following not in found:
                found.add(following)
                ahead.extend(self.steps[following].leads_to)
        return found

    def run_step_task_name(self, step: str) -> str:
        """Name the Celery task that runs a step: "refund.pay"."""
        return f"{self.name}.{self.step(step).name}"

    def __repr__(self) -> str:
        return f"<WorkflowDefinition {self.name} v{self.version}: {', '.join(self.steps)}>"


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _refuse_nothing(span: timedelta | None, what: str) -> None:
    if span is not None and span <= timedelta(0):
        raise InvalidDefinition(f"{what} must be longer than nothing")
