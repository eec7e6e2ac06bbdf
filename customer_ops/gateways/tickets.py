"""The help desk: open a ticket, and find out whether one was opened. HTTP and JSON.

Called by the declared effect. Each send is one POST with the engine's key as client token, which is also the ticket's
external id, so that a lookup finds exactly that ticket after the help desk has forgotten the token. Its search lags
and says how far; what it does not see yet is no "not found". Nothing here retries or touches the database.
"""

import json
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ConfigDict

from customer_ops.gateways.error_answers import failure_of, read_error
from customer_ops.gateways.wire import Deadline, exchange, is_fit_for_header
from durableflows import CannotTell, EffectCall, Found, NeedsHuman, NotFound, StepFailure, UnknownOutcome

M = TypeVar("M", bound=BaseModel)

PATH = "/tickets"


class TicketReceipt(BaseModel):
    """What the help desk calls the ticket."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: str


class _Ticket(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    external_id: str


class _Found(BaseModel):
    model_config = ConfigDict(strict=True)

    tickets: list[_Ticket]
    index_lag_seconds: float


class TicketsClient:
    """One account at the help desk. Threads and processes may share it: nothing is kept between calls."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._host = urlsplit(self.url).netloc.rpartition("@")[2]
        self._key = key.strip()

    def __repr__(self) -> str:
        return f"TicketsClient({self._host!r})"  # never the key

    def create(self, call: EffectCall, *, requester: str, subject: str, body: str) -> TicketReceipt:
        """Open a ticket, once for each `call.key`. Raises by how far it got, as `PaymentsClient.refund` does."""
        what = f"ticket at {self._host}"
        content = {"requester": requester, "subject": subject, "body": body, "external_id": call.key}
        ticket = self._ask(_Ticket, call, "POST", PATH, content=content, what=what)
        if ticket.external_id != call.key:
            text = f"{what}: {ticket.id} was opened for something else"
            raise UnknownOutcome(text, code="other_ticket", ticket_id=ticket.id)
        return TicketReceipt(id=ticket.id)

    def find(self, call: EffectCall, *, most_lag_seconds: float) -> Found[TicketReceipt] | NotFound | CannotTell:
        """Find out whether the ticket of `call.key` was opened. Never guesses.

        most_lag_seconds: how far the search may be behind for "not found" to be true; the engine asks only when the
        last send is older than the effect's settle time
        """
        what = f"tickets at {self._host}"
        try:
            answer = self._ask(_Found, call, "GET", f"{PATH}?{urlencode({'external_id': call.key})}", what=what)
        except StepFailure as error:
            return CannotTell(str(error))
        found = [ticket.id for ticket in answer.tickets if ticket.external_id == call.key]
        if len(found) > 1:
            return CannotTell(f"{what}: {len(found)} carry this key: {', '.join(found)}")
        if found:
            return Found(TicketReceipt(id=found[0]))
        if answer.index_lag_seconds > most_lag_seconds:
            return CannotTell(f"{what}: the search is {answer.index_lag_seconds:g} s behind")
        return NotFound()

    def _ask(
        self,
        form: type[M],
        call: EffectCall,
        method: str,
        path: str,
        *,
        what: str,
        content: Mapping[str, str] | None = None,
    ) -> M:
        """Make one exchange and give the answer as `form`; raises what `wire.exchange` and `failure_of` say."""
        if not is_fit_for_header(self._key):
            raise NeedsHuman(f"{what}: the account's key is not set, or is malformed", code="no_key")
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        if content is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": call.key}
        body = b"" if content is None else json.dumps(content).encode()
        deadline = Deadline(call.remaining_seconds())
        reply = exchange(method, self.url + path, headers=headers, body=body, check=call.check, deadline=deadline)
        if not 200 <= reply.status < 300:
            raise failure_of(reply.status, reply.headers, read_error(reply.body).without_words(), what=what)
        try:
            return form.model_validate_json(reply.body)
        except ValueError:
            # `from None`: the error quotes the body, and a customer's words stand in it.
            text = f"{what}: answered {reply.status} with something that cannot be read"
            raise UnknownOutcome(text, code="unreadable_answer", status=reply.status) from None


def configured_client() -> TicketsClient | None:
    """The account that the settings name: TICKETS_URL and TICKETS_KEY, read at each call. None: there is none."""
    from django.conf import settings

    return TicketsClient(settings.TICKETS_URL, settings.TICKETS_KEY) if settings.TICKETS_URL else None
