"""A start belongs to the transaction of its caller: no run without the commit, no message before it (R32)."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from django.contrib.auth.models import AnonymousUser, Group
from django.db import connection, connections, transaction

from durableflows import InvalidState, api, runner
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.testing import World, virtual
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import WAIT_SECONDS, Rival

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

STARTS = 30


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


class GivenUp(Exception):
    """What the caller raises after its start."""


@contextmanager
def given_up(alias: str = "default") -> Iterator[None]:
    """A transaction whose block raises at its end."""
    with suppress(GivenUp), transaction.atomic(using=alias):
        yield
        raise GivenUp


class EagerWorker:
    """Takes each message the moment it is there, and looks for READY rows besides."""

    def __init__(self, world: World) -> None:
        self._world, self._stop = world, threading.Event()
        self.handled = 0
        self._rival = Rival(self._work)

    def __enter__(self) -> "EagerWorker":
        self._rival.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._rival.outcome() is None

    def _work(self) -> None:
        while not self._stop.is_set():
            while self._world.messages:
                self._world.deliver(*self._world.messages.popleft())
                self.handled += 1
            for step in StepRun.objects.filter(state="READY"):
                runner.run_step(step.run_id, step.pk, task_id="eager")

    def wait_for(self, fact: Callable[[], bool]) -> None:
        tick = threading.Event()
        for _ in range(int(WAIT_SECONDS * 100)):
            if fact():
                return
            tick.wait(0.01)
        raise AssertionError("the eager worker did not get there")


def nothing_is_there(world: World) -> bool:
    rows = WorkflowRun.objects.exists() or StepRun.objects.exists() or RunEvent.objects.exists()
    return not rows and not world.sent


def test_an_eager_worker_never_misses_a_row(world: World, caplog: pytest.LogCaptureFixture):
    """R32: no message leaves before its row can be seen by everybody."""
    provider = Provider()
    flow = pay_workflow(provider)

    with caplog.at_level(logging.INFO, logger="durableflows.runner"), EagerWorker(world) as worker:
        for number in range(STARTS):
            with transaction.atomic():
                run = api.start(flow, {"amount": 5}, key=str(number))
                Group.objects.create(name=f"work of the caller's own {number}")
                assert str(run.pk) not in {arguments[0] for _, arguments in list(world.sent)}
        worker.wait_for(lambda: WorkflowRun.objects.filter(state=RunState.SUCCEEDED).count() == STARTS)

    assert not [record for record in caplog.records if "a message for nothing" in record.message]
    assert len(provider.acts) == STARTS
    assert worker.handled >= STARTS


def test_a_start_that_is_rolled_back_never_was(world: World):
    """R32: the caller raises after the start; no run, no message, and no mail can come of it."""
    provider = Provider()
    flow = pay_workflow(provider)

    with EagerWorker(world):
        for _ in range(5):
            with given_up():
                api.start(flow, {"amount": 5}, key="k")
    world.run_until_idle()

    assert nothing_is_there(world)
    assert provider.sends == []


def test_a_view_with_a_transaction_of_its_own_leaves_no_ghost(world: World, rf):
    """R32: ATOMIC_REQUESTS, and the view fails after the start."""
    from django.core.handlers.base import BaseHandler
    from django.http import HttpRequest, HttpResponse

    flow = pay_workflow(Provider())

    def view(request: HttpRequest) -> HttpResponse:
        api.start(flow, {"amount": 5}, key="k")
        if request.GET.get("fails"):
            raise RuntimeError("of the view")
        return HttpResponse()

    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        wrapped = BaseHandler().make_view_atomic(view)
        with pytest.raises(RuntimeError):
            wrapped(rf.get("/?fails=1"))
        assert nothing_is_there(world)
        wrapped(rf.get("/"))
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    world.run_until_idle()

    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_a_nested_block_that_is_rolled_back_leaves_the_outer_work_only(world: World):
    """R32: a savepoint takes its run and its message with it."""
    flow = pay_workflow(Provider())

    with transaction.atomic():
        outer = api.start(flow, {"amount": 5}, key="outer")
        with given_up():
            api.start(flow, {"amount": 6}, key="inner")
        Group.objects.create(name="kept")

    assert [run.pk for run in WorkflowRun.objects.all()] == [outer.pk]
    assert {arguments[0] for _, arguments in world.sent} == {str(outer.pk)}
    assert Group.objects.filter(name="kept").exists()
    world.run_until_idle()
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_the_key_of_a_start_that_was_rolled_back_in_a_savepoint_is_free(world: World):
    """R32, R37: the outer transaction tries again with another input."""
    flow = pay_workflow(Provider())

    with transaction.atomic():
        with given_up():
            api.start(flow, {"amount": 5}, key="k")
        run = api.start(flow, {"amount": 6}, key="k")

    assert WorkflowRun.objects.get().pk == run.pk


@pytest.fixture
def other_database():
    """A second alias, which is not the engine's."""
    connections.databases["other"] = {**connections.databases["default"]}
    connections["other"].connect()  # Django's test case lets nobody connect to an alias that it does not know
    yield "other"
    connections["other"].close()
    del connections["other"]
    del connections.databases["other"]


def test_a_transaction_on_another_database_is_not_the_engine_s(world: World, other_database: str):
    """R32: a transaction on another alias neither holds a start back nor takes it away; the engine's own does both.

    No database can commit with another one. `api.start` joins transactions of the engine's database
    (DURABLEFLOWS["DATABASE"]) only: elsewhere the run is committed, and sent, when `start` returns.
    """
    flow = pay_workflow(Provider())

    with given_up(other_database):
        run = api.start(flow, {"amount": 5}, key="k")
        assert WorkflowRun.objects.using(other_database).filter(pk=run.pk).exists()
        assert [arguments[0] for _, arguments in world.sent] == [str(run.pk)]
    world.run_until_idle()

    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_a_cancel_that_is_rolled_back_is_none(world: World):
    """R32: the other verbs belong to the caller's transaction as well."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})

    with given_up():
        api.cancel(run.pk, reason="no")
    world.run_until_idle()

    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_an_answer_that_is_rolled_back_is_none(world: World, django_user_model):
    """R32: nothing goes on before the caller's commit."""
    boss = django_user_model.objects.create_superuser("boss", password="x")
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5, "ask": True})
    world.run_until_idle()
    request = run.requests.get()
    sent = len(world.sent)

    with given_up():
        api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)
    assert len(world.sent) == sent
    request.refresh_from_db()
    assert request.state == "OPEN"
    assert not request.decisions.exists()

    with transaction.atomic():
        api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)
        assert len(world.sent) == sent
    world.run_until_idle()

    assert len(provider.acts) == 1


def test_somebody_who_is_not_logged_in_cannot_be_the_owner(world: World):
    """A view that passes `request.user` on is told what to give instead."""
    flow = pay_workflow(Provider())

    with pytest.raises(InvalidState, match="nobody who is logged in"):
        api.start(flow, {"amount": 5}, by=AnonymousUser())

    assert not WorkflowRun.objects.exists()
