"""READY rows are the outbox, and tickers its relays: they bear each other, their own deaths, and rows that never go out
(R04).
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from celery import current_app
from django.db import transaction
from kombu import Connection
from kombu.simple import SimpleQueue

from durableflows import Run, Workflow, WorkflowState, api, clock, dispatch, runner, step
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.states import ParkedReason, RunState, StepState
from durableflows.dispatch import MOST_FAULTY_SENDS, TAKEN_SECONDS
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.services import outbox
from durableflows.testing import Crash, World
from tests.services import running_redis
from tests.support.brokers import broker_at
from tests.support.rivals import Gate, Rival, at_once
from tests.support.workers import ROOT, Fleet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

ROWS = 200
KILLED_AT = 50
"""Relays are batch by batch: this is a row in the middle of one."""


class Nothing(WorkflowState):
    """No fields."""


def ping(queue: str | None = None) -> type[Workflow[Nothing]]:
    class Ping(Workflow[Nothing]):
        """One step."""

        name, version, deadline = "ping" if queue is None else f"ping_{queue}", 1, timedelta(days=1)

        @step(start=True, end=True, queue=queue)
        def only(self, run: Run[Nothing]) -> None: ...

    return Ping


def due_rows(count: int) -> list[WorkflowRun]:
    """Runs that were started, and whose messages nobody has sent."""
    flow = ping()
    with dispatch.replaced(lambda name, arguments: None), transaction.atomic():
        runs = [api.start(flow, {}) for _ in range(count)]
    StepRun.objects.update(sent_at=None, sends=0, resend_at=clock.now())
    return runs


def copies(messages: Iterable[tuple[str, tuple[object, ...]]]) -> Counter[int]:
    """How many rows were sent how often."""
    return Counter(Counter(step_id for _, (_, step_id) in messages).values())


def test_two_relays_that_drain_the_same_rows_send_each_once(world: World, monkeypatch):
    """First what was never sent, then what the broker has lost."""
    due_rows(ROWS)

    relay = partial(outbox.send_ready, world.clock.now())
    sent = at_once(relay, relay)

    assert sum(int(str(count)) for count in sent) == ROWS
    assert copies(world.messages) == {1: ROWS}
    assert set(StepRun.objects.values_list("sends", flat=True)) == {1}

    world.lose_messages()
    world.clock.advance(dispatch.UNCLAIMED_SECONDS)
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: 0)
    relay = partial(outbox.send_unclaimed, world.clock.now())
    at_once(relay, relay)
    assert copies(world.messages) == {1: ROWS}


RELAY = """
import os, signal, sys, time, django
django.setup()
from durableflows import clock, dispatch
from durableflows.services import outbox
note, left, other = dispatch._note_send, [int(sys.argv[1])], sys.argv[2]
def note_or_die(step, error):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    # It leaves enough to the other one, whichever of them the machine lets run first.
    while other and int(sys.argv[1]) - left[0] > 20 and os.path.exists("/proc/" + other):
        time.sleep(0.01)
    note(step, error)
dispatch._note_send = note_or_die
print(outbox.send_ready(clock.now()))
"""


@pytest.mark.worker
@pytest.mark.slow
def test_a_relay_that_is_killed_after_a_send_repeats_that_one_and_it_does_nothing(tmp_path: Path):
    """Two processes, real Redis; one dies by SIGKILL between its message and its note of it."""
    with running_redis() as url, registry.isolated(), broker_at(url):
        due_rows(ROWS)
        environment = Fleet(tmp_path, CELERY_BROKER_URL=url).environment

        def relay(dies_at: int, other: str = "") -> "subprocess.Popen[bytes]":
            return subprocess.Popen([sys.executable, "-c", RELAY, str(dies_at), other], env=environment, cwd=ROOT)

        dying = relay(KILLED_AT)
        other = relay(10 * ROWS, str(dying.pid))
        assert [dying.wait(60), other.wait(60)] == [-signal.SIGKILL, 0]
        lost = StepRun.objects.filter(sends=0)
        assert lost.count() == 1
        assert outbox.send_ready(clock.now()) == 0, "the dead relay's row is its own for a while"

        lost.update(resend_at=clock.now())  # TAKEN_SECONDS later
        outbox.send_ready(clock.now())
        messages = take_all(url)
        twice = [one for one in messages if messages.count(one) == 2]
        carried_out = [*twice, *messages[:: ROWS // 20]]
        for _, arguments in carried_out:
            runner.run_step(*arguments)

    assert copies(messages) == {1: ROWS - 1, 2: 1}
    assert {name for name, _ in messages} == {"ping.only"}
    done = WorkflowRun.objects.filter(pk__in={run_id for _, (run_id, _) in carried_out})
    assert set(done.values_list("state", "attempts_count")) == {(RunState.SUCCEEDED, 1)}
    assert StepAttempt.objects.count() == done.count() == len(set(carried_out))


def take_all(url: str) -> list[tuple[str, tuple[UUID, UUID]]]:
    """Take each message that is there."""
    taken: list[tuple[str, tuple[UUID, UUID]]] = []
    with (
        Connection(url) as connection,
        SimpleQueue(connection.default_channel, current_app.conf.task_default_queue) as queue,
    ):
        while True:
            try:
                message = queue.get(block=False)
            except queue.Empty:
                return taken
            message.ack()
            run_id, step_id = message.payload[0]
            taken.append((message.headers["task"], (UUID(run_id), UUID(step_id))))


@pytest.mark.worker
def test_a_row_that_can_never_be_sent_holds_nobody_up_and_is_parked_until_an_operator_has_mended_it(monkeypatch):
    """Its step names a queue that the project does not have: no broker could take its message."""
    with running_redis() as url, registry.isolated(), broker_at(url):
        monkeypatch.setattr(current_app.amqp.queues, "create_missing", False)
        bad = api.start(ping("nowhere"), {})
        good = due_rows(3)
        row = StepRun.objects.get(run=bad)
        StepRun.objects.filter(pk=row.pk).update(resend_at=clock.now() - timedelta(minutes=1))  # it stands first

        outbox.send_ready(clock.now())

        assert StepRun.objects.filter(run__in=good, sent_at__isnull=False).count() == len(good)
        waits = []
        for _ in range(2, MOST_FAULTY_SENDS + 1):
            row.refresh_from_db()
            assert "nowhere" in row.send_error
            assert row.resend_at is not None
            waits.append((row.resend_at - clock.now()).total_seconds())
            StepRun.objects.filter(pk=row.pk).update(resend_at=clock.now())
            outbox.send_ready(clock.now())
        assert [round(seconds) for seconds in waits] == [2, 4, 8, 16, 32, 64, *[128] * (len(waits) - 6)]

        bad.refresh_from_db()
        assert (bad.state, bad.parked_reason) == (RunState.PARKED, ParkedReason.OUR_CODE)
        assert f"only could not be sent to a worker {MOST_FAULTY_SENDS} times" in bad.parked_detail
        assert "nowhere" in bad.parked_detail
        StepRun.objects.filter(pk=row.pk).update(resend_at=clock.now())
        assert outbox.send_ready(clock.now()) == 0

        monkeypatch.setattr(current_app.amqp.queues, "create_missing", True)
        api.retry(bad.pk, reason="the queue is there now")
        assert dispatch.queued_messages("nowhere") == 1
        row.refresh_from_db()
        assert (row.state, row.send_error) == (StepState.READY, "")


def test_a_relay_whose_time_for_a_row_is_over_writes_nothing_on_it(world: World):
    """It hangs in its publish; another takes the row and sends it; then the first one's error comes."""
    due_rows(1)
    gate = Gate()

    def hang(name: str, arguments: tuple[str, ...]) -> None:
        gate.pass_through()

    with dispatch.replaced(hang):
        slow = Rival(partial(outbox.send_ready, world.clock.now())).begin()
        gate.wait()
    assert outbox.send_ready(world.clock.now()) == 0  # it is the slow one's
    assert TAKEN_SECONDS > 2 * settings().PUBLISH_SECONDS
    world.clock.advance(TAKEN_SECONDS)
    assert outbox.send_ready(world.clock.now()) == 1
    before = StepRun.objects.values().get()

    world.clock.advance(1)
    gate.open()
    slow.outcome()

    assert StepRun.objects.values().get() == before
    assert before["sends"] == 1


def test_a_relay_that_dies_over_a_row_before_its_message_only_delays_it(world: World):
    due_rows(1)

    def die(name: str, arguments: tuple[str, ...]) -> None:
        raise Crash("before the message")

    with dispatch.replaced(die), pytest.raises(Crash):
        outbox.send_ready(world.clock.now())
    assert outbox.send_ready(world.clock.now()) == 0
    world.clock.advance(TAKEN_SECONDS)
    assert outbox.send_ready(world.clock.now()) == 1
    world.run_until_idle()

    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
