"""A deploy and an outage are no deaths: what is under way ends where it began, once, or is handed over at once."""

import signal
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from durableflows import api
from durableflows.core.states import RunState, StepState
from durableflows.models import StepAttempt, StepRun, Worker, WorkflowRun
from tests.support.proxy import proxy
from tests.support.workers import fleet, pool_children, wait_for
from tests.worker_app.workflows import HOLD_SECONDS, Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

STALE_SECONDS = 6.0
AWAY_SECONDS = 20.0
SOFT_SECONDS = 10.0  # CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT of the product


def begin(folder: Path) -> WorkflowRun:
    """A run whose step is under way until the file `go` is there, or for HOLD_SECONDS."""
    folder.mkdir(exist_ok=True)
    return api.start(Held, {"folder": str(folder)})


def starts(folder: Path) -> int:
    marks = folder / "starts"
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def pid_of(folder: Path) -> int:
    return int((folder / "starts").read_text().split()[0])


def ended(runs: list[WorkflowRun]) -> bool:
    return not WorkflowRun.objects.filter(pk__in=[run.pk for run in runs], ended_at__isnull=True).exists()


def states(runs: list[WorkflowRun]) -> set[str]:
    return set(WorkflowRun.objects.filter(pk__in=[run.pk for run in runs]).values_list("state", flat=True))


def held_step(run_id: UUID) -> StepRun:
    return StepRun.objects.get(run_id=run_id, name="hold")


def test_a_worker_that_is_told_to_end_lets_a_step_of_thirty_seconds_end_and_nobody_starts_it_again(tmp_path: Path):
    """TERM is a warm shutdown: its ticker stops last, so the lease lives five times the stale time."""
    with fleet(tmp_path, TEST_STALE_SECONDS=str(STALE_SECONDS)) as ships:
        old = ships.start()
        run = begin(tmp_path / "held")
        wait_for(lambda: starts(tmp_path / "held"), seconds=20, what="the step to be under way")
        ships.start()

        told_at = time.monotonic()
        old.send_signal(signal.SIGTERM)
        wait_for(
            lambda: Worker.objects.filter(draining_at__gt=F("started_at")).count() == 1, seconds=30, what="it to say so"
        )
        wait_for(lambda: old.poll() is not None, seconds=HOLD_SECONDS + 30, what="the old worker to end")
        took = time.monotonic() - told_at
        wait_for(lambda: ended([run]), seconds=30, what="the run to end")

    assert took > HOLD_SECONDS / 2, "the worker did not wait for its step"
    assert old.returncode == 0
    assert starts(tmp_path / "held") == 1
    assert states([run]) == {RunState.SUCCEEDED}
    assert (held_step(run.pk).attempts, held_step(run.pk).lost_workers) == (1, 0)


def test_a_step_that_outlives_the_soft_shutdown_is_handed_over_at_once(tmp_path: Path):
    """QUIT waits for the soft time, then ends the children: the other worker has the step a moment later."""
    with fleet(tmp_path, TEST_STALE_SECONDS="60") as ships:
        old = ships.start()
        run = begin(tmp_path / "held")
        wait_for(lambda: starts(tmp_path / "held"), seconds=20, what="the step to be under way")
        assert pid_of(tmp_path / "held") in pool_children(old)
        ships.start()

        told_at = time.monotonic()
        old.send_signal(signal.SIGQUIT)
        wait_for(lambda: starts(tmp_path / "held") == 2, seconds=SOFT_SECONDS + 20, what="the step to start again")
        took = time.monotonic() - told_at
        (tmp_path / "held" / "go").touch()
        wait_for(lambda: ended([run]), seconds=30, what="the run to end")

    assert took < SOFT_SECONDS + 10  # and not the stale time, which is a minute here
    assert starts(tmp_path / "held") == 2
    assert states([run]) == {RunState.SUCCEEDED}
    assert held_step(run.pk).lost_workers == 1


def test_no_live_lease_is_freed_when_the_database_was_away_for_longer_than_the_stale_time(tmp_path: Path):
    """Every heartbeat is old when the database is back, and nobody is dead; what ended meanwhile settles then."""
    where = connection.settings_dict
    with proxy(str(where["HOST"]), int(where["PORT"])) as between:
        url = f"postgresql://{where['USER']}:{where['PASSWORD']}@127.0.0.1:{between.port}/{where['NAME']}"
        with fleet(tmp_path, DATABASE_URL=url, TEST_STALE_SECONDS=str(STALE_SECONDS)) as ships:
            ships.start(), ships.start()
            early, late = tmp_path / "early", tmp_path / "late"
            runs = [begin(early), begin(late)]
            wait_for(lambda: starts(early) and starts(late), seconds=20, what="both steps to be under way")
            load = [tmp_path / f"load{number}" for number in range(30)]
            for folder in load:
                folder.mkdir()
                (folder / "go").touch()
            runs += [begin(folder) for folder in load[:20]]

            between.close()
            away_at = time.monotonic()
            (early / "go").touch()  # ends in the first second of the outage, and has to wait for its end
            runs += [begin(folder) for folder in load[20:]]
            wait_for(lambda: time.monotonic() - away_at > AWAY_SECONDS, seconds=AWAY_SECONDS + 5, what="the outage")
            between.open()
            (late / "go").touch()
            wait_for(lambda: ended(runs), seconds=120, what="all runs to end")

    assert states(runs) == {RunState.SUCCEEDED}
    assert {folder.name: starts(folder) for folder in [early, late, *load] if starts(folder) != 1} == {}
    assert not StepRun.objects.filter(state=StepState.RUNNING).exists()
    assert [held_step(run.pk).lost_workers for run in runs[:2]] == [0, 0]
    # A claim whose commit got no answer is not known to its worker: nothing began, and its lease runs out.
    lost = StepAttempt.objects.filter(outcome="lost")
    assert list(lost.filter(ended_at__lt=F("started_at") + timedelta(seconds=60))) == []
