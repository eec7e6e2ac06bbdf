"""Idempotency keys, as Stripe's API v1 treats them.

Owns the `keys` table. A key belongs to one endpoint and one set of parameters; it is in use while its first request
is under way, and afterwards gives the same status and body again, a 500 too, until it is old enough to be forgotten.
Source: Stripe's documentation, "Idempotent requests" and "Advanced error handling".
"""

import json
import sqlite3

from customer_ops.sandbox.answers import Answer, ApiError
from customer_ops.sandbox.forms import Params

LONGEST_KEY = 255


def in_use(key: str) -> ApiError:
    """The first request with this key has no answer yet."""
    return ApiError(
        409,
        "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
        f"twice, and the other request is still going through): {key}. Please try again later.",
        kind="idempotency_error",
        code="idempotency_key_in_use",
        headers=(("Stripe-Should-Retry", "true"),),
    )


def recall(
    tx: sqlite3.Connection, key: str, *, path: str, params: Params, now: float, window_seconds: float
) -> Answer | None:
    """Give the stored answer of a key, or None when the key is new or forgotten.

    Raises ApiError when the key was used for something else, or its first request is still under way.
    """
    if len(key) > LONGEST_KEY:
        raise ApiError(400, f"Idempotency keys are up to {LONGEST_KEY} characters long.", kind="idempotency_error")
    tx.execute("DELETE FROM keys WHERE key = ? AND created <= ? AND status IS NOT NULL", (key, now - window_seconds))
    row = tx.execute("SELECT * FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    _check_same(row, path=path, params=params)
    if row["status"] is None:
        raise in_use(key)
    headers = (("Idempotent-Replayed", "true"), ("Original-Request", row["request"]))
    return Answer(row["status"], json.loads(row["body"]), headers, replayed=True)


def begin(tx: sqlite3.Connection, key: str, *, path: str, params: Params, request: str, now: float) -> None:
    """Take a new key: from this commit on it is in use."""
    tx.execute(
        "INSERT INTO keys (key, created, path, params, request) VALUES (?, ?, ?, ?, ?)",
        (key, now, path, json.dumps(params, sort_keys=True), request),
    )


def finish(tx: sqlite3.Connection, key: str, answer: Answer) -> None:
    """Store what the key answers from now on, in the transaction of the act itself."""
    tx.execute("UPDATE keys SET status = ?, body = ? WHERE key = ?", (answer.status, json.dumps(answer.body), key))


def drop(tx: sqlite3.Connection, key: str) -> None:
    """Forget a key whose request did not get as far as an endpoint."""
    tx.execute("DELETE FROM keys WHERE key = ?", (key,))


def _check_same(row: sqlite3.Row, *, path: str, params: Params) -> None:
    other = f"Try using a key other than '{row['key']}' if you meant to execute a different request."
    if row["path"] != path:
        message = "Keys for idempotent requests can only be used for the same endpoint they were first used for"
        raise ApiError(400, f"{message} ('{path}' vs '{row['path']}'). {other}", kind="idempotency_error")
    if json.loads(row["params"]) != params:
        message = "Keys for idempotent requests can only be used with the same parameters they were first used with."
        raise ApiError(400, f"{message} {other}", kind="idempotency_error")
