"""Carries the faults out that happen before anything is done and after all is done; those in between are `provider`'s.

Owns what each of them does to the line and what the log says about it. Never touches charges, refunds or keys.
"""

from collections.abc import Callable

from customer_ops.sandbox import keys, log
from customer_ops.sandbox.answers import Answer, ApiError, server_error
from customer_ops.sandbox.books import Books
from customer_ops.sandbox.faults import Fault, Kind
from customer_ops.sandbox.holds import Holds
from customer_ops.sandbox.line import Line


class LineClosedError(Exception):
    """The fault ended the connection; there is nothing to answer."""


class Mishaps:
    """The faults of one request."""

    def __init__(self, books: Books, holds: Holds, line: Line, *, request_id: str, key: str | None) -> None:
        self._books, self._holds, self._line = books, holds, line
        self._request_id, self._key = request_id, key

    def before(self, fault: Fault) -> None:
        """Fail before anything is done. Returns when the request is to go on; raises LineClosedError or ApiError."""
        match fault.kind:
            case Kind.REFUSE:
                self._hang_up("reset, nothing done", self._line.reset)
            case Kind.CUT_BEFORE:
                self._hang_up("closed, nothing done", self._line.cut)
            case Kind.TIMEOUT_BEFORE:
                self._note("no answer, nothing done")
                self._holds.hold(self._request_id, seconds=fault.seconds, client=self._line.socket)
                self._hang_up("no answer, nothing done", self._line.cut)
            case Kind.LATE:
                self._holds.hold(self._request_id, seconds=fault.seconds)
            case Kind.ERROR_BEFORE if fault.stored:
                return  # the key must keep it, so the endpoint says it
            case _:
                raise _refusal(fault, self._key)

    def after(self, fault: Fault, answer: Answer) -> None:
        """Answer badly, after all was done and is on disk."""
        match fault.kind:
            case Kind.ERROR_AFTER:
                self.answer(server_error(fault.status).answer)
            case Kind.CUT_AFTER:
                self._note("done, closed without an answer", answer)
                self._line.cut()
            case Kind.TIMEOUT_AFTER:
                self._note("done, no answer", answer)
                self._holds.hold(self._request_id, seconds=fault.seconds, client=self._line.socket)
                self._line.cut()
            case Kind.HALF_ANSWER:
                self._note("done, half an answer", answer)
                self._line.send_half(answer)
            case Kind.HTML_ANSWER:
                self._note("done, answered with a page", answer)
                self._line.send_html(answer)
            case Kind.BAD_JSON:
                self._note("done, answered with broken JSON", answer)
                self._line.send_bad_json(answer)
            case Kind.TRICKLE:
                self._note("done, answered byte by byte", answer)
                pause = 0.05 if fault.seconds is None else fault.seconds
                self._line.trickle(answer, lambda: self._holds.hold(self._request_id, seconds=pause))
            case _:  # the fault was in the work, the answer itself is whole
                self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """Answer as one should."""
        self._note("answered", answer)
        self._line.send(answer)

    def _hang_up(self, outcome: str, how: Callable[[], None]) -> None:
        self._note(outcome)
        how()
        raise LineClosedError

    def _note(self, outcome: str, answer: Answer | None = None) -> None:
        status, replayed = (answer.status, int(answer.replayed)) if answer else (None, 0)
        log.write_outcome(self._books, self._request_id, outcome, status=status, replayed=replayed)


def keeps_its_error(fault: Fault | None) -> bool:
    """Is the 5xx after the act the provider's own, which its key keeps, or that of a proxy in front (502 to 504)?"""
    if fault is None or fault.kind is not Kind.ERROR_AFTER:
        return False
    return fault.status == 500 if fault.stored is None else fault.stored


def _refusal(fault: Fault, key: str | None) -> ApiError:
    match fault.kind:
        case Kind.ERROR_BEFORE:
            return server_error(fault.status)
        case Kind.RATE_LIMITED:
            headers = (("Retry-After", fault.retry_after),) if fault.retry_after else ()
            return ApiError(429, "Too many requests hit the API too quickly.", code="rate_limit", headers=headers)
        case Kind.UNAUTHORIZED:
            return ApiError(401, "Expired API Key provided", code="api_key_expired")
        case Kind.FORBIDDEN:
            return ApiError(403, "The provided key does not have the required permissions for this endpoint.")
        case _:
            return keys.in_use(key or "")
