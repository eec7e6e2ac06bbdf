"""Flower beside real workers: each step is there by its own name, with ids alone, and for nobody without a log-in."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from durableflows import api
from durableflows.core.states import RunState
from durableflows.models import StepAttempt, WorkflowRun
from tests.services import free_port
from tests.support.brokers import broker_at
from tests.support.outages import redis_server
from tests.support.workers import ROOT, Fleet, fleet, wait_for
from tests.worker_app.waits import Waits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

LOG_IN = ("operator", "a-long-password")
Tasks = dict[str, dict[str, Any]]


def test_flower_lists_each_step_by_its_name_with_two_ids(tmp_path: Path):
    """B.8: as docs/howto/watch-with-flower.md says it is started; its task ids are those of the attempts."""
    with (
        redis_server() as redis,
        broker_at(redis.url),
        fleet(tmp_path, CELERY_BROKER_URL=redis.url) as ships,
        flower(ships) as url,
    ):
        ships.start(children=1)
        run = api.start(Waits, {"folder": str(tmp_path)})
        wait_for(lambda: state_of(run) == RunState.SUCCEEDED, seconds=30, what="the run to end")
        steps = wait_for(lambda: successes(url, 2), seconds=20, what="Flower to list both steps")
        stranger = httpx.get(f"{url}/api/tasks", trust_env=False)

    assert stranger.status_code == 401
    assert sorted(task["name"] for task in steps.values()) == ["waits.begin", "waits.finish"]
    rows = StepAttempt.objects.filter(step__run=run)
    wanted = {row.celery_task_id: (str(run.pk), str(row.step_id)) for row in rows}
    assert {task_id: ast.literal_eval(task["args"]) for task_id, task in steps.items()} == wanted
    assert {(task["kwargs"], task["result"]) for task in steps.values()} <= {("{}", "None"), ("{}", "")}
    assert str(tmp_path) not in str(steps)


def state_of(run: WorkflowRun) -> str:
    return str(WorkflowRun.objects.get(pk=run.pk).state)


def successes(url: str, count: int) -> Tasks:
    """The steps that Flower shows as done, once it shows so many."""
    tasks: Tasks = httpx.get(f"{url}/api/tasks", auth=LOG_IN, trust_env=False).raise_for_status().json()
    done = {task_id: task for task_id, task in tasks.items() if task["state"] == "SUCCESS"}
    return done if len(done) >= count else {}


@contextmanager
def flower(ships: Fleet) -> Iterator[str]:
    """Flower on the workers' broker; gives its address once it answers."""
    port = free_port()
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", "flower", "--address=127.0.0.1"]
    environment = {**ships.environment, "FLOWER_BASIC_AUTH": ":".join(LOG_IN)}
    with (ships.folder / "flower.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--port={port}", "--read-only"], env=environment, cwd=ROOT, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: is_up(process, url), seconds=40, what="Flower to come up")
        yield url
    finally:
        process.kill()
        process.wait(10)


def is_up(process: "subprocess.Popen[bytes]", url: str) -> bool:
    assert process.poll() is None, "Flower has ended"
    try:
        return httpx.get(f"{url}/healthcheck", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
