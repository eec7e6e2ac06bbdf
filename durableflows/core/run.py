"""What user code sees of a run: the abstract context that a step body gets as `run`.

Owns the vocabulary and its types. `durableflows.context` implements it; users' steps, rechecks and `shows`
functions receive it. Never known to the pure core's deciders.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from durableflows.core.definition import EffectDefinition
from durableflows.core.directives import StepRef
from durableflows.core.payload import JSON
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


class Run(ABC, Generic[S]):
    """One run, as its own step sees it. `state` is checked when assigned to and stored when the step settles.

    Shapes and units   id: UUID as text; owner_name and subject: '' for none; subject: what the run is about, as
                       "app_label.model:pk"; manifest: what the run pinned at its start
    """

    id: str
    state: S
    owner_name: str
    tenant: str
    subject: str
    manifest: Mapping[str, JSON]

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
