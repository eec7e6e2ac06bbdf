"""One request at the provider, from arrival to answer, with the fault that was ordered for it.

Owns the order of things: log, key of the account, idempotency key, endpoint, act, answer. Called by the server, one
thread a request. What is done is done in a transaction of the books; a fault never undoes an act.
"""

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from customer_ops.sandbox import actions, forms, keys, log, tickets
from customer_ops.sandbox.answers import Answer, ApiError, server_error
from customer_ops.sandbox.books import Books
from customer_ops.sandbox.faults import BEFORE, Fault, FaultPlan, Kind, Sighting
from customer_ops.sandbox.holds import Holds
from customer_ops.sandbox.line import Line
from customer_ops.sandbox.mishaps import LineClosedError, Mishaps, keeps_its_error

Act = Callable[[sqlite3.Connection, actions.Origin], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What arrived."""

    id: str
    seen: Sighting
    bearer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How this provider was set up."""

    account_key: str
    key_window_seconds: float = 24 * 3600.0
    strict_digits: bool = False
    search_lag_seconds: float = 0.0


class Provider:
    """The account: its books, its terms, and the plan of what goes wrong."""

    def __init__(self, books: Books, plan: FaultPlan, holds: Holds, terms: Terms) -> None:
        self.books, self.plan, self.holds, self.terms = books, plan, holds, terms
        self.search_lag_seconds = terms.search_lag_seconds

    def handle(self, request: Request, line: Line) -> None:
        """Serve one request."""
        with self.holds.under_way(request.id):
            self._serve(request, line)

    def _serve(self, request: Request, line: Line) -> None:
        fault = self.plan.take(request.seen)
        log.write_arrival(self.books, request.id, request.seen, fault=fault.kind if fault else None)
        mishaps = Mishaps(self.books, self.holds, line, request_id=request.id, key=request.seen.key)
        try:
            if fault is not None and fault.kind in BEFORE:
                mishaps.before(fault)
            answer = self._answer(request, fault)
        except LineClosedError:
            return
        except ApiError as error:
            answer = error.answer
        if fault is None or fault.kind in BEFORE:
            mishaps.answer(answer)
        else:
            mishaps.after(fault, answer)

    def _answer(self, request: Request, fault: Fault | None) -> Answer:
        self._check_account(request)
        if request.seen.method == "POST":
            return self._post(request, fault)
        if request.seen.method == "GET":
            return self._get(request.seen)
        raise _unknown_address(request.seen)

    def _check_account(self, request: Request) -> None:
        if not request.bearer:
            raise ApiError(401, "You did not provide an API key in the Authorization header, using Bearer auth.")
        if request.bearer != self.terms.account_key:
            raise ApiError(401, f"Invalid API Key provided: {request.bearer[:8]}***")

    def _get(self, seen: Sighting) -> Answer:
        now = self.books.now()
        with self.books.transaction() as tx:
            if seen.path == "/v1/refunds":
                return Answer(200, actions.list_refunds(tx, forms.parse_list(seen.params), now=now))
            if match := re.fullmatch(r"/v1/refunds/(\w+)", seen.path):
                return Answer(200, actions.get_refund(tx, match[1], now=now))
            if match := re.fullmatch(r"/v1/charges/(\w+)", seen.path):
                return Answer(200, actions.get_charge(tx, match[1]))
            if seen.path == tickets.PATH:
                lag_seconds = self.search_lag_seconds
                return Answer(200, tickets.search(tx, seen.params, now=now, lag_seconds=lag_seconds))
        raise _unknown_address(seen)

    def _post(self, request: Request, fault: Fault | None) -> Answer:
        stored, act = self._begin(request, fault)
        if stored is not None:
            return stored
        if fault is not None and fault.kind is Kind.SLOW:
            self.holds.hold(request.id, seconds=fault.seconds)
        try:
            return self._act(request, fault, act)
        except Exception:
            self._drop_key(request.seen.key)  # nothing was done: the transaction went back
            raise

    def _begin(self, request: Request, fault: Fault | None) -> tuple[Answer | None, Act]:
        """Take the key, in a commit of its own: from then on it is in use."""
        seen, now = request.seen, self.books.now()
        with self.books.transaction() as tx:
            if seen.key is not None:
                window = self.terms.key_window_seconds
                stored = keys.recall(tx, seen.key, path=seen.path, params=seen.params, now=now, window_seconds=window)
                if stored is not None:
                    return stored, _nothing
            act = self._endpoint(seen, fault)
            if seen.key is not None:
                keys.begin(tx, seen.key, path=seen.path, params=seen.params, request=request.id, now=now)
        return None, act

    def _endpoint(self, seen: Sighting, fault: Fault | None) -> Act:
        """Check the parameters and give the act that they ask for."""
        strict = self.terms.strict_digits
        if seen.path == "/v1/charges":
            charge = forms.parse_charge(seen.params, strict=strict)
            return lambda tx, origin: actions.create_charge(tx, charge, origin)
        if seen.path == "/v1/refunds":
            refund, pending = forms.parse_refund(seen.params), _pending_of(fault)
            return lambda tx, origin: actions.create_refund(tx, refund, origin, pending=pending, strict=strict)
        if seen.path == tickets.PATH:
            ticket = tickets.parse(seen.params)
            return lambda tx, origin: tickets.open_ticket(tx, ticket, origin)
        raise _unknown_address(seen)

    def _act(self, request: Request, fault: Fault | None, act: Act) -> Answer:
        """Act and store the answer: one transaction."""
        key = request.seen.key
        origin = actions.Origin(request=request.id, key=key, now=self.books.now())
        with self.books.transaction() as tx:
            try:
                if fault is not None and fault.kind is Kind.ERROR_BEFORE:
                    raise server_error(fault.status)
                answer = Answer(200, act(tx, origin))
            except ApiError as error:
                if not error.stored:
                    raise
                answer = error.answer
            if keeps_its_error(fault):
                assert fault is not None
                answer = server_error(fault.status).answer
            if key is not None:
                keys.finish(tx, key, answer)
        return answer

    def _drop_key(self, key: str | None) -> None:
        if key is not None:
            with self.books.transaction() as tx:
                keys.drop(tx, key)


def _nothing(_tx: sqlite3.Connection, _origin: actions.Origin) -> dict[str, Any]:
    raise AssertionError("a stored answer needs no act")


def _pending_of(fault: Fault | None) -> actions.Pending | None:
    if fault is None or fault.kind is not Kind.PENDING:
        return None
    return actions.Pending(fault.then, fault.after_seconds, fault.after_reads, fault.failure_reason)


def _unknown_address(seen: Sighting) -> ApiError:
    return ApiError(404, f"Unrecognized request URL ({seen.method}: {seen.path}).")
