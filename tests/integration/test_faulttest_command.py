"""`manage.py durableflows faulttest` plays customer_ops' refund in databases of its own, and touches nothing else."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from durableflows import Run, Workflow, WorkflowState, step
from durableflows.core import registry
from durableflows.errors import NotFoundError
from durableflows.testing.scenarios import find, scenario
from tests.contract.source import ROOT

# Its replay breaks the promise, because the scenario of the broken project asserts what is not so.
BROKEN = """
import customer_ops.faulttests as real

def never(run):
    raise AssertionError("this desk is closed")

for name in ("refund_below_limit", "refund_above_limit"):
    object.__setattr__(getattr(real, name), "check", never)
"""


def command(*words: str, database_url: str = "sqlite:////nowhere/at/all.sqlite3", before: str = "") -> Any:
    """Run it as a process. The project's own database cannot even be opened, where none is named."""
    script = f"import django, sys; django.setup()\n{before}\n"
    script += "from django.core.management import execute_from_command_line as go\n"
    script += f"go(['manage.py', 'durableflows', 'faulttest', *{list(words)!r}])\n"
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_refund_is_played_in_memory_by_two_processes():
    often = "from durableflows.management import faulttests; faulttests.TELL_SECONDS = 0.05"
    words = ("refund", "--schedules", "40", "--database", "memory", "--processes", "2", "--json")
    done = command(*words, before=often)

    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads(done.stdout)
    assert {report["scenario"] for report in reports} == {"refund_below_limit", "refund_above_limit"}
    assert [(report["schedules"], report["holds"]) for report in reports] == [(20, True), (20, True)]
    assert sum(cell["ok"] for cell in reports[0]["matrix"]) > 10
    assert "of 20, 0 broken" in done.stderr


def test_a_broken_promise_is_an_exit_code_and_a_line_to_play_again():
    words = ("refund_below_limit", "--replay", "crash@claim-after-commit#1", "--database", "memory")

    done = command(*words, before=BROKEN)

    assert done.returncode == 1
    assert "BROKEN check: this desk is closed" in done.stdout
    assert 'again: manage.py durableflows faulttest refund_below_limit --replay "-"' in done.stdout
    assert "a worker takes refund.pay" in done.stdout
    assert "explained:" in done.stdout


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_a_test_database_is_made_beside_the_projects_own_and_dropped():
    before = databases()

    done = command(
        "refund_below_limit", "--schedules", "20", "--processes", "2", database_url=os.environ["DATABASE_URL"]
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 schedules" in done.stdout
    assert databases() == before


def databases() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        return {name for (name,) in cursor.fetchall()}


def test_an_unknown_name_says_what_is_known():
    with pytest.raises(CommandError, match=r"there is no scenario and no workflow 'refnd', did you mean 'refund'"):
        call_command("durableflows", "faulttest", "refnd")


def test_a_line_that_cannot_be_read_stops_before_a_database_is_made():
    with pytest.raises(CommandError, match="'explode' does not happen at claim-after-commit"):
        call_command("durableflows", "faulttest", "refund", "--replay", "explode@claim-after-commit#1")


def test_both_stories_of_the_refund_are_found():
    assert [one.name for one in find("refund")] == ["refund_below_limit", "refund_above_limit"]
    assert [one.name for one in find("refund_above_limit")] == ["refund_above_limit"]
    with pytest.raises(NotFoundError):
        find("nothing")


def test_a_scenario_stays_when_its_workflow_gets_a_newer_version():
    with registry.isolated():

        class Note(Workflow[WorkflowState]):
            name, deadline = "note", timedelta(days=1)

            @step(start=True, end=True)
            def write(self, run: Run[WorkflowState]) -> None: ...

        @scenario(Note)
        def one_note():
            return {}

        class NewNote(Workflow[WorkflowState]):
            name, version, deadline = "note", 2, timedelta(days=1)

            @step(start=True, end=True)
            def write_down(self, run: Run[WorkflowState]) -> None: ...

        assert [one.name for one in find("note")] == ["one_note"]
        assert isinstance(find("one_note")[0].definition.workflow, NewNote)
    with pytest.raises(NotFoundError, match=r"no workflow 'one_note' \(known are"):
        find("one_note")


def test_the_projects_own_files_are_left_alone():
    folder = Path(settings.CUSTOMER_OPS_DATA)
    before = sorted(folder.rglob("*")) if folder.exists() else []

    command("refund_below_limit", "--replay", "-", "--database", "memory")

    assert (sorted(folder.rglob("*")) if folder.exists() else []) == before
