"""What user code sees of a run: the abstract context that a step body gets as `run`.

Owns the vocabulary and its types. `durableflows.context` implements it; users' steps, rechecks and `shows`
functions receive it. Never known to the pure core's deciders.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from durableflows.core.definition import EffectDefinition
from durableflows.core.payload import JSON
from durableflows.core.pins import Manifest
from durableflows.core.references import ArtifactRef, SecretRef
from durableflows.core.refs import StepRef
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidState

S = TypeVar("S", bound=WorkflowState)
R = TypeVar("R")

BINARY = "application/octet-stream"
LONGEST_MODEL = 100
HIGHEST_COST = Decimal(10**8)
MILLIONTH = Decimal("0.000001")


class Decision(Protocol):
    """What people decided about an approval of this run, at its last visit."""

    @property
    def approved(self) -> bool:
        """Whether the answer was yes. An expired request counts as no."""

    @property
    def actor_name(self) -> str:
        """Who gave the deciding answer, as the name was then; '' when time did."""

    @property
    def comment(self) -> str:
        """What they wrote; '' for nothing."""

    @property
    def at(self) -> datetime:
        """When it was decided (aware, UTC)."""

    @property
    def edits(self) -> BaseModel | None:
        """What they approved instead, as the approval's `edits=`; None when they changed nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one branch of a step came to. `error`: why it failed for good; '' when it did not."""

    item_key: str
    value: JSON
    error: str

    @property
    def succeeded(self) -> bool:
        """Did the branch's step do its work?"""
        return not self.error


@dataclass(frozen=True, slots=True)
class Signal:
    """A message from outside that a step has waited for; used up by this step alone."""

    name: str
    payload: JSON
    sender_name: str
    arrived_at: datetime


@dataclass(frozen=True, slots=True)
class Child:
    """A run that a step has started and waited for. `error`: how it ended when it did not succeed, else ''."""

    run_id: str
    workflow: str
    result: JSON
    error: str


class ModelCall:
    """One call of a model: `estimate_usd` is held for it; set `cost_usd` to what it did cost once that is known."""

    def __init__(self, model: str, estimate_usd: Decimal) -> None:
        if not model or len(model) > LONGEST_MODEL:
            raise InvalidState(f"model_call: a model's name of 1 to {LONGEST_MODEL} characters is needed")
        self.model, self.estimate_usd = model, _cost(estimate_usd, "estimate_usd")
        self._cost_usd: Decimal | None = None

    @property
    def cost_usd(self) -> Decimal | None:
        """What the call did cost; None: the estimate counts."""
        return self._cost_usd

    @cost_usd.setter
    def cost_usd(self, cost: Decimal) -> None:
        self._cost_usd = _cost(cost, "cost_usd")


def _cost(value: object, name: str) -> Decimal:
    if not isinstance(value, Decimal) or not value.is_finite() or not 0 <= value < HIGHEST_COST:
        raise InvalidState(f'model_call: {name}={value!r}, write Decimal("0.05"): floats are not exact')
    exact = value.quantize(MILLIONTH)
    if exact != value:
        raise InvalidState(f"model_call: {name}={value}, at most six decimals are kept")
    return exact


class Run(ABC, Generic[S]):
    """One run, as its own step sees it. `state` is checked when assigned to and stored when the step settles.

    Shapes and units   id: UUID as text; owner_name and subject: '' for none; subject: what the run is about, as
                       "app_label.model:pk"; manifest: what the run pinned at its start, with
                       `manifest.prompt(name)` and `manifest.policy(name)`; item, item_key: what
                       `each(...)` gave this branch, None and '' elsewhere
    """

    id: str
    state: S
    owner_name: str
    tenant: str
    subject: str
    manifest: Manifest
    item: JSON
    item_key: str

    @property
    @abstractmethod
    def signal(self) -> Signal | None:
        """The signal that `wait_for(..., then=<this step>)` has waited for; None elsewhere."""

    @property
    @abstractmethod
    def child(self) -> Child | None:
        """The run that `child(..., then=<this step>)` has waited for, or that failed; None elsewhere."""

    @abstractmethod
    def results(self, step: StepRef) -> tuple[Result, ...]:
        """Return what the branches of a step came to, in the order of the items: for the join that gathers them.

        Of a step that was reached without `each`, the result of its last visit.
        """

    @abstractmethod
    def give_result(self, value: object) -> None:
        """Give this step's result, a value that can be written as JSON. Stored when the step settles.

        Raises InvalidState for a value that has no JSON form
        """

    @abstractmethod
    def effect(self, effect: EffectDefinition[R], /, *, operation: str | None = None, **arguments: object) -> R:
        """Do an action outside once, and return its receipt; a body that runs again gets the stored receipt.

        Shapes and units   operation: a name of your own when one step does the same effect twice, else the
                           effect's name
        Raises             InvalidState for arguments that do not fit; KeyConflict when the same operation was stored
                           with others; Permanent and NeedsHuman as the effect raised them; control flow
                           (BaseException) when the outcome is open, the lease is lost or the run is halted
        """

    @abstractmethod
    def artifact(self, name: str, content: bytes | str, *, content_type: str = BINARY) -> ArtifactRef:
        """Keep a large value in the project's storage, named by its hash, and give the reference for the state.

        The same value under the same name is kept once, also by a body that runs again. In an atomic step the bytes
        stay when the transaction is rolled back.

        Raises   InvalidState for more than MAX_ARTIFACT_BYTES
        """

    @abstractmethod
    def read_artifact(self, ref: ArtifactRef) -> bytes:
        """Read a large value of this run back.

        Raises   NotFoundError when it is gone, InvalidState when it was changed
        """

    @abstractmethod
    def secret(self, ref: SecretRef) -> str:
        """Look a secret up by the project's resolver, for use in this body alone: nothing keeps it.

        Raises   NeedsHuman when there is no such secret, InvalidState when no resolver is set
        """

    @abstractmethod
    def model_call(self, model: str, *, estimate_usd: Decimal) -> AbstractContextManager[ModelCall]:
        """Call a model within the run's budget: `with run.model_call("small", estimate_usd=Decimal("0.02")) as call:`

        The call is counted and its estimate held before the block begins. Set `call.cost_usd` in it; without that, or
        when the worker dies, the estimate counts: the provider may have charged it. A body that runs again calls
        again, and pays again.

        Raises   LimitReached (the run ends as EXHAUSTED_BUDGET) when it does not fit; InvalidState for a cost that is
                 no Decimal from 0 with at most six decimals; InvalidDefinition in an atomic step or an
                 approval
        """

    @abstractmethod
    def decision(self, step: StepRef) -> Decision:
        """Return what was decided at an approval: run.decision(self.sign_off).

        Raises NotFoundError before any decision.
        """

    @abstractmethod
    def note(self, text: str) -> None:
        """Write a line into the run's history, for people. No secrets."""
