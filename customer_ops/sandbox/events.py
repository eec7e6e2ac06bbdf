"""What the provider tells on its own: events, written in the transaction of the act that they tell of.

Owns the table of events and the faults that may be ordered for their delivery. The courier delivers them.
"""

import json
import sqlite3
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from customer_ops.sandbox.books import Books
from customer_ops.sandbox.ids import new_id

HELD = 10.0**12
"""When an event is due that waits for the next one to go first, or is lost."""


class Way(StrEnum):
    """How the delivery of one event goes wrong."""

    DOUBLE = "double"  # twice, at the same moment
    LATE = "late"  # after `seconds`
    OUT_OF_ORDER = "out_of_order"  # after the next event
    LOST = "lost"  # never
    FORGED = "forged"  # signed with another secret, then as it should be
    WRONG_AMOUNT = "wrong_amount"
    WRONG_CURRENCY = "wrong_currency"
    WRONG_CHARGE = "wrong_charge"


class EventFault(BaseModel):
    """One order: what goes wrong with the next `times` events, of this type if one is named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Way
    times: int = Field(default=1, ge=1)
    type: str | None = None
    charge: str | None = None
    seconds: float = Field(default=2.0, ge=0)


def emit(tx: sqlite3.Connection, kind: str, told: dict[str, Any], *, now: float) -> None:
    """Write an event, in the transaction of what it tells of."""
    event_id = new_id("evt")
    body = {
        "id": event_id,
        "object": "event",
        "created": int(now),
        "livemode": False,
        "pending_webhooks": 1,
        "type": kind,
        "data": {"object": told},
    }
    tx.execute(
        "INSERT INTO events (id, created, type, charge, body, due) VALUES (?, ?, ?, ?, ?, 0)",
        (event_id, now, kind, told.get("charge") or told["id"], json.dumps(body)),
    )


def list_events(books: Books) -> list[dict[str, Any]]:
    """All events, oldest first, with how far their delivery has come."""
    with books.transaction() as tx:
        rows = tx.execute("SELECT * FROM events ORDER BY seq").fetchall()
    return [dict(row) | {"body": json.loads(row["body"])} for row in rows]


def untold(books: Books) -> list[str]:
    """The types of the events that are still to be delivered, without those that are lost or wait for the next one."""
    with books.transaction() as tx:
        rows = tx.execute(
            "SELECT type FROM events WHERE delivered IS NULL AND due < ? ORDER BY seq", (HELD,)
        ).fetchall()
    return [row["type"] for row in rows]
