"""States that SQLite keeps and PostgreSQL refuses: they park a run, and it can be cancelled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers import ROOT

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
for text in sys.argv[1:]:
    with virtual() as world:
        runs = [api.start("pay", {"amount": 5}) for _ in "ab"]
        with connection.cursor() as cursor:
            cursor.execute("UPDATE durableflows_workflowrun SET data = %s WHERE state = 'PENDING'", [text])
        world.run_until_idle()
        api.cancel(runs[1].pk, reason="no")
        found = WorkflowRun.objects.filter(pk__in=[run.pk for run in runs]).order_by("created_at", "id")
        print(json.dumps(list(found.values_list("state", "parked_reason"))))
"""


@pytest.mark.slow
def test_what_only_sqlite_keeps_parks_the_run_and_can_be_cancelled(tmp_path: Path):
    """PostgreSQL's jsonb refuses both, infinity and a lone surrogate; SQLite gives them back, and they cannot be
    written again."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/rows.sqlite3",
    }
    texts = ['{"amount": 1e999}', r'{"amount": "\ud800"}']
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *texts], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ['[["PARKED", "integrity"], ["CANCELLED", ""]]'] * 2
