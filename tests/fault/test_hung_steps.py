"""R07: time limits end a step even when its code catches everything; soft 1 s, hard 3 s, in real prefork workers."""

import time
from pathlib import Path

import pytest
from celery import current_app

from durableflows import api, checks_celery
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import SideEffect, StepAttempt, StepRun, WorkflowRun
from tests.support.workers import fleet, wait_for
from tests.worker_app.hung import TRIES, Sink, Stubborn
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

HARD_SECONDS = 3.0
LEASE_SECONDS = 15.0


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def starts(folder: Path) -> list[float]:
    marks = folder / "starts"
    return [float(line.split()[1]) for line in marks.read_text().splitlines()] if marks.exists() else []


def healthy(folder: Path) -> WorkflowRun:
    (made(folder) / "go").touch()
    return api.start(Held, {"folder": str(folder)})


def ended(runs: list[WorkflowRun]) -> bool:
    return not WorkflowRun.objects.filter(pk__in=[run.pk for run in runs], ended_at__isnull=True).exists()


def test_steps_that_catch_everything_end_by_their_hard_limit_and_the_pool_stays_usable(tmp_path: Path):
    """R07: the pure one is a time-out, counted and tried again within its tries; the other is in doubt."""
    pure, acting = made(tmp_path / "pure"), made(tmp_path / "acting")
    with fleet(tmp_path) as ships:
        ships.start(children=2)
        stubborn, sink = api.start(Stubborn, {"folder": str(pure)}), api.start(Sink, {"folder": str(acting)})
        wait_for(lambda: starts(pure) and starts(acting), seconds=20, what="both steps to be under way")

        wait_for(
            lambda: StepRun.objects.get(run=sink).state == StepState.NEEDS_RECONCILIATION,
            seconds=starts(acting)[0] + HARD_SECONDS + LEASE_SECONDS - time.time(),
            what="the acting step to be in doubt",
        )
        wait_for(
            lambda: WorkflowRun.objects.get(pk=stubborn.pk).state == RunState.PARKED,
            seconds=TRIES * (HARD_SECONDS + LEASE_SECONDS),
            what="the pure step to be given up",
        )
        others = [healthy(tmp_path / f"healthy{number}") for number in range(6)]
        wait_for(lambda: ended(others), seconds=30, what="the others to end")

    tries = StepAttempt.objects.filter(step__run=stubborn).order_by("number")
    assert [(one.outcome, one.error_class) for one in tries] == [("transient", "TimeoutError")] * TRIES
    assert len(starts(pure)) == TRIES
    detail = WorkflowRun.objects.get(pk=stubborn.pk).parked_detail
    assert detail.startswith(
        f"spin did not work in {TRIES} attempts; the last error was: spin did not end within its hard"
    )
    spent = [one.ended_at - one.started_at for one in tries if one.ended_at is not None]
    assert all(HARD_SECONDS - 0.5 < one.total_seconds() < HARD_SECONDS + LEASE_SECONDS for one in spent)
    assert len(starts(acting)) == 1
    row = SideEffect.objects.get(run=sink)
    assert (row.state, row.send_count) == (EffectState.UNKNOWN, 1)
    assert not StepRun.objects.filter(state=StepState.RUNNING).exists()
    assert [one for one in examine() if one.severity is Severity.BROKEN] == []


def test_a_worker_whose_soft_limit_is_not_shorter_than_the_hard_one_does_not_start(tmp_path: Path):
    """R07: the hard limit would strike without a record."""
    with fleet(tmp_path, TEST_HARD_SECONDS="1") as ships:
        worker = ships.launch()
        wait_for(lambda: worker.poll() is not None, seconds=30, what="the worker to give up")

        assert worker.returncode != 0
        assert "durableflows.E007: the task stubborn.spin: the soft time limit 1 is not shorter than 1" in ships.log(1)


@pytest.mark.parametrize(("soft", "hard", "is_refused"), [(1, 3, False), (3, 3, True), (4, 3, True), (None, 3, False)])
def test_limits_of_the_whole_app_are_checked(monkeypatch, soft: int | None, hard: int, is_refused: bool):
    monkeypatch.setitem(current_app.conf, "task_soft_time_limit", soft)
    monkeypatch.setitem(current_app.conf, "task_time_limit", hard)

    found = [one.id for one in checks_celery.check_time_limits(None)]

    assert found == (["durableflows.E007"] if is_refused else [])


@pytest.mark.parametrize(("pool", "warns"), [("prefork", False), ("threads", True), ("solo", True), ("gevent", True)])
def test_a_pool_without_time_limits_is_named(monkeypatch, pool: str, warns: bool):
    monkeypatch.setitem(current_app.conf, "worker_pool", pool)

    assert ("durableflows.W004" in [one.id for one in checks_celery.check_celery(None)]) is warns
