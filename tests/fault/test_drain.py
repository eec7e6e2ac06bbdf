"""What a real worker holds, and how it is drained: asked by Celery's own command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durableflows import api
from durableflows.core.states import RunState
from durableflows.models import StepAttempt, StepRun, Worker, WorkflowRun
from tests.support.workers import ROOT, Fleet, fleet, wait_for
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]


def asked(ships: Fleet, *words: str) -> dict[str, Any]:
    """What workers answer, by their names. They are asked by name: the command ends with the last answer, then."""
    names = ",".join(f"w{number}-{os.getpid()}@test" for number, _ in enumerate(ships.workers, 1))
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", *words, "--json", "--timeout", "10"]
    command += ["--destination", names]
    done = subprocess.run(command, cwd=ROOT, env=ships.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    if isinstance(answers, list):  # so does `control`, one for each worker; `inspect` gives one of all
        answers = {worker: answer for one in answers for worker, answer in one.items()}
    return dict(answers)


def begin(folder: Path) -> WorkflowRun:
    folder.mkdir()
    return api.start(Held, {"folder": str(folder)})


def started(folder: Path) -> bool:
    return (folder / "starts").exists()


def test_a_worker_says_what_it_holds_and_drained_it_ends_that_and_takes_nothing_more(tmp_path: Path):
    """S2.35: what is under way ends where it began; what was received and not begun, the other worker has at once."""
    with fleet(tmp_path) as ships:
        ships.start(children=1)
        run = begin(tmp_path / "first")
        wait_for(lambda: started(tmp_path / "first"), seconds=30, what="the step to be under way")
        waiting = begin(tmp_path / "second")

        (held,) = asked(ships, "inspect", "durableflows_holding").values()
        (drained,) = asked(ships, "control", "durableflows_drain").values()
        ships.start(children=1)
        wait_for(lambda: started(tmp_path / "second"), seconds=20, what="the other worker to take what was handed over")
        late = begin(tmp_path / "third")
        for name in ("first", "second", "third"):
            (tmp_path / name / "go").touch()
        runs = [run.pk, waiting.pk, late.pk]
        wait_for(
            lambda: WorkflowRun.objects.filter(pk__in=runs, state=RunState.SUCCEEDED).count() == 3,
            seconds=60,
            what="all to end",
        )
        after = asked(ships, "inspect", "durableflows_holding")

    step = StepRun.objects.get(run=run, name="hold")
    assert [one["step"] for one in held["steps"]] == ["held.hold"]
    assert held["steps"][0]["run"] == str(run.pk)
    assert held["steps"][0]["since"] == StepAttempt.objects.get(step=step).started_at.isoformat()
    assert held["draining"] is False
    assert drained["ok"]["draining"] is True
    assert [str(pk) for pk in Worker.objects.filter(draining_at__isnull=False).values_list("pk", flat=True)] == [
        held["worker"]
    ]
    assert drained["ok"]["under_way"] == 1
    assert step.attempts == 1
    first_worker = StepAttempt.objects.get(step=step).worker
    others = StepAttempt.objects.exclude(step=step)
    assert first_worker not in set(others.values_list("worker", flat=True))
    assert sorted((one["draining"], len(one["steps"])) for one in after.values()) == [(False, 0), (True, 0)]
