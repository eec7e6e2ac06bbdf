"""Every error that durableflows raises on purpose.

DurableflowsError                      anything below; has a stable `code`, stored in rows
├── InvalidDefinition                  a workflow, step, effect or approval is declared wrongly
│   └── UnknownWorkflow                no such workflow or version is registered here
├── InvalidState                       a value does not fit its declared type (also: NaN, extra field)
│   └── ChangedOutside                 what is stored is not what this project wrote there
├── NotFoundError                      no such run, request or effect, or none that this person may see
├── NotAllowed                         the person lacks the right, or is excluded (own request, another tenant)
│   └── TenantsUnknown                 the project did not say in which tenants the person acts
├── TooLate                            the row has moved on: ended, expired, already decided
│   ├── AlreadyDecided                 somebody else decided, or the same person decided otherwise
│   └── FactsChanged                   what was shown is not what is true now; carries the differences
├── KeyConflict                        the same business key or idempotency key with another request
├── ConcurrentChange                   the row was written by somebody else between reading and writing
├── StateConflict                      a step that settled meanwhile changed the same fields; the body runs again
├── ReserveInTransaction               an effect was asked for inside an open database transaction
├── LimitReached                       a budget, deadline or size limit
└── StepFailure                        raised by step and effect code to say how it failed
    ├── Transient                      not done, may work later; `retry_after_seconds` is never shortened
    │   └── NeverSent                  nothing left this machine (refused, unknown host, breaker open)
    ├── Permanent                      not done, and the same request will never work
    ├── UnknownOutcome                 may have been done: the answer was lost
    │   ├── KeyInUse                   the provider is still working on an earlier request with this key
    │   └── AlreadyDone                the provider says that it is already so ("already refunded"), by whomever
    └── NeedsHuman                     a person must look, for the given reason
        └── CredentialsRefused         the provider does not take our key or log-in: this send did nothing
ControlFlow (BaseException)            must not be swallowed by `except Exception` in user code
├── LeaseLost                          another worker holds the step now
├── RunHalted                          the run was cancelled, paused, parked or has ended
└── EffectOpen                         an effect of this step is in doubt or pending: the step gives its lease up
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class DurableflowsError(Exception):
    """Base of every error meant for callers. `code` is stable across releases."""

    code: ClassVar[str] = "error"


class InvalidDefinition(DurableflowsError):
    """A declaration is wrong. The message names class, step and cure."""

    code = "invalid_definition"


class UnknownWorkflow(InvalidDefinition):
    """No workflow of that name and version is registered in this process."""

    code = "unknown_workflow"


class InvalidState(DurableflowsError):
    """A value does not fit its declared type. `problems` holds (path, message) pairs."""

    code = "invalid_state"

    def __init__(self, message: str, *, problems: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class ChangedOutside(InvalidState):
    """What is stored does not match its digest: it was written by something else than durableflows."""

    code = "changed_outside"


class NotFoundError(DurableflowsError):
    """No such row, or none that this person may see; the two are not told apart."""

    code = "not_found"


class NotAllowed(DurableflowsError):
    """The person may not do this. Nothing changed."""

    code = "not_allowed"


class TenantsUnknown(NotAllowed):
    """The project's `TENANTS_OF` failed or gave no clear answer: every door stays shut. Nothing changed."""

    code = "tenants_unknown"


class TooLate(DurableflowsError):
    """The run, step or request has moved on. Nothing changed."""

    code = "too_late"


class AlreadyDecided(TooLate):
    """The request has an answer already. The message says whose and when."""

    code = "already_decided"


class FactsChanged(TooLate):
    """The binding facts differ from what was shown. `changes` maps name to (shown, now)."""

    code = "facts_changed"

    def __init__(self, message: str, *, changes: Mapping[str, tuple[object, object]]) -> None:
        super().__init__(message)
        self.changes = dict(changes)


class KeyConflict(DurableflowsError):
    """The same key was used with another request. The first one is untouched."""

    code = "key_conflict"


class ConcurrentChange(DurableflowsError):
    """A compare-and-swap lost. The caller's transaction must be rolled back and may be tried again."""

    code = "concurrent_change"


class StateConflict(DurableflowsError):
    """A step that settled while this one ran changed the same fields of the state. `fields` names them."""

    code = "state_conflict"

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__(f"another step changed the same fields of the state meanwhile: {', '.join(fields)}")
        self.fields = fields


class ReserveInTransaction(DurableflowsError):
    """An effect inside an open transaction: its intent could be rolled back after the act."""

    code = "reserve_in_transaction"


class LimitReached(DurableflowsError):
    """A declared limit is reached. `limit` names it."""

    code = "limit_reached"

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class StepFailure(DurableflowsError):
    """How a step or an effect failed. `details` are kept in the row: no secrets, JSON values only."""

    code = "step_failure"

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.details = details


class Transient(StepFailure):
    """Not done; may work later. `retry_after_seconds` is what the provider asked for."""

    code = "transient"

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after_seconds = retry_after_seconds


class NeverSent(Transient):
    """Nothing left this machine: safe to try again, unless an earlier send is in doubt."""

    code = "never_sent"


class Permanent(StepFailure):
    """Not done, and the same request will not work later."""

    code = "permanent"


class UnknownOutcome(StepFailure):
    """It may have been done: the answer was lost after the request left. `retry_after_seconds` as for `Transient`."""

    code = "unknown_outcome"

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after_seconds = retry_after_seconds


class KeyInUse(UnknownOutcome):
    """The provider still works on an earlier request with this key: wait and ask again."""

    code = "key_in_use"


class AlreadyDone(UnknownOutcome):
    """The provider says that it is already so, by us or by somebody else: looked up, never sent again by itself."""

    code = "already_done"


class NeedsHuman(StepFailure):
    """A person must look before anything else happens."""

    code = "needs_human"


class CredentialsRefused(NeedsHuman):
    """The provider does not take our key or log-in: this send did nothing. In an effect it pauses the provider."""

    code = "credentials_refused"


class ControlFlow(BaseException):
    """Ends a step body at once. Derives from BaseException so that user code cannot swallow it by accident."""

    code: ClassVar[str] = "control_flow"


class LeaseLost(ControlFlow):
    """Another worker holds the step, or nobody does: this attempt may write nothing more."""

    code = "lease_lost"


class RunHalted(ControlFlow):
    """The run was cancelled, paused or parked, or has ended, while the step was under way."""

    code = "run_halted"


class EffectOpen(ControlFlow):
    """An effect of this step is in doubt or pending at the provider; the step goes on when it is settled.

    `outcome` is what the attempt ends with (a value of `core.outcomes`).
    """

    code = "effect_open"

    def __init__(self, message: str, *, outcome: object) -> None:
        super().__init__(message)
        self.outcome = outcome
