"""Rows of the books -> the JSON objects of Stripe's API. Pure; called by the actions and by the books page."""

import json
import sqlite3
from typing import Any


def charge_object(row: sqlite3.Row, *, refunded: int) -> dict[str, Any]:
    """A charge; `refunded` is what its refunds that did not fail add up to."""
    paid = row["status"] == "succeeded"
    return {
        "id": row["id"],
        "object": "charge",
        "amount": row["amount"],
        "amount_captured": row["amount"] if paid else 0,
        "amount_refunded": refunded,
        "balance_transaction": f"txn_{row['id'][3:]}" if paid else None,
        "captured": paid,
        "created": row["created"],
        "currency": row["currency"],
        "customer": None,
        "description": row["description"],
        "disputed": False,
        "failure_code": row["failure_code"],
        "failure_message": row["failure_message"],
        "livemode": False,
        "metadata": json.loads(row["metadata"]),
        "paid": paid,
        "payment_intent": None,
        "refunded": paid and refunded == row["amount"],
        "status": row["status"],
    }


def refund_object(row: sqlite3.Row) -> dict[str, Any]:
    """A refund. `failure_reason` and `pending_reason` are there only when they say something, as at Stripe."""
    found = {
        "id": row["id"],
        "object": "refund",
        "amount": row["amount"],
        "balance_transaction": f"txn_{row['id'][3:]}",
        "charge": row["charge"],
        "created": row["created"],
        "currency": row["currency"],
        "metadata": json.loads(row["metadata"]),
        "payment_intent": None,
        "reason": row["reason"],
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": row["status"],
        "transfer_reversal": None,
    }
    if row["status"] == "failed":
        found["failure_reason"] = row["failure_reason"]
    if row["status"] == "pending":
        found["pending_reason"] = "processing"
    return found


def list_object(data: list[dict[str, Any]], *, has_more: bool, url: str) -> dict[str, Any]:
    """One page of a list."""
    return {"object": "list", "data": data, "has_more": has_more, "url": url}
