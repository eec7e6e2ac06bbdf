"""Twenty real worker processes before a provider that may be back: one tries, is killed, and the next tries (R12)."""

import json
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from durableflows import api, clock
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import Breaker, EffectSend, StepRun, WorkflowRun
from tests.support.workers import fleet, pool_children, wait_for
from tests.worker_app.weak import Weak

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

PROCESSES = 20
COOL_DOWN_SECONDS = 3.0


def asked(folder: Path) -> list[int]:
    """The process behind each request that reached the provider."""
    path = folder / "asked"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def start(folder: Path, count: int) -> list[WorkflowRun]:
    return [api.start(Weak, {"folder": str(folder)}) for _ in range(count)]


def breaker() -> Breaker | None:
    return Breaker.objects.filter(pk="weak").first()


def is_in(state: str) -> bool:
    row = breaker()
    return row is not None and row.state == state


def cool_down_is_over() -> bool:
    row = breaker()
    return row is not None and row.open_until is not None and row.open_until <= clock.now()


def looked_at(runs: list[WorkflowRun]) -> int:
    """How many of the runs have been put off, or are at the provider."""
    steps = StepRun.objects.filter(run__in=runs)
    return steps.exclude(held_by="").count() + steps.filter(state=StepState.RUNNING, effects__isnull=False).count()


def test_of_twenty_processes_one_tries_and_when_it_is_killed_one_more(tmp_path: Path):
    """R12: the probe is slow, its worker dies, its place frees itself, and the next one's success closes it for all."""
    limits = {"weak": {"cool_down_seconds": COOL_DOWN_SECONDS}}
    environment = {"TEST_PROVIDERS": json.dumps(limits), "TEST_MARGIN_SECONDS": "1"}
    (tmp_path / "down").touch()
    with fleet(tmp_path, **environment) as ships:
        ship = ships.start(children=PROCESSES)
        start(tmp_path, 5)
        wait_for(lambda: is_in("open"), seconds=40, what="five failures to open the breaker")
        (tmp_path / "down").unlink()
        (tmp_path / "slow").touch()
        wait_for(cool_down_is_over, seconds=20, what="the cool-down to be over")

        runs = start(tmp_path, PROCESSES)
        wait_for(lambda: looked_at(runs) == PROCESSES, seconds=40, what="all twenty to have tried")
        [prober] = asked(tmp_path)
        assert is_in("half-open")
        assert prober in pool_children(ship)
        first = Breaker.objects.get(pk="weak")
        os.kill(prober, signal.SIGKILL)

        wait_for(lambda: len(asked(tmp_path)) == 2, seconds=70, what="the dead prober's place to be given away")
        second = Breaker.objects.get(pk="weak")
        assert (second.state, len(asked(tmp_path))) == ("half-open", 2)
        assert second.probe_token != first.probe_token
        assert first.probe_until is not None
        assert second.changed_at is not None
        assert first.probe_until <= second.changed_at <= first.probe_until + timedelta(seconds=15)
        (tmp_path / "slow").unlink()

        ends = WorkflowRun.objects.filter(pk__in=[run.pk for run in runs], state=RunState.SUCCEEDED)
        wait_for(lambda: ends.count() == PROCESSES, seconds=60, what="all to go on when the probe has succeeded")
    assert is_in("closed")
    assert EffectSend.objects.filter(is_probe=True).count() == 2
    for step in StepRun.objects.filter(run__in=runs):
        assert step.attempts - step.attempts_forgiven - step.lost_workers <= 1, "waiting is no attempt"
    assert not [one for one in examine() if one.severity is Severity.BROKEN]
