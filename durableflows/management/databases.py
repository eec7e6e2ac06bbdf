"""Databases to play in: empty ones in memory, or Django's test databases beside the project's own, dropped at the end.

The project's own rows are never opened for that. For `faulttest` alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db import connections
from django.db.utils import ConnectionHandler
from django.test.utils import setup_databases, teardown_databases

NAME_LIMIT = 60
"""PostgreSQL cuts longer names, and two of them could become one."""
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


@contextmanager
def in_memory() -> Iterator[None]:
    """Put an SQLite database in memory, migrated, in the place of each database of the project."""
    handler = ConnectionHandler({alias: dict(SQLITE) for alias in connections})
    before = {alias: connections[alias] for alias in connections}
    try:
        for alias in before:
            connections[alias] = handler[alias]
            call_command("migrate", database=alias, run_syncdb=True, interactive=False, verbosity=0)
        yield
    finally:
        for alias, connection in before.items():
            connections[alias] = connection


@contextmanager
def throwaway(copies: int) -> Iterator[None]:
    """Make test databases as Django's test runner does, with names that no test run uses, and drop them at the end."""
    for alias in connections:
        connection = connections[alias]
        if connection.vendor != "sqlite":
            name = f"faulttest_{os.getpid()}_{connection.settings_dict['NAME']}"
            connection.settings_dict["TEST"]["NAME"] = name[:NAME_LIMIT]
    made = setup_databases(verbosity=0, interactive=False, parallel=copies if copies > 1 else 0)
    try:
        yield
    finally:
        teardown_databases(made, verbosity=0, parallel=copies if copies > 1 else 0)


def use_copy(number: int) -> None:
    """Let this process work on its own copy of the test databases, counted from 1."""
    for alias in connections:
        connections[alias].creation.setup_worker_connection(number)
