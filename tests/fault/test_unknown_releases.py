"""No worker knows a run's workflow, or its version: it is parked after a while, and can go on with the code (P8)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from durableflows import UnknownOutcome, api, clock, integrity
from durableflows.core import registry
from durableflows.core.states import ParkedReason, RunState
from durableflows.models import StepRun, Worker, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow
from tests.support.waits import waiting
from tests.support.workers import fleet, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

MINUTES = 15


def worker(*knows: tuple[str, int], minutes_ago: float = 0) -> UUID:
    """A worker that started so long ago and beats now."""
    now = clock.now()
    boot = uuid4()
    Worker.objects.create(
        boot_id=boot,
        name="w",
        host="h",
        pid=1,
        knows=[list(pair) for pair in knows],
        started_at=now - timedelta(minutes=minutes_ago),
        heartbeat_at=now,
    )
    return boot


def pass_by(world: World, minutes: float, *beating: UUID) -> None:
    """Let time pass with these workers alive; messages are thrown away, as by workers without the task."""
    world.clock.advance(minutes=minutes)
    Worker.objects.filter(pk__in=beating).update(heartbeat_at=clock.now())
    sweeps.sweep(may_free_stale=False)
    world.lose_messages()


@contextmanager
def other_code() -> Iterator[None]:
    """Another deploy's process: it does not have the workflow."""
    with registry.isolated():
        registry._DEFINITIONS.clear()
        yield


def state_of(run: WorkflowRun) -> str:
    return str(WorkflowRun.objects.get(pk=run.pk).state)


def test_a_workflow_that_no_worker_knows_is_parked_after_a_quarter_of_an_hour_and_can_go_on(world: World):
    """The message never reaches a claim: the worker does not have the task."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    with other_code():
        boot = worker(("another", 1))
        pass_by(world, MINUTES - 1, boot)
        assert state_of(run) == RunState.PENDING
        pass_by(world, 2, boot)

    parked = WorkflowRun.objects.get(pk=run.pk)
    assert (parked.state, parked.parked_reason) == (RunState.PARKED, ParkedReason.INCOMPATIBLE)
    assert parked.parked_detail == "no live worker knows pay v1"

    api.retry(run.pk, reason="the code is back")
    world.run_through()
    assert state_of(run) == RunState.SUCCEEDED


def test_a_version_that_is_asked_for_in_vain_is_parked_the_same_way(world: World):
    """Here the message does reach a claim: the name is known."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    WorkflowRun.objects.update(version=9)
    boot = worker(("pay", 1))
    world.run_until_idle()
    assert "pay v9" in StepRun.objects.get(run=run).retry_reason
    pass_by(world, MINUTES + 1, boot)

    assert WorkflowRun.objects.get(pk=run.pk).parked_detail == "no live worker knows pay v9"


def test_a_claim_leaves_a_version_that_another_worker_knows_to_that_one(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    WorkflowRun.objects.update(version=9)
    workers = worker(("pay", 1)), worker(("pay", 9))
    message = world.messages.popleft()
    pass_by(world, MINUTES + 1, *workers)

    world.deliver(*message)

    assert state_of(run) == RunState.PENDING
    assert "pay v9" in StepRun.objects.get(run=run).retry_reason


@pytest.mark.parametrize("standing", ["alive", "stopped a moment ago", "silent for a while"])
def test_a_worker_that_knew_it_within_that_time_keeps_the_run_waiting(standing: str, world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    with other_code():
        watching, knowing = worker(("another", 1)), worker(("pay", 1))
        pass_by(world, MINUTES + 1, watching, knowing)
        if standing == "stopped a moment ago":
            Worker.objects.filter(pk=knowing).update(stopped_at=clock.now())
        pass_by(world, 10, watching, *[knowing] * (standing == "alive"))

    assert state_of(run) == RunState.PENDING


def test_the_first_worker_after_a_night_parks_nothing_before_others_could_come_up(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    with other_code():
        worker(("pay", 1))
        world.clock.advance(hours=9)
        first = worker(("another", 1))
        pass_by(world, 1, first)

        assert state_of(run) == RunState.PENDING

        pass_by(world, MINUTES, first)
        assert state_of(run) == RunState.PARKED


def in_doubt() -> tuple[WorkflowRun, Provider]:
    """A run whose payment happened, and nobody has heard of it; the provider has no keys, and can be asked."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    return run, provider


def test_an_effect_in_doubt_is_left_to_the_worker_that_can_ask_about_it(world: World):
    """P5: while a deploy rolls, the ticker of the other release knows no lookup, which is not to say there is none."""
    run, provider = in_doubt()
    for _ in range(2):
        world.deliver(*world.messages.popleft())
    with other_code():
        boot = worker(("another", 1), ("pay", 1), minutes_ago=MINUTES + 1)
        pass_by(world, 2, boot)
        assert state_of(run) == RunState.NEEDS_RECONCILIATION
        assert not StepRun.objects.filter(needs_person=True).exists()

    world.run_through()

    assert state_of(run) == RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_a_person_is_told_of_an_effect_in_doubt_that_no_worker_can_ask_about(world: World):
    run, _ = in_doubt()
    for _ in range(2):
        world.deliver(*world.messages.popleft())
    with other_code():
        boot = worker(("another", 1))
        pass_by(world, MINUTES - 1, boot)
        assert not StepRun.objects.filter(needs_person=True).exists()
        pass_by(world, 2, boot)

    assert StepRun.objects.get(run=run, needs_person=True).name == "pay"
    assert "nobody can be asked" in WorkflowRun.objects.get(pk=run.pk).alert


def test_a_child_whose_workflow_no_worker_knows_parks_its_parent(world: World):
    run_id = waiting(world, "timer")
    StepRun.objects.filter(run=run_id, waits_on="timer").update(waits_on="child", wake_at=None)
    step = StepRun.objects.get(run=run_id, waits_on="child")
    step.input = {"child": {"workflow": "gone", "version": 3, "data": {}, "on_failure": None}}
    integrity.seal_input(step)
    step.store("input", "input_seal")
    boot = worker(("waiting", 1))

    pass_by(world, MINUTES - 1, boot)
    assert WorkflowRun.objects.get(pk=run_id).state == RunState.WAITING
    pass_by(world, 2, boot)

    assert WorkflowRun.objects.get(pk=run_id).parked_detail == "no live worker knows gone v3"


def test_a_run_that_moved_lately_is_not_parked(world: World):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    with other_code():
        boot = worker(("another", 1))
        pass_by(world, MINUTES - 1, boot)
        WorkflowRun.objects.update(changed_at=clock.now())
        pass_by(world, 2, boot)

    assert state_of(run) == RunState.PENDING


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.postgres
def test_a_real_worker_that_throws_the_message_away_has_the_run_parked(tmp_path: Path):
    with fleet(tmp_path, TEST_UNKNOWN_SECONDS="3") as ships, registry.isolated():
        ships.start(children=1)
        pay_workflow(Provider())
        run = api.start("pay", {"amount": 5})
        wait_for(lambda: state_of(run) == RunState.PARKED, seconds=30, what="the run to be parked")

        assert "unregistered task" in ships.log(1)
    assert WorkflowRun.objects.get(pk=run.pk).parked_detail == "no live worker knows pay v1"
