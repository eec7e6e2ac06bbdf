"""What an exception of a well-known library means, said by one of our exceptions. Imports none of the libraries.

Conservative: whatever may have left this machine is in doubt, and "nothing was done" counts only when the library had
not sent before by itself and nothing in doubt was being handled. It trusts one thing: that an effect's function makes
one request. Called by `durableflows.classifiers`.
Source: design, section 5; specification S3.6 to S3.9; R13.
"""

from collections.abc import Mapping

from durableflows.core.classify import SAYS
from durableflows.core.http_answers import http_failure
from durableflows.core.outcomes import AnswerKind
from durableflows.core.phases import rule_of
from durableflows.core.raised import handled_before, names, only_reads, was_sent_before
from durableflows.core.retry_after import header
from durableflows.errors import (
    CredentialsRefused,
    DurableflowsError,
    KeyConflict,
    NeverSent,
    StepFailure,
    Transient,
    UnknownOutcome,
)

OURS: Mapping[AnswerKind, type[DurableflowsError]] = {
    kind: ours for ours, kind in SAYS if issubclass(ours, DurableflowsError)
}
OUTSIDE = (NeverSent, Transient, CredentialsRefused)
"""What is heard where no effect is at stake too; the rest is an error in our code there."""


def inside(error: Exception) -> DurableflowsError | None:
    """Say what a library's exception means of the one send of an effect; None: of no library that is known here."""
    meant = _meant(error)
    if meant is None or isinstance(meant, UnknownOutcome):
        return meant
    if was_sent_before(error):
        return UnknownOutcome(f"{meant}; something was sent before it", code="sent_before")
    if _doubts_before(error):
        return UnknownOutcome(f"{meant}; it came while another failure was handled", code="tried_before")
    return meant


def outside(error: Exception) -> DurableflowsError | None:
    """Say what it means where no effect is at stake; None: an error in our code.

    Tried again is what never left or was not processed, and what only reads: a lost answer to a GET, say. A lost answer
    to anything else may have changed something, and there is no ledger to look it up by: a person looks.
    """
    meant = inside(error)
    if isinstance(meant, OUTSIDE):
        return meant
    if isinstance(meant, UnknownOutcome) and all(map(only_reads, (error, *_doubts_before(error)))):
        return Transient(str(meant), retry_after_seconds=meant.retry_after_seconds, **meant.details)
    return None


def _meant(error: Exception) -> DurableflowsError | None:
    rule = rule_of(error)
    if rule is None:
        return None
    text = said(error)
    if rule.says is None:
        return _by_status(error, text)
    if rule.says is AnswerKind.CONFLICT:
        return KeyConflict(text)
    made = OURS[rule.says]
    assert issubclass(made, StepFailure)
    code = str(getattr(error, "code", "") or "")
    return made(text, **({"code": code} if code else {}))


def said(error: BaseException) -> str:
    """Name the exception, with its text."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that something failed
        text = ""
    return f"{names(error)[0]}: {text}" if text else names(error)[0]


def _by_status(error: Exception, text: str) -> DurableflowsError:
    """Judge an answer that the library has made an exception of. Nothing is read from the network for it."""
    response = getattr(error, "response", None)
    status = getattr(error, "http_status", None) or getattr(response, "status_code", None)
    if not isinstance(status, int):
        return UnknownOutcome(text)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    code = str(getattr(error, "code", None) or f"http_{status}")
    # A page is what proxies answer with; a provider's refusal is no page, and Stripe's is JSON with an error in it.
    body = getattr(error, "json_body", {"error": None})
    readable = "html" not in header(headers, "content-type").lower() and isinstance(body, dict) and "error" in body
    return http_failure(status, headers, what=text, readable=readable, code=code)


def _doubts_before(error: BaseException) -> list[BaseException]:
    return [earlier for earlier in handled_before(error) if _is_doubt(earlier)]


def _is_doubt(error: BaseException) -> bool:
    if isinstance(error, DurableflowsError):
        return isinstance(error, UnknownOutcome)
    return isinstance(error, Exception) and isinstance(_meant(error), UnknownOutcome)
