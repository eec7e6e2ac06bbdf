"""A checkpoint that this project did not write is not resumed from, whatever was put there (P13)."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durableflows import integrity
from durableflows.models import WorkflowRun
from tests.support.workers import ROOT


def sealed() -> WorkflowRun:
    run = WorkflowRun(workflow="pay", version=1)
    integrity.seal(run, {"amount": 5}, 0)
    return run


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "data",
    [
        {"amount": 6},
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"amount": "\ud800"},
        {"\udfff": 5},
        nested(5000),
    ],
    ids=["changed", "nan", "infinity", "lone surrogate", "lone surrogate as key", "too deep"],
)
def test_a_state_that_is_not_ours_is_not_sealed_and_raises_nothing(data: dict[str, Any]):
    run = sealed()
    assert integrity.is_sealed(run)

    run.data = data

    assert not integrity.is_sealed(run)


@pytest.mark.parametrize("digest", ["", "é" * 64, "\ud800"])
def test_a_digest_that_is_none_is_not_ours(digest: str):
    run = sealed()
    run.data_digest = digest

    assert not integrity.is_sealed(run)


PLAY = """
import json, sys
import django; django.setup()
from django.core.management import call_command
from django.db import connection
from durableflows import api
from durableflows.models import WorkflowRun
from durableflows.testing import virtual
from tests.support.flows import Provider, pay_workflow
call_command("migrate", verbosity=0)
pay_workflow(Provider())
with virtual() as world:
    runs = [api.start("pay", {"amount": 5}) for _ in "ab"]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE durableflows_workflowrun SET data = %s", [sys.argv[1]])
    world.run_until_idle()
    api.cancel(runs[1].pk, reason="no")
print(json.dumps(list(WorkflowRun.objects.order_by("created_at", "id").values_list("state", "parked_reason"))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", ['{"amount": 1e999}', r'{"amount": "\ud800"}'], ids=["infinity", "lone surrogate"])
def test_what_only_sqlite_keeps_parks_the_run_and_can_be_cancelled(text: str, tmp_path: Path):
    """PostgreSQL's jsonb refuses both; SQLite gives them back, and they cannot be written again."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/rows.sqlite3",
    }
    done = subprocess.run(
        [sys.executable, "-c", PLAY, text], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '[["PARKED", "integrity"], ["CANCELLED", ""]]'
