"""Runs of a first release that stand in each of the ways in which a deploy of the second finds them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from django.contrib.auth.models import User

from durableflows import NeedsHuman, Transient, UnknownOutcome, api
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import Worker, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.releases import first_release, second_release


@contextmanager
def deployed(provider: Provider, *versions: int, with_migration: bool = True) -> Iterator[None]:
    """A process that has these releases, and no other."""
    pay_it = pay_effect(provider)
    with registry.isolated():
        if 1 in versions:
            first_release(pay_it)
        if 2 in versions:
            second_release(pay_it, with_migration=with_migration)
        yield


Stage = Callable[[World, Provider], WorkflowRun]


def retrying(world: World, provider: Provider) -> WorkflowRun:
    """Its payment is tried again in ten minutes."""
    provider.faults = [raise_without_acting(Transient("503"))]
    run = api.start("paying", {"amount": 5})
    world.run_until_idle()
    return run


def asking(world: World, provider: Provider) -> WorkflowRun:
    """A person is asked."""
    run = api.start("paying", {"amount": 5, "ask": True})
    world.run_until_idle()
    return run


def in_doubt(world: World, provider: Provider) -> WorkflowRun:
    """The answer of its payment was lost."""
    provider.faults = [act_then_raise(UnknownOutcome("lost"))]
    run = api.start("paying", {"amount": 5})
    world.run_until_idle()
    assert state_of(run) is RunState.NEEDS_RECONCILIATION
    return run


def parked(world: World, provider: Provider) -> WorkflowRun:
    """Its payment needs a person."""
    provider.faults = [raise_without_acting(NeedsHuman("expired"))]
    run = api.start("paying", {"amount": 5})
    world.run_until_idle()
    return run


STAGES: list[Stage] = [retrying, asking, in_doubt, parked]


def finish(world: World, run: WorkflowRun, boss: User) -> None:
    """Do what people have to do, and let it end."""
    if fresh(run).state == RunState.WAITING_HUMAN:
        request = open_request(run.pk)
        api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)
    if fresh(run).parked_reason == "needs a person":
        api.retry(run.pk, reason="looked at")
    world.run_through()


def worker_that_knows(world: World, version: int) -> UUID:
    """A worker of another process, that has this release and beats now."""
    now = world.clock.now()
    boot = uuid4()
    knows = [["paying", version]]
    Worker.objects.create(boot_id=boot, name="w", host="h", pid=1, knows=knows, started_at=now, heartbeat_at=now)
    return boot


def pass_time_with_a_worker_of_the_new_code(world: World) -> None:
    """A worker that does not know version 1 is there for hours, and beats."""
    boot = worker_that_knows(world, 2)
    for _ in range(4):
        world.clock.advance(minutes=20)
        Worker.objects.filter(boot_id=boot).update(heartbeat_at=world.clock.now())
        world.run_until_idle()
