"""The system check names what a project's settings take away from the engine's transactions, and from its pages."""

import pytest
from django.conf import LazySettings
from django.conf import settings as django_settings
from django.db.backends.postgresql.psycopg_any import IsolationLevel

from durableflows import Approvers, Band, Escalate, Money
from durableflows.checks import check_database
from durableflows.checks_approvals import check_permissions
from durableflows.checks_pages import check_log_in
from durableflows.core import registry
from tests.support.asking import grant


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


@pytest.mark.parametrize(
    ("log_in", "ids"),
    [
        ("login", []),
        ("/login/?from=here", []),
        ("https://sso.example.com/", []),
        ("//sso.example.com/log-in", []),
        ("/accounts/login/", ["durableflows.W018"]),
        ("no-such-name", ["durableflows.W018"]),
    ],
)
def test_a_log_in_that_is_not_there_is_named(settings: LazySettings, log_in: str, ids: list[str]):
    settings.LOGIN_URL = log_in
    assert [one.id for one in check_log_in(None)] == ids


def test_a_project_without_pages_needs_no_log_in(settings: LazySettings):
    settings.LOGIN_URL, settings.ROOT_URLCONF = "/accounts/login/", ""
    assert check_log_in(None) == []
    settings.ROOT_URLCONF = "tests.support.webhook_urls"
    assert check_log_in(None) == []


def test_a_permission_that_no_model_declares_is_named_with_the_one_that_was_meant():
    with registry.isolated():
        grant(
            amount="amount",
            bands=[Band(Money(1, "USD"), by=None), Band(None, by=Approvers("auth.chnage_group"))],
            on_expiry=Escalate("auth.delete_group", then=Escalate("moon.land", then="deny")),
        )

        said = [(one.id, one.msg) for one in check_permissions(None)]

    which = "approval grant.sign_off asks people with the permission"
    assert said == [
        (
            "durableflows.W021",
            f"{which} 'auth.chnage_group', which no model declares, did you mean 'auth.change_group'?",
        ),
        ("durableflows.W021", f"{which} 'moon.land', which no model declares"),
    ]


def test_permissions_of_this_project_are_known():
    assert check_permissions(None) == []
