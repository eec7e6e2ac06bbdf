"""Exception -> what it means. Inside an effect an unknown exception is doubt; outside one it is an error in our code.

Source: design, section 5; specification S3.6 to S3.9; R13.
"""

from durableflows.core.definition import StepDefinition
from durableflows.core.outcomes import Answer, AnswerKind, ErrorInfo, Failed, FailureKind
from durableflows.core.payload import redact, storable
from durableflows.core.retry_after import LONGEST_SECONDS
from durableflows.errors import (
    AlreadyDone,
    ChangedOutside,
    CredentialsRefused,
    DurableflowsError,
    KeyConflict,
    KeyInUse,
    LimitReached,
    NeedsHuman,
    NeverSent,
    Permanent,
    StepFailure,
    Transient,
    UnknownOutcome,
)

TEXT_LIMIT = 2000

SAYS: tuple[tuple[type[BaseException], AnswerKind], ...] = (
    (NeverSent, AnswerKind.NOT_SENT),
    (Transient, AnswerKind.NOT_DONE),
    (Permanent, AnswerKind.REJECTED),
    (CredentialsRefused, AnswerKind.CREDENTIALS),
    (NeedsHuman, AnswerKind.NEEDS_HUMAN),
    (KeyConflict, AnswerKind.CONFLICT),
    (KeyInUse, AnswerKind.IN_USE),
    (AlreadyDone, AnswerKind.ALREADY),
    (UnknownOutcome, AnswerKind.UNKNOWN),
)
"""What each of our exceptions says of one send; the first that fits. Everything else is doubt."""


def describe(error: BaseException) -> ErrorInfo:
    """Keep class, code and text of an error: masked, storable and bounded (P14, R30)."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__
    details = getattr(error, "details", None)
    code = str(details.get("code", "")) if isinstance(details, dict) else ""
    if not code and isinstance(error, DurableflowsError):
        code = error.code
    text = str(storable(redact(_text(error))))
    return ErrorInfo(error_class=name[:200], code=str(storable(code))[:100], text=text[:TEXT_LIMIT])


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that something failed
        return f"{type(error).__name__} (its text cannot be shown)"


def answer_of(error: BaseException) -> Answer:
    """What an exception raised inside an effect says about that one send."""
    kind = next((kind for type_, kind in SAYS if isinstance(error, type_)), AnswerKind.UNKNOWN)
    return Answer(kind, error=describe(error), retry_after_seconds=asked_for(error))


def asked_for(error: BaseException) -> float | None:
    """How many seconds the provider wants to be left alone; None for what is no number of seconds (R11)."""
    seconds = getattr(error, "retry_after_seconds", None) if isinstance(error, StepFailure) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:  # not a number is not > 0
        return None
    return float(min(seconds, LONGEST_SECONDS))


def failure_of(error: BaseException, step: StepDefinition) -> Failed:
    """What an exception that left the step's body says about the attempt."""
    info = describe(error)
    if isinstance(error, NeverSent):
        return Failed(FailureKind.NEVER_SENT, info, asked_for(error))
    if isinstance(error, Transient):
        return Failed(FailureKind.TRANSIENT, info, asked_for(error))
    if isinstance(error, Permanent) or (step.permanent and isinstance(error, step.permanent)):
        return Failed(FailureKind.PERMANENT, info)
    if isinstance(error, NeedsHuman):
        return Failed(FailureKind.NEEDS_HUMAN, info)
    if isinstance(error, KeyConflict):
        return Failed(FailureKind.KEY_CONFLICT, info)
    if isinstance(error, ChangedOutside):
        return Failed(FailureKind.INTEGRITY, info)
    if isinstance(error, LimitReached):
        return Failed(FailureKind.LIMIT, info)
    if step.transient and isinstance(error, step.transient):
        return Failed(FailureKind.TRANSIENT, info)
    return Failed(FailureKind.OUR_CODE, info)
