"""Emptying PostgreSQL after a test that commits: only tables that hold something, as they were before the first test.

Django's own `flush` makes every table and index anew and asks for every permission again: with our tables that takes
longer than most tests do. What it would put back, content types and permissions, is left alone here; a test that has
changed those gets Django's flush.

Django also closes the connection then. The next test's would be a new process of the server, which looks up each table
before its first use: that takes longer than many a test too. It keeps this one, emptied as poolers do.
"""

from typing import Any

from django.db import Error, OperationalError, connections, transaction
from django.test import TransactionTestCase

LEFT_ALONE = ("django_content_type", "auth_permission")

_tables: dict[str, list[str]] = {}
_marks: dict[str, list[tuple[int, int]]] = {}
_Case: Any = TransactionTestCase  # what is replaced has no public name
_flush = _Case._fixture_teardown


def begin(alias: str = "default") -> None:
    """Remember how the database is before the first test, and empty it our way from now on."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT usesuper FROM pg_user WHERE usename = current_user")
        if cursor.fetchone() != (True,):  # only a superuser may leave foreign keys aside
            return
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    _tables[alias] = sorted(set(names) - set(LEFT_ALONE))
    _marks[alias] = _mark(alias)
    _Case._fixture_teardown = _teardown
    _Case._should_reload_connections = _must_close


def _teardown(case: Any) -> None:
    names = case._databases_names(include_mirrors=False)
    if not all(name in _tables and _is_empty(name) for name in names):
        _flush(case)
        _marks.update({name: _mark(name) for name in names if name in _marks})  # made anew, with other ids


def _is_empty(alias: str) -> bool:
    try:
        return empty(alias)
    except OperationalError:  # a deadlock with what still works on the rows
        return False


def empty(alias: str) -> bool:
    """Delete all rows. False: a test has changed what is left alone here."""
    if _mark(alias) != _marks[alias]:
        return False
    connection = connections[alias]
    quote = connection.ops.quote_name
    tables = ", ".join(map(quote, _tables[alias]))
    asked = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {quote(name)})" for name in _tables[alias])
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        # As TRUNCATE does: a ticker of the test that still sweeps ends its turn first.
        cursor.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(asked)
        filled = [name for (name,) in cursor.fetchall()]
        if filled:
            # Foreign keys are not looked at while all that they join goes.
            deletes = "".join(f"; DELETE FROM {quote(name)}" for name in filled)
            cursor.execute(f"SET LOCAL session_replication_role = replica{deletes}")
    return True


def _must_close(_: Any) -> bool:
    return not all(map(is_as_new, connections.all(initialized_only=True)))


def is_as_new(connection: Any) -> bool:
    """Throw away all that the session holds: settings, locks, temporary tables. False: it needs to be closed."""
    if connection.connection is None:
        return True
    is_busy = connection.in_atomic_block or connection.needs_rollback or connection.run_on_commit
    if connection.alias not in _tables or is_busy or not connection.get_autocommit():
        return False
    try:
        with connection.cursor() as cursor:
            cursor.execute("DISCARD ALL")
        connection.init_connection_state()
    except Error:  # killed with its server, or by the test
        return False
    return True


def _mark(alias: str) -> list[tuple[int, int]]:
    with connections[alias].cursor() as cursor:
        marks = []
        for name in LEFT_ALONE:
            cursor.execute(f"SELECT count(*), coalesce(max(id), 0) FROM {name}")
            marks.append(cursor.fetchone())
    return marks
