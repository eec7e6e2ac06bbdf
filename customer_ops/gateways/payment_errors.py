"""What an error answer of the payment provider or the help desk means: the one place that decides it.

Pure: (status, headers, body) -> an error of `durableflows.errors`, to be raised. Only answers that surely say "nothing
was done" get a class that says so; the rest is an unknown outcome, because a provider may act and then fail to say so.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from customer_ops.gateways.retry_after import parse_retry_after
from durableflows import DurableflowsError, KeyConflict, KeyInUse, NeedsHuman, Permanent, Transient, UnknownOutcome

# The provider's limiter and its lock stand in front of its endpoints; with any status, nothing has begun.
NOT_PROCESSED_CODES = frozenset({"rate_limit", "lock_timeout"})
# Statuses with which an endpoint refuses, when the body says so in the provider's own form. A page of a proxy does not.
REFUSALS = frozenset({400, 402, 403, 404, 410, 422})
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The provider's `{"error": {...}}`; all empty when the body is something else."""

    type: str = ""
    code: str = ""
    message: str = ""
    param: str = ""
    decline_code: str = ""


def read_error(body: bytes) -> ErrorBody:
    """Read an error body, whatever it is; never raises."""
    try:
        error = json.loads(body)["error"]
        return ErrorBody(**{name: _text(error.get(name)) for name in ErrorBody.__slots__})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ErrorBody()


def failure_of(status: int, headers: httpx.Headers, body: bytes, *, what: str) -> DurableflowsError:
    """Say what an error answer means. `what` begins the text: "refund of ch_1 at 127.0.0.1:8100"."""
    error = read_error(body)
    text = f"{what}: answered {status} {error.code or error.type}".rstrip()
    details = {"code": error.code or error.type or f"http_{status}", "status": status, "param": error.param}
    if error.code == "idempotency_key_in_use" or (status == 409 and error.type == "idempotency_error"):
        return KeyInUse(f"{text}: the provider still works on an earlier request", **details)
    if error.type == "idempotency_error":
        return KeyConflict(f"{text}: {error.message}")
    if status == 429 or error.code in NOT_PROCESSED_CODES:
        seconds = parse_retry_after(headers, now=datetime.now(UTC))
        return Transient(f"{text}: not processed", retry_after_seconds=seconds, **details)
    if status == 401:
        return NeedsHuman(f"{text}: the provider does not accept our key", **details)
    if status in REFUSALS and error.type:
        return Permanent(f"{text}: {error.message}", decline_code=error.decline_code, **details)
    return UnknownOutcome(f"{text}: that does not say whether it was done", **details)


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""
