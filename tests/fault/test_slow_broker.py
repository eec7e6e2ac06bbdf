"""A broker that takes connections and never answers costs each process a moment now and then, and nobody a lease."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from durableflows import api, broker, claims, clock, dispatch, leases, ticker
from durableflows.conf import settings
from durableflows.core.states import StepState
from durableflows.leases import Place
from durableflows.models import StepRun, Worker, WorkflowRun
from durableflows.services import outbox
from tests.services import free_port, running_redis
from tests.support.brokers import broker_at
from tests.support.mute_server import mute_server
from tests.support.workers import ROOT, Fleet, wait_for
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

STALE_SECONDS = 6.0
DUE_ROWS = 300
POOL_LIMIT = 10


@contextmanager
def ticker_alone(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py durableflows ticker` as a process, on this test's database."""
    fleet = Fleet(folder, TEST_STALE_SECONDS=str(STALE_SECONDS), CELERY_BROKER_URL=f"redis://{address}/0")
    command = [sys.executable, "manage.py", "durableflows", "ticker"]
    with (folder / "ticker.log").open("wb") as log:
        process = subprocess.Popen(command, env=fleet.environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def claimed_by_a_worker_that_dies(folder: Path) -> tuple[StepRun, Worker]:
    """A step under a lease of a worker whose heart beats once."""
    boot = leases.begin_worker("dead@test")
    ticker.register(Place(boot, "dead@test", 0, ()))
    run = api.start(Held, {"folder": str(folder)})
    step = StepRun.objects.get(run=run)
    assert claims.claim(run.pk, step.pk, task_id="x", pid=0) is not None
    return step, Worker.objects.get(boot_id=boot)


@pytest.mark.slow
def test_a_dead_worker_s_lease_is_freed_in_time_while_three_hundred_steps_cannot_be_sent(tmp_path: Path):
    """S3.10, P1: stale time + 5 s, though each publish would take PUBLISH_SECONDS."""
    with dispatch.replaced(lambda name, arguments: None):
        step, dead = claimed_by_a_worker_that_dies(tmp_path)
        for number in range(DUE_ROWS):
            api.start(Held, {"folder": str(tmp_path)}, key=str(number))
    StepRun.objects.filter(state=StepState.READY).update(resend_at=clock.now())

    with mute_server() as address, ticker_alone(tmp_path, address):
        wait_for(lambda: Worker.objects.exclude(pk=dead.pk).exists(), seconds=30, what="the ticker to come up")
        Worker.objects.filter(pk=dead.pk).update(heartbeat_at=clock.now())
        died = time.monotonic()
        wait_for(
            lambda: StepRun.objects.get(pk=step.pk).state != StepState.RUNNING,
            seconds=STALE_SECONDS + 60,
            what="the lease to be freed",
        )

        assert time.monotonic() - died < STALE_SECONDS + 5
        assert StepRun.objects.exclude(send_error="").exists()


def test_after_a_publish_that_got_no_answer_the_next_ones_fail_at_once_and_say_so_on_the_row(tmp_path: Path):
    with mute_server() as address, broker_at(f"redis://{address}/0"):
        began = time.monotonic()
        first = api.start(Held, {"folder": str(tmp_path)})
        tried = time.monotonic()
        others = [api.start(Held, {"folder": str(tmp_path)}) for _ in range(20)]
        done = time.monotonic()

    # Far below what waiting again would cost each of them, far above what a busy machine needs.
    assert tried - began < 3 * settings().PUBLISH_SECONDS
    assert done - tried < 5 * settings().PUBLISH_SECONDS
    errors = {step.run_id: step.send_error for step in StepRun.objects.all()}
    assert "Timeout" in errors[first.pk]
    assert all("failed a moment ago" in errors[run.pk] and "Timeout" in errors[run.pk] for run in others)
    assert WorkflowRun.objects.count() == 21


def test_a_sweep_leaves_due_steps_as_they_are_while_the_broker_rests(tmp_path: Path):
    with mute_server() as address, broker_at(f"redis://{address}/0"):
        api.start(Held, {"folder": str(tmp_path)})
        StepRun.objects.update(resend_at=clock.now(), sends=1)

        outbox.send_ready(clock.now())

        assert StepRun.objects.get().sends == 1


def test_the_first_message_that_a_mended_broker_takes_ends_the_rest():
    port = free_port()
    with broker_at(f"redis://127.0.0.1:{port}/0"):
        assert "refused" in dispatch.publish("a.b", ("1",), "q")
        assert "failed a moment ago" in dispatch.publish("a.b", ("1",), "q")
        with running_redis(port=port):
            wait_for(broker.is_open, seconds=broker.REST_SECONDS + 1, what="the rest to be over")
            assert dispatch.publish("a.b", ("1",), "q") == ""
            assert broker.is_open()
            assert dispatch.queued_messages("q") == 1


def test_a_turn_of_the_ticker_sends_no_longer_than_it_may(tmp_path: Path):
    sent: list[str] = []
    with dispatch.replaced(lambda name, arguments: sent.append(name)):
        run = api.start(Held, {"folder": str(tmp_path)})
        step = StepRun.objects.get(run=run)
        with broker.at_most(0.0):
            assert not dispatch.send(step.pk)

    assert sent == ["held.hold"]


@pytest.mark.worker
def test_a_forked_child_reaches_the_broker_by_a_connection_of_its_own(broker_url: str):
    """Celery's way to keep pools apart is not asked by os.fork, and a ticker is forked again when it dies."""
    queue = f"test-{uuid.uuid4().hex}"
    assert dispatch.publish("a.b", ("1",), queue) == ""
    with Redis.from_url(broker_url) as redis, contextlib.ExitStack() as busy:
        for _ in range(POOL_LIMIT):  # threads of the parent are sending at the moment of the fork
            busy.enter_context(broker.producer()).channel.client.ping()
        before = addresses(redis)
        with publishing_child(queue) as said:
            assert said == "sent"
            assert before < addresses(redis)
        busy.close()

        assert dispatch.publish("a.b", ("3",), queue) == ""
        assert redis.llen(queue) == 3
        redis.delete(queue)


def addresses(redis: Redis) -> set[str]:
    """Where the broker's clients are connected from."""
    return {str(client["addr"]) for client in redis.client_list()}


@contextmanager
def publishing_child(queue: str) -> Iterator[str]:
    """Fork as the ticker is forked: the child publishes, says how it went, and keeps its connections in the block."""
    told, telling = os.pipe()
    ending, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(telling, (dispatch.publish("a.b", ("2",), queue) or "sent").encode())
            os.read(ending, 1)
        finally:
            os._exit(0)
    try:
        yield os.read(told, 1000).decode()
    finally:
        os.write(end, b".")
        os.waitpid(child, 0)
        for pipe in (told, telling, ending, end):
            os.close(pipe)
