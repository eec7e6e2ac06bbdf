"""The provider's books: one SQLite file with charges, refunds, acts, keys and the log of requests.

Owns the file and its transactions. Every action of the sandbox is one transaction here, on disk before its answer
leaves: an act and the answer that its key remembers are written together or not at all. Knows nothing of HTTP.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, created INTEGER NOT NULL, amount INTEGER NOT NULL,
    currency TEXT NOT NULL, status TEXT NOT NULL, description TEXT, metadata TEXT NOT NULL,
    failure_code TEXT, failure_message TEXT
);
CREATE TABLE IF NOT EXISTS refunds (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, created INTEGER NOT NULL,
    charge TEXT NOT NULL REFERENCES charges (id), amount INTEGER NOT NULL, currency TEXT NOT NULL, status TEXT NOT NULL,
    reason TEXT, metadata TEXT NOT NULL, failure_reason TEXT, idempotency_key TEXT,
    settles_to TEXT, settles_at REAL, settles_after_reads INTEGER, reads INTEGER NOT NULL DEFAULT 0
);
-- One row each time money moved. Nothing else is proof, and no row is ever changed or removed.
CREATE TABLE IF NOT EXISTS acts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, charge TEXT NOT NULL, refund TEXT,
    amount INTEGER NOT NULL, currency TEXT NOT NULL, idempotency_key TEXT, metadata TEXT NOT NULL, request TEXT
);
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, at REAL NOT NULL,
    method TEXT NOT NULL, path TEXT NOT NULL, params TEXT NOT NULL, idempotency_key TEXT,
    fault TEXT, status INTEGER, replayed INTEGER NOT NULL DEFAULT 0, outcome TEXT
);
-- One row each time a ticket was opened, never changed or removed.
CREATE TABLE IF NOT EXISTS tickets (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, created REAL NOT NULL, subject TEXT NOT NULL,
    body TEXT NOT NULL, requester TEXT NOT NULL, external_id TEXT NOT NULL, idempotency_key TEXT, request TEXT
);
-- status is NULL while the first request with the key is under way.
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, created REAL NOT NULL, path TEXT NOT NULL, params TEXT NOT NULL, request TEXT NOT NULL,
    status INTEGER, body TEXT
);
-- What the account is told on its own. due: not before this time; delivered is NULL until it was taken.
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, created REAL NOT NULL, type TEXT NOT NULL,
    charge TEXT NOT NULL, body TEXT NOT NULL, due REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0, delivered REAL,
    fault TEXT
);
CREATE TABLE IF NOT EXISTS clock (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), ahead_seconds REAL NOT NULL);
INSERT OR IGNORE INTO clock VALUES (1, 0);
"""
_TABLES = ("acts", "refunds", "charges", "tickets", "requests", "keys", "events")


class Books:
    """The file, and the only way to a transaction on it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            # An act and its stored answer are one commit, so a key that is still in use here was left by a process
            # that died before it acted.
            connection.execute("DELETE FROM keys WHERE status IS NULL")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One action: committed when the block ends, undone when it raises."""
        with self._lock, closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def now(self) -> float:
        """The provider's own clock, in seconds since 1970. Tests may set it ahead; it is kept in the file."""
        with closing(self._connect()) as connection:
            row = connection.execute("SELECT ahead_seconds FROM clock").fetchone()
        return time.time() + float(row[0])

    def advance(self, seconds: float) -> float:
        """Set the provider's clock ahead and return its new time."""
        with self.transaction() as tx:
            tx.execute("UPDATE clock SET ahead_seconds = ahead_seconds + ?", (seconds,))
        return self.now()

    def empty(self) -> None:
        """Forget everything, the clock's lead too."""
        with self.transaction() as tx:
            for table in _TABLES:
                tx.execute(f"DELETE FROM {table}")  # noqa: S608 - names from the tuple above
            tx.execute("UPDATE clock SET ahead_seconds = 0")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=20, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection
