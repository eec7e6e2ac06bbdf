"""What user code sees of a run: the abstract context that a step body gets as `run`.

Owns the vocabulary and its types. `durableflows.context` implements it; users' steps, rechecks and `shows`
functions receive it. Never known to the pure core's deciders.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from durableflows.core.definition import EffectDefinition
from durableflows.core.payload import JSON
from durableflows.core.refs import StepRef
from durableflows.core.state import WorkflowState

S = TypeVar("S", bound=WorkflowState)
R = TypeVar("R")


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


class Run(ABC, Generic[S]):
    """One run, as its own step sees it. `state` is checked when assigned to and stored when the step settles.

    Shapes and units   id: UUID as text; owner_name and subject: '' for none; subject: what the run is about, as
                       "app_label.model:pk"; manifest: what the run pinned at its start; item, item_key: what
                       `each(...)` gave this branch, None and '' elsewhere
    """

    id: str
    state: S
    owner_name: str
    tenant: str
    subject: str
    manifest: Mapping[str, JSON]
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
    def decision(self, step: StepRef) -> Decision:
        """Return what was decided at an approval: run.decision(self.sign_off).

        Raises NotFoundError before any decision.
        """

    @abstractmethod
    def note(self, text: str) -> None:
        """Write a line into the run's history, for people. No secrets."""
