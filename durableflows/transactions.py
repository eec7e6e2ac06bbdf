"""The engine's transactions: short, on one database, repeated when the database asks for it.

Every writer of rows opens its transaction here. No outside call and no user code runs inside one (P11).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connections, transaction

from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.errors import ConcurrentChange, ReserveInTransaction

P = ParamSpec("P")
T = TypeVar("T")

logger = log_lines.logger("durableflows")

REPEATS = 8
LOCK_TIMEOUT_SECONDS = 5
IDLE_SECONDS = 15
"""A session that holds locks and says nothing for so long is ended by the server."""
# deadlock, serialisation failure, lock not available
_REPEATABLE = frozenset({"40P01", "40001", "55P03"})


def database() -> str:
    """Alias of the engine's database."""
    return settings().DATABASE


def atomic() -> AbstractContextManager[None]:
    """A transaction that joins one that is open already."""
    return transaction.atomic(using=database())


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let PostgreSQL run the queries of the block as they are.

    It compiles what it takes for long. A query of many small parts is compiled longer than it runs.
    """
    with atomic():
        connection = connections[database()]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL jit = off")
        yield


def transact(function: Callable[P, T]) -> Callable[P, T]:
    """Run the whole function in one transaction of its own, again when it lost a deadlock or a compare-and-swap.

    Inside an open transaction it joins that one and is not repeated: the outermost owner decides.
    """

    @wraps(function)
    def in_transaction(*args: P.args, **kwargs: P.kwargs) -> T:
        if connections[database()].in_atomic_block:
            with atomic():
                return function(*args, **kwargs)
        for turn in range(REPEATS):
            try:
                with atomic():
                    limit_waits()
                    return function(*args, **kwargs)
            except (OperationalError, ConcurrentChange) as error:
                if turn == REPEATS - 1 or not is_repeatable(error):
                    raise
                time.sleep(0.02 * 2**turn)
        raise AssertionError("unreachable")

    return in_transaction


def transact_durably(function: Callable[P, T]) -> Callable[P, T]:
    """As `transact`, and refused inside an open transaction: what it writes must survive whatever happens around it.

    Django's TestCase wraps tests in transactions that Django itself marks; those are let through (P4).
    """

    repeated = transact(function)

    @wraps(function)
    def durably(*args: P.args, **kwargs: P.kwargs) -> T:
        refuse_open_transaction()
        return repeated(*args, **kwargs)

    return durably


def refuse_open_transaction() -> None:
    """Raise ReserveInTransaction when a transaction is open on the engine's database, other than a test case's own."""
    connection = connections[database()]
    if not connection.in_atomic_block:
        return
    # TestCase opens two: one around the class, one around the test.
    if all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        return
    raise ReserveInTransaction(
        "an effect was asked for inside an open database transaction: if it rolled back, nobody would know that the "
        "effect happened. Leave the atomic() block first, or make the database writes a step of their own (atomic=True)"
    )


def after_commit(act: Callable[[], object], what: str) -> None:
    """Do something once the open transaction has committed, or now. What fails there is logged, and stops nothing.

    Django's own `robust=True` names the function in its log line, and fails itself when that has no name (a partial).
    """

    def carefully() -> None:
        try:
            act()
        except Exception:
            logger.exception("%s failed after the commit", what)

    transaction.on_commit(carefully, using=database())


def patiently(function: Callable[P, T], *, give_up_after_seconds: float) -> Callable[P, T]:
    """Try again while the database is away: what a provider answered must not be lost with a connection."""

    @wraps(function)
    def trying(*args: P.args, **kwargs: P.kwargs) -> T:
        stop_at = time.monotonic() + give_up_after_seconds
        pause, is_told = 0.1, False
        while True:
            try:
                return function(*args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if time.monotonic() + pause > stop_at or connections[database()].in_atomic_block:
                    raise
                if not is_told:
                    logger.warning("the database is away; what is to be written is kept: %s", first_line(error))
                is_told = True
                connections[database()].close()
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    return trying


def is_away(error: BaseException) -> bool:
    """Did this fail because the database cannot be reached, and not for what was asked of it?"""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    connection = connections[database()]
    return connection.connection is None or not connection.is_usable()


def first_line(error: BaseException) -> str:
    """The error's first line: what drivers add below says the same for each address that they tried."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_repeatable(error: Exception) -> bool:
    """Did the database or a compare-and-swap ask for the whole transaction again?"""
    if isinstance(error, ConcurrentChange):
        return True
    cause = error.__cause__
    code = getattr(cause, "pgcode", None) or getattr(cause, "sqlstate", None)
    return code in _REPEATABLE or "database is locked" in str(error)


def limit_waits() -> None:
    """Bound, for the rest of this transaction, how long it waits for a lock and how long it may be silent.

    Silent: its process was stopped, or its machine is gone and no packet says so. Without the limit the server would
    keep the run's lock for it until TCP gives up, after two hours: nobody could move the run, and no sweep free it.
    """
    _set_local(f"{LOCK_TIMEOUT_SECONDS}s", f"{IDLE_SECONDS}s")


def let_be_silent() -> None:
    """Lift the limit on silence for user code inside a transaction: it may compute for as long as its step may take."""
    _set_local(f"{LOCK_TIMEOUT_SECONDS}s", "0")


def _set_local(lock: str, idle: str) -> None:
    connection = connections[database()]
    if connection.vendor == "postgresql":
        sql = "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)"
        with connection.cursor() as cursor:
            cursor.execute(sql, [lock, idle])
