"""A transactional effect writes in the engine's database alone: what it wrote elsewhere would not be rolled back."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

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
