"""Brings events to the account's webhook, signed, again and again until they are taken, and wrongly where that was
ordered.

Owns the thread and the orders. Knows nothing of who receives them; delivers nothing while no endpoint is set.
"""

import hashlib
import hmac
import json
import logging
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from dataclasses import dataclass
from typing import Any

from customer_ops.sandbox import actions
from customer_ops.sandbox.books import Books
from customer_ops.sandbox.events import HELD, EventFault, Way, untold
from customer_ops.sandbox.ids import new_id

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
CALL_SECONDS = 20.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MOST_TRIES = 0.5, 30.0, 40


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The account's webhook."""

    url: str
    secret: str


def sign(raw: bytes, secret: str, at: float) -> str:
    """The header `Stripe-Signature` of a delivery."""
    signature = hmac.new(secret.encode(), f"{int(at)}.".encode() + raw, hashlib.sha256).hexdigest()
    return f"t={int(at)},v1={signature}"


class Courier:
    """Delivers events to the endpoint, one after the other, while one is set."""

    def __init__(self, books: Books, endpoint: Endpoint | None = None) -> None:
        self._books, self._endpoint = books, endpoint
        self._faults: deque[EventFault] = deque()
        self._lock, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def set_endpoint(self, endpoint: Endpoint | None) -> None:
        """Deliver there from now on, what was not delivered before too; None: nowhere."""
        self._endpoint = endpoint

    def add(self, fault: EventFault) -> None:
        """Put one more order at the end."""
        with self._lock:
            self._faults.extend([fault.model_copy(update={"times": 1})] * fault.times)

    def waiting(self) -> list[dict[str, Any]]:
        """Say which orders were not used up."""
        with self._lock:
            return [fault.model_dump(mode="json") for fault in self._faults]

    def clear(self) -> None:
        """Withdraw all orders."""
        with self._lock:
            self._faults.clear()

    def wait_until_told(self, *, timeout_seconds: float) -> list[str]:
        """Wait until all is delivered; what is left after that time."""
        stop_at = time.monotonic() + timeout_seconds
        while (left := untold(self._books)) and time.monotonic() < stop_at:
            time.sleep(LOOK_SECONDS / 2)
        return left

    def close(self) -> None:
        """Deliver nothing more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            try:
                if self._endpoint is not None:
                    self._settle_due()
                while self._endpoint is not None and (row := self._next()) is not None:
                    self._bring(row, self._endpoint)
            except (sqlite3.Error, OSError):
                logger.exception("sandbox: an event could not be delivered")

    def _settle_due(self) -> None:
        now = self._books.now()
        with self._books.transaction() as tx:
            actions.settle_due(tx, now=now)

    def _next(self) -> sqlite3.Row | None:
        now = self._books.now()
        query = "SELECT * FROM events WHERE delivered IS NULL AND due <= ? ORDER BY due, seq LIMIT 1"
        with self._books.transaction() as tx:
            row: sqlite3.Row | None = tx.execute(query, (now,)).fetchone()
        return row

    def _fault_of(self, row: sqlite3.Row) -> EventFault | None:
        if row["tries"] or row["fault"]:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.type in (None, row["type"]) and fault.charge in (None, row["charge"]):
                    self._faults.remove(fault)
                    return fault
        return None

    def _bring(self, row: sqlite3.Row, endpoint: Endpoint) -> None:
        fault = self._fault_of(row)
        if fault is not None:
            self._note(row, "fault = ?", str(fault.kind))
        if fault is not None and fault.kind in (Way.LATE, Way.OUT_OF_ORDER, Way.LOST):
            due = self._books.now() + fault.seconds if fault.kind is Way.LATE else HELD
            return self._note(row, "due = ?", due)
        raw = _changed(row["body"], fault).encode()
        if fault is not None and fault.kind is Way.FORGED:
            self._post(endpoint, raw, sign(raw, "whsec_of_somebody_else", self._books.now()))
        if fault is not None and fault.kind is Way.DOUBLE:
            twin = threading.Thread(target=self._post, args=(endpoint, raw, self._signed(raw, endpoint)), daemon=True)
            twin.start()
        is_taken = self._post(endpoint, raw, self._signed(raw, endpoint))
        self._note_answer(row, is_taken=is_taken)
        return None

    def _signed(self, raw: bytes, endpoint: Endpoint) -> str:
        return sign(raw, endpoint.secret, self._books.now())

    def _post(self, endpoint: Endpoint, raw: bytes, signature: str) -> bool:
        headers = {"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": signature}
        request = urllib.request.Request(endpoint.url, data=raw, headers=headers, method="POST")  # noqa: S310 - set by the operator
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=CALL_SECONDS) as answer:
                return bool(200 <= answer.status < 300)
        except urllib.error.HTTPError as error:
            with error:
                return False
        except OSError:
            return False

    def _note_answer(self, row: sqlite3.Row, *, is_taken: bool) -> None:
        now, tries = self._books.now(), row["tries"] + 1
        if not is_taken:
            pause = min(FIRST_PAUSE_SECONDS * 2 ** min(tries, 16), LONGEST_PAUSE_SECONDS)
            return self._note(row, "tries = ?, due = ?", tries, now + pause if tries < MOST_TRIES else HELD)
        self._note(row, "tries = ?, delivered = ?", tries, now)
        with self._books.transaction() as tx:  # those that the next one was to overtake
            tx.execute("UPDATE events SET due = ? WHERE due = ? AND fault = ?", (now, HELD, str(Way.OUT_OF_ORDER)))
        return None

    def _note(self, row: sqlite3.Row, change: str, *values: object) -> None:
        with self._books.transaction() as tx:
            tx.execute(f"UPDATE events SET {change} WHERE seq = ?", (*values, row["seq"]))  # noqa: S608 - fixed texts


def _changed(body: str, fault: EventFault | None) -> str:
    """The body with what a fault makes wrong in it."""
    event = json.loads(body)
    told = event["data"]["object"]
    match fault and fault.kind:
        case Way.WRONG_AMOUNT:
            told["amount"] += 1
        case Way.WRONG_CURRENCY:
            told["currency"] = "eur" if told["currency"] != "eur" else "usd"
        case Way.WRONG_CHARGE:
            told["charge"] = new_id("ch")
    return json.dumps(event)
