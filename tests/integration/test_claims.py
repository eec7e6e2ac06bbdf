"""What stops a claim: another release, a state from outside, a deadline, a budget. Nothing more is sent."""

from datetime import timedelta

import pytest

from durableflows import Budget, Run, StepRef, Workflow, WorkflowState, api, step
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.testing import FakeClock, World, virtual
from tests.support.flows import PayReceipt, Provider, pay_effect

NO_LIMITS = Budget()

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world():
    with registry.isolated(), virtual(FakeClock()) as world:
        yield world


class CountState(WorkflowState):
    """How often the loop was walked."""

    walked: int = 0


def loop(
    provider: Provider, *, limits: Budget = NO_LIMITS, rounds: int = 5, longer: bool = False
) -> type[Workflow[CountState]]:
    """work -> work -> ... -> done. `longer`: the next release, with one more step and no new version."""
    pay = pay_effect(provider)

    class Loop(Workflow[CountState]):
        """Pays in each round."""

        name, version, deadline = "loop", 1, timedelta(days=1)
        budget = limits

        @step(start=True, to=("work", "done"), effects=(pay,))
        def work(self, run: Run[CountState]) -> StepRef:
            receipt = run.effect(pay, amount=run.state.walked + 1)
            assert isinstance(receipt, PayReceipt)
            run.state.walked += 1
            return self.work if run.state.walked < rounds else self.done

        if longer:

            @step(to="close")
            def done(self, run: Run[CountState]) -> None:
                run.note("there is one step more")

            @step(end=True)
            def close(self, run: Run[CountState]) -> None:
                run.note("closed")

        else:

            @step(end=True)
            def done(self, run: Run[CountState]) -> None:
                run.note("done")

    return Loop


def fresh(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run.pk)


def test_a_run_does_not_go_on_under_another_structure_and_does_under_its_own(world: World):
    """S2.16, S3.11, P8: it is parked with nothing lost; the old code beside the new one lets it go on."""
    provider = Provider()
    run = api.start(loop(provider, rounds=1), {})
    with registry.isolated():
        registry._DEFINITIONS.clear()
        loop(provider, rounds=1, longer=True)
        world.run_until_idle()
        assert fresh(run).state == RunState.PARKED
        assert "other steps, effects or state" in fresh(run).parked_detail
        assert provider.sends == []

    api.retry(run.pk, reason="the old code is back")
    world.run_until_idle()

    assert fresh(run).state == RunState.SUCCEEDED


def test_a_state_that_was_changed_from_outside_is_not_resumed_from(world: World):
    """S2.26, P13."""
    provider = Provider()
    run = api.start(loop(provider), {})
    WorkflowRun.objects.filter(pk=run.pk).update(data={"walked": 4})

    world.run_until_idle()

    assert fresh(run).state == RunState.PARKED
    assert fresh(run).parked_reason == "integrity"
    assert provider.sends == []


def test_a_deadline_stops_the_next_claim(world: World):
    """S2.11, S3.29."""
    provider = Provider()
    run = api.start(loop(provider), {})
    world.clock.advance(days=1)

    world.run_until_idle()

    assert fresh(run).state == RunState.DEADLINE_EXCEEDED
    assert provider.sends == []


@pytest.mark.parametrize(
    ("budget", "sends"),
    [(Budget(attempts=2), 2), (Budget(tool_calls=3), 3), (Budget(iterations=1), 2)],
    ids=["attempts", "tool calls", "iterations"],
)
def test_a_budget_that_is_used_up_ends_the_run(world: World, budget: Budget, sends: int):
    """S2.1, S3.29: before the work starts, not after it."""
    provider = Provider()
    run = api.start(loop(provider, limits=budget), {})

    world.run_until_idle()

    assert fresh(run).state == RunState.EXHAUSTED_BUDGET
    assert len(provider.sends) == sends
