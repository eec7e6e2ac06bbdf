"""Every message is lost: runs go on within one documented interval, from rows; old copies change nothing (R02)."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from celery import current_app
from django.contrib.auth.models import User
from kombu import Connection
from kombu.simple import SimpleQueue
from redis import Redis

from durableflows import Transient, api, clock, dispatch, runner
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import Boundary, Crash, World, crash_at, virtual
from tests.services import running_redis
from tests.support.brokers import broker_at
from tests.support.flows import Provider, pay_workflow, raise_without_acting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("boss")


class Five:
    """Five runs, each at another place where it depends on a message or a timer."""

    def __init__(self, boss: User) -> None:
        self.boss = boss
        self.provider = Provider()
        pay_workflow(self.provider)
        self.runs: dict[str, UUID] = {}

    def bring(self, work: Any) -> None:
        """`work` carries out the messages that are on their way."""
        self.provider.faults.append(raise_without_acting(Transient("503", retry_after_seconds=1)))
        self._start("retry scheduled")
        work()
        self._start("timer due", ask=True)
        self._start("approved", ask=True)
        work()
        self._let_expire()
        self._approve()
        with crash_at(Boundary.START_BEFORE_SEND), pytest.raises(Crash):
            api.start("pay", {"amount": 5}, key="never sent")
        self.runs["never sent"] = WorkflowRun.objects.get(business_key="never sent").pk
        self._start("ready")

    def _start(self, name: str, *, ask: bool = False) -> None:
        self.runs[name] = api.start("pay", {"amount": 5, "ask": ask}, key=name).pk

    def _approve(self) -> None:
        request = ApprovalRequest.objects.get(run=self.runs["approved"])
        api.answer(request.pk, "approve", by=self.boss, facts_digest=request.facts_digest)

    def _let_expire(self) -> None:
        """The last rung of the ladder, and its time is over; no sweep has been."""
        request = ApprovalRequest.objects.get(run=self.runs["timer due"])
        now = clock.now()
        ApprovalRequest.objects.filter(pk=request.pk).update(ladder_position=len(request.ladder), expires_at=now)

    def assert_place(self) -> None:
        """Each run is where it is meant to be."""
        states = {(str(step.run_id), step.name): step.state for step in StepRun.objects.filter(ended_at=None)}
        assert states == {
            (str(self.runs["ready"]), "assess"): StepState.READY,
            (str(self.runs["never sent"]), "assess"): StepState.READY,
            (str(self.runs["approved"]), "pay"): StepState.READY,
            (str(self.runs["retry scheduled"]), "pay"): StepState.RETRY_SCHEDULED,
            (str(self.runs["timer due"]), "sign_off"): StepState.WAITING_HUMAN,
        }

    def unfinished(self) -> list[str]:
        ended = set(WorkflowRun.objects.filter(state=RunState.SUCCEEDED).values_list("pk", flat=True))
        return [name for name, run_id in self.runs.items() if run_id not in ended]

    def assert_done_once(self) -> None:
        """Four have paid once; nobody answered the fifth, and it did not pay."""
        assert self.unfinished() == []
        assert len(self.provider.acts) == len(set(self.provider.acts)) == 4
        assert len(self.provider.sends) == 5
        assert not [found for found in examine() if found.severity is Severity.BROKEN]


def history() -> list[str]:
    return list(RunEvent.objects.order_by("run_id", "sequence").values_list("digest", flat=True))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The broker says nothing about its queues: what is left is the time after which a step is sent again."""
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: None)
    with registry.isolated(), virtual() as world:
        yield world


def carry_out(world: World) -> None:
    """Do what is in messages, and nothing else: `run_until_idle` would find READY steps by itself."""
    while world.messages:
        world.deliver(*world.messages.popleft())


def test_all_messages_are_lost_and_all_go_on(world: World, boss: User):
    """R02, P1: within RESEND_SECONDS (15 s) and one sweep, though the broker cannot say that it lost them."""
    five = Five(boss)
    five.bring(lambda: carry_out(world))
    five.assert_place()
    old = list(world.sent)
    assert world.lose_messages() > 0

    world.clock.advance(settings().RESEND_SECONDS)
    sweeps.sweep(may_free_stale=False)
    carry_out(world)

    five.assert_done_once()
    before = history()
    for message in [*old, *world.sent, *reversed(old)]:
        world.deliver(*message)
    assert history() == before
    five.assert_done_once()


def test_what_needs_no_second_message_does_not_wait_for_the_interval(world: World, boss: User):
    """R02: a READY step that was never sent is due after PUBLISH_SECONDS, a timer at its time."""
    five = Five(boss)
    five.bring(lambda: carry_out(world))
    world.lose_messages()

    world.clock.advance(settings().PUBLISH_SECONDS)
    sweeps.sweep(may_free_stale=False)
    carry_out(world)

    assert {"ready", "approved"} <= set(five.unfinished()) <= {"ready", "approved", "retry scheduled"}


def test_messages_that_are_lost_again_and_again_only_delay(world: World, boss: User):
    """R02, P10: the pauses grow to ten minutes at most, and the sends are never given up."""
    five = Five(boss)
    five.bring(lambda: carry_out(world))
    for _ in range(12):
        world.lose_messages()
        world.clock.advance(settings().RESEND_CAP_SECONDS)
        sweeps.sweep(may_free_stale=False)
    carry_out(world)

    five.assert_done_once()


class Broker:
    """A Redis of the test's own, and one worker on it, in this process."""

    def __init__(self, url: str) -> None:
        self.connection, self.redis = Connection(url), Redis.from_url(url)
        self.taken: list[tuple[str, list[str]]] = []

    def __len__(self) -> int:
        return int(self.redis.llen(current_app.conf.task_default_queue))

    def flush(self) -> None:
        """Lose everything: queues, bindings, what was not acknowledged."""
        self.redis.flushall()

    def work(self) -> None:
        """Take each message that is there, and do what a worker does with it."""
        with SimpleQueue(self.connection.default_channel, current_app.conf.task_default_queue) as queue:
            while True:
                try:
                    message = queue.get(block=False)
                except queue.Empty:
                    return
                message.ack()
                self.taken.append((message.headers["task"], list(message.payload[0])))
                run_id, step_id = message.payload[0]
                runner.run_step(UUID(run_id), UUID(step_id), task_id=message.headers["id"])


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_redis() as url, registry.isolated(), broker_at(url):
        broker = Broker(url)
        yield broker
        broker.connection.release()
        broker.redis.close()


@pytest.mark.worker
def test_redis_forgets_everything_and_all_go_on(broker: Broker, boss: User):
    """R02: real messages, FLUSHALL, and the database's own time; Redis says that its queue is empty."""
    five = Five(boss)
    five.bring(broker.work)
    five.assert_place()
    assert len(broker) == 2
    broker.flush()
    assert len(broker) == 0

    began = time.monotonic()
    while five.unfinished() and time.monotonic() - began < settings().RESEND_SECONDS:
        sweeps.sweep(may_free_stale=False)
        broker.work()
        time.sleep(0.05)  # a ticker's pause

    five.assert_done_once()
    assert time.monotonic() - began < settings().RESEND_SECONDS
    before = history()
    for name, arguments in broker.taken:
        dispatch.publish(name, tuple(arguments), None)
    assert len(broker) == len(broker.taken)
    broker.work()
    assert history() == before


@pytest.mark.worker
def test_messages_hold_ids_only(broker: Broker, boss: User):
    """R31: what lies in Redis is the task's name and two ids, and below two thousand bytes."""
    five = Five(boss)
    five.bring(broker.work)

    raw = broker.redis.lrange(current_app.conf.task_default_queue, 0, -1)

    assert len(raw) == 2
    assert all(len(body) < 2000 for body in raw)
    broker.work()
    for name, arguments in broker.taken:
        assert name.startswith("pay.")
        assert [str(UUID(argument)) for argument in arguments] == arguments
