"""What the provider does: charge, refund, look up, list, and let a pending refund succeed or fail.

Each function works inside a transaction of the books that its caller opened, and writes one `acts` row whenever
money moves. Knows nothing of HTTP, keys or faults.
"""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from customer_ops.sandbox import events
from customer_ops.sandbox.answers import ApiError, missing_param, no_such
from customer_ops.sandbox.currencies import check_digits
from customer_ops.sandbox.forms import ChargeForm, ListForm, RefundForm
from customer_ops.sandbox.ids import new_id
from customer_ops.sandbox.objects import charge_object, list_object, refund_object

_DECLINES = {
    "tok_chargeDeclined": ("card_declined", "Your card was declined."),
    "tok_chargeDeclinedInsufficientFunds": ("card_declined", "Your card has insufficient funds."),
    "tok_chargeDeclinedExpiredCard": ("expired_card", "Your card has expired."),
}
SETTLED = ("succeeded", "failed", "canceled")


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that an act comes from."""

    request: str
    key: str | None
    now: float


@dataclass(frozen=True, slots=True)
class Pending:
    """A refund that is not done at once. Without `then` it stays pending until it is settled by hand."""

    then: str | None = None
    after_seconds: float = 0.0
    after_reads: int = 0
    failure_reason: str = "declined"


def create_charge(tx: sqlite3.Connection, form: ChargeForm, origin: Origin) -> dict[str, Any]:
    """Take money from a card. A declined card leaves a failed charge and is refused."""
    declined = _DECLINES.get(form.source)
    if declined is None and not form.source.startswith(("tok_", "card_", "src_")):
        raise no_such("token", form.source, param="source")
    charge_id, metadata = new_id("ch"), json.dumps(form.metadata)
    code, message = declined or (None, None)
    status = "failed" if declined else "succeeded"
    tx.execute(
        "INSERT INTO charges"
        " (id, created, amount, currency, status, description, metadata, failure_code, failure_message)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (charge_id, int(origin.now), form.amount, form.currency, status, form.description, metadata, code, message),
    )
    if message:
        raise ApiError(402, message, kind="card_error", code=code, stored=True)
    _record_act(tx, "charge", origin, _charge_row(tx, charge_id, param="id"))
    return get_charge(tx, charge_id)


def create_refund(
    tx: sqlite3.Connection, form: RefundForm, origin: Origin, *, pending: Pending | None, strict: bool
) -> dict[str, Any]:
    """Give money back. Refuses more than is left of the charge."""
    charge = _charge_row(tx, form.charge, param="charge")
    amount = _refundable(tx, charge, form.amount)
    check_digits(amount, charge["currency"], strict=strict)
    refund_id, waits = new_id("re"), pending or Pending()
    tx.execute(
        "INSERT INTO refunds (id, created, charge, amount, currency, status, reason, metadata, idempotency_key,"
        " settles_to, settles_at, settles_after_reads, failure_reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(refund_id, int(origin.now), charge["id"], amount, charge["currency"]),
            *("pending" if pending else "succeeded", form.reason, json.dumps(form.metadata), origin.key),
            *(waits.then, origin.now + waits.after_seconds, waits.after_reads, waits.failure_reason),
        ),
    )
    row = _refund_row(tx, refund_id, param="id")
    _record_act(tx, "refund", origin, row)
    told = refund_object(row)
    events.emit(tx, "refund.created", told, now=origin.now)
    events.emit(tx, "charge.refunded", get_charge(tx, charge["id"]), now=origin.now)
    return told


def get_charge(tx: sqlite3.Connection, charge_id: str) -> dict[str, Any]:
    """A charge as it is now."""
    row = _charge_row(tx, charge_id, param="id")
    return charge_object(row, refunded=_refunded(tx, charge_id))


def get_refund(tx: sqlite3.Connection, refund_id: str, *, now: float) -> dict[str, Any]:
    """A refund as it is now; being asked may settle it."""
    _refund_row(tx, refund_id, param="id")
    _read_by_client(tx, [refund_id], now=now)
    return refund_object(_refund_row(tx, refund_id, param="id"))


def list_refunds(tx: sqlite3.Connection, form: ListForm, *, now: float) -> dict[str, Any]:
    """One page of refunds, newest first."""
    where, values = ["1 = 1"], list[Any]()
    if form.charge is not None:
        where.append("charge = ?")
        values.append(_charge_row(tx, form.charge, param="charge")["id"])
    if form.starting_after is not None:
        where.append("seq < ?")
        values.append(_refund_row(tx, form.starting_after, param="starting_after")["seq"])
    query = f"SELECT id FROM refunds WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?"  # noqa: S608 - fixed texts
    ids = [row["id"] for row in tx.execute(query, (*values, form.limit + 1))]
    page = ids[: form.limit]
    _read_by_client(tx, page, now=now)
    data = [refund_object(_refund_row(tx, refund_id, param="id")) for refund_id in page]
    return list_object(data, has_more=len(ids) > form.limit, url="/v1/refunds")


def settle(tx: sqlite3.Connection, refund_id: str, status: str, *, now: float, failure_reason: str) -> dict[str, Any]:
    """Let a refund end, whatever it was before: also a success that fails a week later."""
    if status not in SETTLED:
        raise missing_param("status")
    row = _refund_row(tx, refund_id, param="refund")
    query = "UPDATE refunds SET status = ?, failure_reason = ?, settles_to = NULL WHERE id = ?"
    tx.execute(query, (status, failure_reason if status == "failed" else None, refund_id))
    if status != "succeeded" and row["status"] not in ("failed", "canceled"):
        _record_act(tx, "refund_returned", Origin(request="", key=row["idempotency_key"], now=now), row)
    told = refund_object(_refund_row(tx, refund_id, param="refund"))
    for kind in ("charge.refund.updated", "refund.failed" if status == "failed" else "refund.updated"):
        events.emit(tx, kind, told, now=now)
    return told


def settle_due(tx: sqlite3.Connection, *, now: float) -> None:
    """Let pending refunds end whose time has come, without anybody asking."""
    query = "SELECT * FROM refunds WHERE settles_to IS NOT NULL AND settles_at <= ? AND settles_after_reads = 0"
    for row in tx.execute(query, (now,)).fetchall():
        settle(tx, row["id"], row["settles_to"], now=now, failure_reason=row["failure_reason"])


def _refundable(tx: sqlite3.Connection, charge: sqlite3.Row, asked: int | None) -> int:
    name, currency = charge["id"], charge["currency"]
    if charge["status"] != "succeeded":
        raise ApiError(400, f"Charge {name} did not succeed and cannot be refunded.", param="charge", stored=True)
    left = charge["amount"] - _refunded(tx, name)
    if left <= 0:
        message = f"Charge {name} has already been refunded."
        raise ApiError(400, message, code="charge_already_refunded", stored=True)
    amount = left if asked is None else asked
    if amount > left:
        there = f"unrefunded amount on charge ({left} {currency})"
        raise ApiError(400, f"Refund amount ({amount} {currency}) is greater than {there}", param="amount", stored=True)
    return int(amount)


def _refunded(tx: sqlite3.Connection, charge_id: str) -> int:
    query = "SELECT amount FROM refunds WHERE charge = ? AND status NOT IN ('failed', 'canceled')"
    return sum(row["amount"] for row in tx.execute(query, (charge_id,)))


def _read_by_client(tx: sqlite3.Connection, refund_ids: list[str], *, now: float) -> None:
    for refund_id in refund_ids:
        tx.execute("UPDATE refunds SET reads = reads + 1 WHERE id = ?", (refund_id,))
        row = _refund_row(tx, refund_id, param="id")
        if row["settles_to"] and now >= row["settles_at"] and row["reads"] > row["settles_after_reads"]:
            settle(tx, refund_id, row["settles_to"], now=now, failure_reason=row["failure_reason"])


def _charge_row(tx: sqlite3.Connection, charge_id: str, *, param: str) -> sqlite3.Row:
    row: sqlite3.Row | None = tx.execute("SELECT * FROM charges WHERE id = ?", (charge_id,)).fetchone()
    if row is None:
        raise no_such("charge", charge_id, param=param)
    return row


def _refund_row(tx: sqlite3.Connection, refund_id: str, *, param: str) -> sqlite3.Row:
    row: sqlite3.Row | None = tx.execute("SELECT * FROM refunds WHERE id = ?", (refund_id,)).fetchone()
    if row is None:
        raise no_such("refund", refund_id, param=param)
    return row


def _record_act(tx: sqlite3.Connection, kind: str, origin: Origin, row: sqlite3.Row) -> None:
    """Write that money moved; `row` is the charge or the refund it moved for."""
    is_charge = kind == "charge"
    charge, refund = (row["id"], None) if is_charge else (row["charge"], row["id"])
    tx.execute(
        "INSERT INTO acts (at, kind, charge, refund, amount, currency, idempotency_key, metadata, request)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(origin.now, kind, charge, refund, row["amount"], row["currency"]),
            *(origin.key, row["metadata"], origin.request or None),
        ),
    )
