"""A process that is stopped, or cut off, in the middle of an engine transaction keeps its run's lock for a moment."""

import time
from datetime import timedelta
from functools import partial

import pytest
from django.db import InterfaceError, OperationalError

from durableflows import Run, Workflow, WorkflowState, api, claims, step, transactions
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState, StepState
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import Rival, gate_at

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

SILENT_SECONDS = 1


class Nothing(WorkflowState):
    """No fields."""


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "IDLE_SECONDS", SILENT_SECONDS)


def test_a_run_whose_lock_is_held_by_a_frozen_worker_can_be_cancelled(world: World):
    """P10: the server ends the frozen session; what it had begun is rolled back, and the worker hears of it."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    begun = StepRun.objects.get(run=run)
    with gate_at(Boundary.CLAIM_BEFORE_COMMIT) as gate:
        frozen = Rival(partial(claims.claim, run.pk, begun.pk, task_id="x", pid=1)).begin()
        gate.wait()

        began = time.monotonic()
        api.cancel(run.pk, reason="nobody moves it")
        waited = time.monotonic() - began

    assert waited < SILENT_SECONDS + transactions.LOCK_TIMEOUT_SECONDS
    assert isinstance(frozen.outcome(), OperationalError | InterfaceError)
    assert not StepAttempt.objects.filter(step=begun).exists()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED


def test_user_code_of_an_atomic_step_may_be_silent_for_longer(world: World):
    """The limit is for the engine's own transactions: it would otherwise end a step that only computes."""

    class Thinking(Workflow[Nothing]):
        """Computes for a while."""

        name, version, deadline = "thinking", 1, timedelta(days=1)

        @step(start=True, end=True, atomic=True)
        def think(self, run: Run[Nothing]) -> None:
            time.sleep(2.5 * SILENT_SECONDS)  # stands for work without a query

    run = api.start(Thinking, {})
    world.run_until_idle()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert StepRun.objects.get(run=run).state == StepState.SUCCEEDED
    assert StepAttempt.objects.filter(step__run=run).count() == 1
