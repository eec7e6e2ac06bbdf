"""The log of requests and the summary of the books. Called by the provider and the control API; never acts itself."""

import json
import sqlite3
from collections import Counter
from typing import Any

from customer_ops.sandbox.actions import get_charge
from customer_ops.sandbox.books import Books
from customer_ops.sandbox.faults import Sighting
from customer_ops.sandbox.objects import refund_object
from customer_ops.sandbox.tickets import all_tickets

OUR_KEY = "durableflows_key"
"""The metadata entry in which the gateway repeats its idempotency key, so that a lookup can find a refund by it."""


def write_arrival(books: Books, request_id: str, seen: Sighting, *, fault: str | None) -> None:
    """Note a request before anything is done with it."""
    at = books.now()
    with books.transaction() as tx:
        tx.execute(
            "INSERT INTO requests (id, at, method, path, params, idempotency_key, fault) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (request_id, at, seen.method, seen.path, json.dumps(seen.params), seen.key, fault),
        )


def write_outcome(books: Books, request_id: str, outcome: str, *, status: int | None = None, replayed: int = 0) -> None:
    """Note how a request ended, before the answer leaves: who has the answer finds it in the log."""
    with books.transaction() as tx:
        tx.execute(
            "UPDATE requests SET outcome = ?, status = ?, replayed = ? WHERE id = ?",
            (outcome, status, replayed, request_id),
        )


def summary(books: Books) -> dict[str, Any]:
    """All that the books know, with the number of refunds of each logical operation."""
    with books.transaction() as tx:
        acts = [_act(row) for row in tx.execute("SELECT * FROM acts ORDER BY seq")]
        charges = tx.execute("SELECT id FROM charges ORDER BY seq").fetchall()
        refunds = [act for act in acts if act["kind"] == "refund"]
        return {
            "operations": _operations(refunds),
            "by_key": Counter(act["idempotency_key"] for act in refunds if act["idempotency_key"]),
            "by_metadata": Counter(act["metadata"][OUR_KEY] for act in refunds if OUR_KEY in act["metadata"]),
            "acts": acts,
            "charges": [get_charge(tx, row["id"]) for row in charges],
            "refunds": [_refund(row) for row in tx.execute("SELECT * FROM refunds ORDER BY seq")],
            "tickets": all_tickets(tx),
            "requests": [_request(row) for row in tx.execute("SELECT * FROM requests ORDER BY seq")],
        }


def _operations(refunds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a logical operation: refunds that carry the same key, in the header or in the metadata."""
    found: dict[str, dict[str, Any]] = {}
    for act in refunds:
        name = act["metadata"].get(OUR_KEY) or act["idempotency_key"] or f"no key: {act['refund']}"
        entry = found.setdefault(name, {"operation": name, "charge": act["charge"], "refunds": 0, "refund_ids": []})
        entry["refunds"] += 1
        entry["refund_ids"].append(act["refund"])
    return list(found.values())


def _act(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "metadata": json.loads(row["metadata"])}


def _refund(row: sqlite3.Row) -> dict[str, Any]:
    return refund_object(row) | {"idempotency_key": row["idempotency_key"]}


def _request(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "params": json.loads(row["params"]), "replayed": bool(row["replayed"])}
