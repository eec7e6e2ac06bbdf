"""How an attempt ended, and what a provider's answer to one send was. Values only: no rows, no exceptions."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from durableflows.core.directives import Compensate, Fail, Goto, Succeed
from durableflows.core.money import Money
from durableflows.core.payload import JSON


class FailureKind(StrEnum):
    """Why an attempt failed; each kind has its own way on (design, section 5)."""

    NEVER_SENT = "never sent"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    OUR_CODE = "error in our code"
    NEEDS_HUMAN = "needs a person"
    KEY_CONFLICT = "key conflict"
    INTEGRITY = "changed from outside"
    LIMIT = "limit reached"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as rows keep it: redacted, storable text and no frame variables."""

    error_class: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """What an approval step asks: computed by user code, before any lock.

    amount     by which it is chosen who is asked; form: what an approver may change (`core.edits`), as JSON
    unneeded   the rule by which nobody needs to be asked; '' when somebody does
    can_be_answered   is there anybody who could?
    """

    title: str
    binding: dict[str, JSON]
    context: dict[str, JSON]
    amount: Money | None = None
    form: list[JSON] = field(default_factory=list)
    unneeded: str = ""
    can_be_answered: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """The body returned; `data` is the state it left, validated as a whole; `output` what it gave as its result.

    `notes` of an atomic step are written with its settlement; other steps have written theirs.
    """

    directive: Goto | Succeed | Fail | Compensate
    data: dict[str, JSON]
    output: JSON = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The body or an effect failed in a way that is understood."""

    kind: FailureKind
    error: ErrorInfo
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InDoubt:
    """An effect of the step may have happened."""

    error: ErrorInfo | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """A provider has accepted an effect and is not done with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """An approval step has computed its question."""

    question: Question


@dataclass(frozen=True, slots=True)
class Refused:
    """The recheck before the first send said no."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halted:
    """The run was cancelled, paused or parked while the step was under way."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The body's changes collide with those of a step that settled while it ran."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A provider takes nothing of this step now: nothing was sent, and nothing is charged.

    held_for   a word of `core.rates.HeldFor`; key: whose turn it is, for effects that take turns; until: look again
    """

    provider: str
    held_for: str
    until: datetime
    reason: str
    key: str = ""


Outcome = Conflict | Done | Failed | InDoubt | Waits | Asked | Refused | Halted | Held


class AnswerKind(StrEnum):
    """What one send brought back."""

    RECEIPT = "receipt"
    ACCEPTED = "accepted"
    NOT_SENT = "not sent"
    NOT_DONE = "not done"
    REJECTED = "rejected"
    NEEDS_HUMAN = "needs a person"
    CREDENTIALS = "credentials refused"
    CONFLICT = "key conflict"
    IN_USE = "key in use"
    ALREADY = "already done"
    UNKNOWN = "unknown"


# Answers that say "this send did nothing": they speak for their own send only (protocol, rule 7).
NEGATIVE = frozenset(
    {
        AnswerKind.NOT_SENT,
        AnswerKind.NOT_DONE,
        AnswerKind.REJECTED,
        AnswerKind.NEEDS_HUMAN,
        AnswerKind.CREDENTIALS,
        AnswerKind.CONFLICT,
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one send, in a form that can always be stored.

    health   what it says about the provider: a word of `core.breaker.Health`
    """

    kind: AnswerKind
    receipt: JSON = None
    error: ErrorInfo | None = None
    retry_after_seconds: float | None = None
    details: dict[str, JSON] = field(default_factory=dict)
    health: str = ""
