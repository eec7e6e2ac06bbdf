"""Real prefork workers, real PostgreSQL and Redis, real SIGKILL: what was under way starts again, soon and once."""

import os
import signal
import time
from pathlib import Path

import pytest

from durableflows import api
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.models import SideEffect, StepAttempt, StepRun, WorkflowRun
from tests.support.workers import fleet, is_alive, pool_children, ticker_of, wait_for
from tests.worker_app.hung import Venom
from tests.worker_app.workflows import Held, Poison

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

STALE_SECONDS = 6.0


def starts(folder: Path) -> list[tuple[int, float]]:
    """(pid, time) of each start of the held step."""
    marks = folder / "starts"
    if not marks.exists():
        return []
    rows = [line.split() for line in marks.read_text().splitlines()]
    return [(int(pid), float(moment)) for pid, moment in (row for row in rows if len(row) == 2)]


def wait_for_starts(folder: Path, count: int, *, seconds: float) -> list[tuple[int, float]]:
    wait_for(lambda: len(starts(folder)) >= count, seconds=seconds, what=f"start number {count} of the step")
    return starts(folder)


def wait_for_end(run: WorkflowRun, *, seconds: float = 30) -> RunState:
    wait_for(
        lambda: WorkflowRun.objects.filter(pk=run.pk, ended_at__isnull=False).exists(),
        seconds=seconds,
        what=f"run {run.pk} to end",
    )
    return RunState(WorkflowRun.objects.get(pk=run.pk).state)


def test_a_killed_child_s_step_starts_again_within_three_seconds(tmp_path: Path):
    """S3.10, P1: SIGKILL of a pool child, no effect in doubt."""
    with fleet(tmp_path) as ships:
        ships.start()
        run = api.start(Held, {"folder": str(tmp_path)})
        [(pid, _)] = wait_for_starts(tmp_path, 1, seconds=20)

        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        second = wait_for_starts(tmp_path, 2, seconds=30)[1]
        (tmp_path / "go").touch()

        assert wait_for_end(run) is RunState.SUCCEEDED
        assert second[1] - killed_at < 3.0
        assert StepRun.objects.get(run=run, name="hold").lost_workers == 1


def test_a_killed_worker_s_step_starts_again_within_the_stale_time_and_five_seconds(tmp_path: Path):
    """S3.10, P1: the whole worker and its ticker are gone at once; another worker takes over."""
    with fleet(tmp_path, TEST_STALE_SECONDS=str(STALE_SECONDS)) as ships:
        first, second = ships.start(), ships.start()
        wait_for(_is_steady, seconds=30, what="both tickers to be steady")
        run = api.start(Held, {"folder": str(tmp_path)})
        [(pid, _)] = wait_for_starts(tmp_path, 1, seconds=20)

        killed_at = time.time()
        ships.kill(first if pid in pool_children(first) else second)
        again = wait_for_starts(tmp_path, 2, seconds=STALE_SECONDS + 20)[1]
        (tmp_path / "go").touch()

        assert wait_for_end(run) is RunState.SUCCEEDED
        assert again[1] - killed_at < STALE_SECONDS + 5


def test_a_worker_s_own_ticker_frees_its_steps_when_only_the_parent_is_killed(tmp_path: Path):
    """Protocol, rule 14: the orphaned children are ended first, then the leases are freed."""
    with fleet(tmp_path) as ships:
        first, second = ships.start(), ships.start()
        run = api.start(Held, {"folder": str(tmp_path)})
        [(pid, _)] = wait_for_starts(tmp_path, 1, seconds=20)
        parent = first if pid in pool_children(first) else second

        killed_at = time.time()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        again = wait_for_starts(tmp_path, 2, seconds=20)[1]
        (tmp_path / "go").touch()

        assert wait_for_end(run) is RunState.SUCCEEDED
        assert again[1] - killed_at < 10
        assert not is_alive(pid)


def test_a_killed_ticker_is_started_again(tmp_path: Path):
    with fleet(tmp_path) as ships:
        worker = ships.start()
        before = wait_for(lambda: _tickers(worker), seconds=30, what="the worker's ticker")[0]

        os.kill(before, signal.SIGKILL)

        others = wait_for(
            lambda: [pid for pid in _tickers(worker) if pid != before and is_alive(pid)],
            seconds=15,
            what="another ticker of the worker",
        )

        assert others != []
        assert not is_alive(before)


def test_a_step_that_kills_its_worker_is_parked_after_three_starts(tmp_path: Path):
    """R05: a bounded number of starts, each counted before the body runs, then a person; healthy runs go on.

    One whose effect was under way is in doubt after its first loss, and is not started again.
    """
    healthy, venomous = tmp_path / "healthy", tmp_path / "venomous"
    healthy.mkdir()
    venomous.mkdir()
    (healthy / "go").touch()
    with fleet(tmp_path) as ships:
        ships.start()
        poison = api.start(Poison, {"folder": str(tmp_path)})
        venom = api.start(Venom, {"folder": str(venomous)})
        others = [api.start(Held, {"folder": str(healthy)}) for _ in range(20)]

        wait_for(
            lambda: WorkflowRun.objects.get(pk=poison.pk).state == RunState.PARKED,
            seconds=40,
            what="the poison to be parked",
        )
        wait_for(
            lambda: StepRun.objects.get(run=venom).state == StepState.NEEDS_RECONCILIATION,
            seconds=40,
            what="the venom to be in doubt",
        )
        ends = [wait_for_end(run, seconds=60) for run in others]

    parked = WorkflowRun.objects.get(pk=poison.pk)
    assert (parked.parked_reason, parked.attempts_count) == ("needs a person", 3)
    assert "killed its worker 3 times" in parked.parked_detail
    assert ends == [RunState.SUCCEEDED] * 20
    assert len(starts(healthy)) == 20
    tries = StepAttempt.objects.filter(step__run=poison).order_by("number")
    assert [(one.number, one.outcome) for one in tries] == [(1, "lost"), (2, "lost"), (3, "lost")]
    # The start is counted before the body: a child that dies between the two leaves no mark.
    assert len(starts(tmp_path)) <= 3
    assert len(starts(venomous)) == 1
    row = SideEffect.objects.get(run=venom)
    assert (row.state, row.send_count, StepRun.objects.get(run=venom).attempts) == (EffectState.UNKNOWN, 1, 1)
    assert not StepRun.objects.filter(state=StepState.RUNNING).exists()


def _tickers(worker: object) -> list[int]:
    try:
        return [ticker_of(worker)]  # type: ignore[arg-type]
    except StopIteration:
        return []


def _is_steady() -> bool:
    from datetime import timedelta

    from durableflows import clock
    from durableflows.models import Worker

    long_ago = clock.now() - timedelta(seconds=STALE_SECONDS + 1)
    return Worker.objects.filter(started_at__lt=long_ago, stopped_at=None).count() >= 2
