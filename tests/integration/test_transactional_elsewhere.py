"""A transactional effect writes in the engine's database alone: what it wrote elsewhere would not be rolled back."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from durableflows import InvalidDefinition
from durableflows.ledger_together import only_here


@pytest.fixture
def other(django_db_blocker: Any) -> Iterator[Any]:
    """Another database of the project, in memory."""
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {}}
    connections.settings["other"] = {**connections.settings["default"], **memory}
    with django_db_blocker.unblock():
        yield connections["other"]
        connections["other"].close()
    del connections["other"]
    del connections.settings["other"]


@pytest.mark.parametrize(
    "writes",
    [
        "WITH one AS (SELECT 1 AS id) INSERT INTO places SELECT id FROM one",
        "  with one as (select 1) update places set id = 2",
        "WITH one AS (SELECT 1) DELETE FROM places",
        "REPLACE INTO places VALUES (1)",
        "DROP TABLE places",
    ],
)
def test_what_writes_in_other_words_is_refused_too(other: Any, writes: str):
    with only_here("staff.hire"), other.cursor() as cursor, pytest.raises(InvalidDefinition, match="writes in the"):
        cursor.execute(writes)


@pytest.mark.parametrize("column", ["updated_at", "last_insert"])
def test_a_read_inside_a_transaction_of_the_other_database_is_no_write(other: Any, column: str):
    with other.cursor() as cursor:
        cursor.execute(f"CREATE TABLE visits ({column} int)")

    with only_here("staff.hire"), transaction.atomic("other"), transaction.atomic("other"), other.cursor() as cursor:
        cursor.execute(f"WITH one AS (SELECT {column} FROM visits) SELECT count(*) FROM one")
        assert cursor.fetchone() == (0,)


def test_writes_elsewhere_are_refused_and_reads_are_not(other: Any):
    with other.cursor() as cursor:
        cursor.execute("CREATE TABLE places (id int)")

    with only_here("staff.hire"), other.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM places")
        with pytest.raises(InvalidDefinition, match="writes in the database 'other'"):
            cursor.execute("INSERT INTO places VALUES (1)")

    with other.cursor() as cursor:
        cursor.execute("INSERT INTO places VALUES (1)")
        cursor.execute("SELECT count(*) FROM places")
        assert cursor.fetchone() == (1,)
