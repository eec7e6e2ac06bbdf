"""What every test may rely on: real services, or a failure that says how to get them. Nothing here skips."""

import os
from typing import Any

import pytest
from django.conf import settings

from tests.support import emptied

pytest_plugins = ["tests.lanes"]

HOW = "run `make test`, or `python -m tests.services -- pytest …`"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marked test fails where its service is not, instead of proving something else."""
    if item.get_closest_marker("postgres"):
        engine = settings.DATABASES["default"].get("ENGINE", "")
        if engine != "django.db.backends.postgresql":
            pytest.fail(
                f"this test needs PostgreSQL, and DATABASE_URL names {engine or 'nothing'}: {HOW}", pytrace=False
            )
    if item.get_closest_marker("worker"):
        _require("CELERY_BROKER_URL")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """pytest-django asks this before it creates the test database: no address, no test."""
    _require("DATABASE_URL")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The database of all tests is emptied in our way after each one that commits."""
    with django_db_blocker.unblock():
        emptied.begin()


@pytest.fixture(scope="session")
def broker_url() -> str:
    """The address of the real broker."""
    return _require("CELERY_BROKER_URL")


def _require(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        pytest.fail(f"{variable} is not set: {HOW}", pytrace=False)
    return value
