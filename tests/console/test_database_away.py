"""Without its database a project is not well, and says so to whoever monitors it."""

import logging
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

pytestmark = pytest.mark.django_db


def refuse(*_: Any) -> None:
    raise OperationalError("connection to postgresql://ours:s3cret@db/x refused")


def test_the_health_is_red_while_the_database_is_away(caplog: pytest.LogCaptureFixture):
    with connection.execute_wrapper(refuse), caplog.at_level(logging.ERROR, logger="durableflows.pages"):
        answer = Client().get("/durableflows/health/", headers={"Accept": "text/html"})

    assert (answer.status_code, answer.json()) == (503, {"status": "red"})
    assert "the database is away" in caplog.text
    assert "s3cret" not in caplog.text + answer.text
