"""The system check names what a project's database settings take away from the engine's transactions."""

import pytest
from django.conf import settings as django_settings
from django.db.backends.postgresql.psycopg_any import IsolationLevel

from durableflows.checks import check_database


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The engine's database as settings that a test may fill in."""
    given: dict[str, object] = {"ENGINE": "django.db.backends.postgresql"}
    monkeypatch.setitem(django_settings.DATABASES, "default", given)
    return given


def found() -> list[str]:
    return [one.id for one in check_database(None) if one.id is not None]


@pytest.mark.parametrize("options", [{}, {"isolation_level": None}, {"isolation_level": IsolationLevel.READ_COMMITTED}])
def test_read_committed_transactions_of_their_own_are_fine(database: dict[str, object], options: dict[str, object]):
    database["OPTIONS"] = options
    assert found() == []


def test_a_transaction_around_each_request_is_named(database: dict[str, object]):
    database["ATOMIC_REQUESTS"] = True
    assert found() == ["durableflows.W005"]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_another_isolation_level_is_named(database: dict[str, object], level: IsolationLevel):
    for given in (level, int(level)):
        database["OPTIONS"] = {"isolation_level": given}
        assert found() == ["durableflows.W006"]


def test_another_isolation_level_in_the_connection_s_own_options_is_named(database: dict[str, object]):
    database["OPTIONS"] = {"options": "-c default_transaction_isolation=serializable"}
    assert found() == ["durableflows.W006"]
    database["OPTIONS"] = {"options": "-c default_transaction_isolation='read committed' -c statement_timeout=9s"}
    assert found() == []


def test_what_holds_for_requests_holds_on_sqlite_too(database: dict[str, object]):
    database["ENGINE"] = "django.db.backends.sqlite3"
    database["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
    database["ATOMIC_REQUESTS"] = True
    assert found() == ["durableflows.W005"]
