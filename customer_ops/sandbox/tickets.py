"""A help desk beside the payment provider: a ticket for each client token, and a search whose index lags.

Same account, same keys, same faults and same books as the payments; only the endpoints are its own. A client token is
the Idempotency-Key header, and `external_id` is the sender's own name for a ticket, by which it can be searched. Each
function works inside a transaction of the books. Source: Zendesk's documentation, "Tickets" and "Searching".
"""

import sqlite3
from dataclasses import dataclass
from typing import Any

from customer_ops.sandbox.actions import Origin
from customer_ops.sandbox.answers import ApiError, missing_param
from customer_ops.sandbox.forms import Params, refuse_unknown
from customer_ops.sandbox.ids import new_id

PATH = "/tickets"
LONGEST = {"subject": 200, "body": 20_000, "requester": 320, "external_id": 255}


@dataclass(frozen=True, slots=True)
class TicketForm:
    """POST /tickets."""

    subject: str
    body: str
    requester: str
    external_id: str


def parse(params: Params) -> TicketForm:
    """Check the parameters of a ticket."""
    refuse_unknown(params, set(LONGEST))
    for name, length in LONGEST.items():
        if not params.get(name):
            raise missing_param(name)
        if len(params[name]) > length:
            raise ApiError(422, f"{name} is longer than {length}", code="too_long", param=name)
    return TicketForm(**params)


def open_ticket(tx: sqlite3.Connection, form: TicketForm, origin: Origin) -> dict[str, Any]:
    """Put a ticket before the agents."""
    ticket_id = new_id("tk")
    tx.execute(
        "INSERT INTO tickets (id, created, subject, body, requester, external_id, idempotency_key, request)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(ticket_id, origin.now, form.subject, form.body, form.requester, form.external_id),
            *(origin.key, origin.request),
        ),
    )
    return _object(tx.execute("SELECT * FROM tickets WHERE id = ?", (ticket_id,)).fetchone())


def search(tx: sqlite3.Connection, params: Params, *, now: float, lag_seconds: float) -> dict[str, Any]:
    """Search tickets by their external id, among those that the index has seen; and say how far it is."""
    refuse_unknown(params, {"external_id"})
    if not params.get("external_id"):
        raise missing_param("external_id")
    indexed_until = now - lag_seconds
    query = "SELECT * FROM tickets WHERE external_id = ? AND created <= ? ORDER BY seq"
    found = tx.execute(query, (params["external_id"], indexed_until))
    return {"tickets": [_object(row) for row in found], "index_lag_seconds": lag_seconds}


def all_tickets(tx: sqlite3.Connection) -> list[dict[str, Any]]:
    """Every ticket, oldest first, whatever the index says: what the books prove."""
    return [_object(row) for row in tx.execute("SELECT * FROM tickets ORDER BY seq")]


def _object(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in ("id", "subject", "body", "requester", "external_id", "created")}
