"""A transactional effect and whoever takes its lease, cancels its run or reads its row, each on its own connection.

The function runs before the engine takes any lock: others go on meanwhile, and what they did counts at the commit.
"""

from collections.abc import Callable
from functools import partial

import pytest

from durableflows import api
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.runner import run_step
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.ledgers import Office, hire_workflow
from tests.support.look import fresh, state_of
from tests.support.rivals import Rival, gate_at
from tests.support.rooms import broken

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def meanwhile(call: Callable[[], object]) -> Callable[[], object]:
    """Another process does this to its end, while the function's transaction is open."""

    def act() -> object:
        outcome = Rival(call).begin().outcome()
        assert not isinstance(outcome, BaseException), outcome
        return outcome

    return act


def free_all() -> int:
    tasks = StepRun.objects.filter(state="RUNNING").values_list("lease_task_id", flat=True)
    return sweeps.free_lost_tasks(list(tasks))


def test_a_worker_that_loses_its_lease_while_the_function_runs_leaves_nothing(world: World):
    office = Office()
    run = api.start(hire_workflow(office), {})
    office.during = [meanwhile(free_all)]

    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert (office.staff(), len(office.calls)) == (["ada"], 2)
    assert SideEffect.objects.get(run=run).send_count == 1
    assert broken() == []


def test_a_cancel_while_the_function_runs_rolls_it_back(world: World):
    """P6: it is confirmed at once, for nothing outside is under way."""
    office = Office()
    run = api.start(hire_workflow(office), {})
    office.during = [meanwhile(partial(api.cancel, run.pk, reason="changed my mind"))]

    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert (office.staff(), SideEffect.objects.filter(run=run).count()) == ([], 0)
    assert broken() == []


def test_whoever_frees_the_lease_at_the_commit_waits_and_finds_the_receipt(world: World):
    office = Office()
    run = api.start(hire_workflow(office), {})
    step = StepRun.objects.get(run=run)
    world.lose_messages()

    with gate_at(Boundary.TOGETHER_BEFORE_COMMIT) as gate:
        worker = Rival(partial(run_step, run.pk, step.pk, task_id="one")).begin()
        gate.wait()
        assert not get_rows(run)  # nobody sees what is not committed
        canceller = Rival(partial(api.cancel, run.pk, reason="changed my mind")).begin()
        canceller.wait_until_blocked()
    worker.outcome()
    assert isinstance(canceller.outcome(), WorkflowRun)
    world.run_through()

    assert state_of(run) is RunState.CANCELLED
    assert (office.staff(), len(office.calls)) == (["ada"], 1)
    assert get_rows(run) == ["CONFIRMED"]
    assert fresh(run).tool_calls_count == 1
    assert broken() == []


def get_rows(run: WorkflowRun) -> list[str]:
    return list(SideEffect.objects.filter(run=run).values_list("state", flat=True))
