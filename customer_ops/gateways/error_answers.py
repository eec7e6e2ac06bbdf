"""What an error answer of the payment provider or the help desk means: the one place that decides it.

Pure: (status, headers, error body) -> an error of `durableflows.errors`, to be raised. Only answers that surely say
"nothing was done" get a class that says so; the rest is an unknown outcome, because a provider may act and then fail to
say so.
"""

import json
from dataclasses import dataclass, replace

import httpx

from durableflows import AlreadyDone, DurableflowsError, KeyConflict, http_failure

# The provider's limiter and its lock stand in front of its endpoints; with any status, nothing has begun.
NOT_PROCESSED_CODES = frozenset({"rate_limit", "lock_timeout"})
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The provider's `{"error": {...}}`; all empty when the body is something else."""

    type: str = ""
    code: str = ""
    message: str = ""
    param: str = ""
    decline_code: str = ""

    def without_words(self) -> "ErrorBody":
        """The same without its message, which may quote what a customer wrote (P14)."""
        return replace(self, message="")


def read_error(body: bytes) -> ErrorBody:
    """Read an error body, whatever it is; never raises."""
    try:
        error = json.loads(body)["error"]
        return ErrorBody(**{name: _text(error.get(name)) for name in ErrorBody.__slots__})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ErrorBody()


def failure_of(status: int, headers: httpx.Headers, error: ErrorBody, *, what: str) -> DurableflowsError:
    """Say what an error answer means. `what` begins the text: "refund of ch_1 at 127.0.0.1:8100"."""
    is_in_use = error.code == "idempotency_key_in_use" or (status == 409 and error.type == "idempotency_error")
    if error.type == "idempotency_error" and not is_in_use:
        return KeyConflict(_told(f"{what}: answered {status} {error.code or error.type}", error.message))
    if "_already_" in error.code:  # by our own first request, or by somebody else: it is looked up
        text = _told(f"{what}: answered {status} {error.code}", error.message)
        return AlreadyDone(text, code=error.code, status=status)
    return http_failure(
        status,
        headers,
        what=what,
        said=_told(error.code or error.type, "" if status == 401 else error.message),  # not our key
        readable=bool(error.type),
        key_in_use=is_in_use,
        not_done=(status,) if error.code in NOT_PROCESSED_CODES else (),
        code=error.code or error.type or f"http_{status}",
        param=error.param,
        decline_code=error.decline_code,
    )


def _told(*words: str) -> str:
    return ": ".join(filter(None, words))


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""
