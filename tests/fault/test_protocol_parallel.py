"""P15 and P2 when steps run side by side: the end of one must not end the run over the other's open effect."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from durableflows import EffectCall, NeverSent, Retry, Run, UnknownOutcome, Workflow, api, fail, step
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.models import StepRun, WorkflowRun
from durableflows.testing import World, effect_states
from tests.support.flows import PayReceipt, PayState, Provider, act_then_raise, pay_effect, raise_without_acting
from tests.support.play import assert_sound, state_of

pytestmark = pytest.mark.django_db(transaction=True)


Body = Callable[[Run[PayState]], None]


def fork(pay_it: EffectDefinition[PayReceipt], ends: str, body: Body | None = None) -> type[Workflow[PayState]]:
    """Pay, and at the same time do something that ends the run."""

    class Fork(Workflow[PayState]):
        """Two at once."""

        name, version = "fork", 1
        deadline = timedelta(days=3)

        @step(start=True, to=("pay", "other"))
        def begin(self, run: Run[PayState]):
            return self.pay, self.other

        @step(end=True, effects=(pay_it,), retry=Retry(attempts=4, within=timedelta(hours=20)))
        def pay(self, run: Run[PayState]) -> None:
            if body is not None:
                body(run)
            run.effect(pay_it, amount=5)

        @step(end=True)
        def other(self, run: Run[PayState]):
            return fail("enough") if ends == "fail" else None

    return Fork


@pytest.mark.parametrize("ends", ["fail", "succeed"])
def test_the_end_of_one_branch_does_not_end_the_run_over_another_s_doubt(world: World, ends: str):
    """P15: the payment's answer was lost when the other branch came to its end."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    run = api.start(fork(pay_effect(provider, key_window=None), ends), {"amount": 5})
    _deliver(world, "fork.begin", "fork.pay")
    assert effect_states(run.pk) == [("test.pay", EffectState.UNKNOWN)]

    _deliver(world, "fork.other")

    assert WorkflowRun.objects.get(pk=run.pk).ended_at is None
    world.run_through()
    assert state_of(run.pk) is (RunState.FAILED if ends == "fail" else RunState.SUCCEEDED)
    assert effect_states(run.pk) == [("test.pay", EffectState.CONFIRMED)]
    assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


@pytest.mark.parametrize("ends", ["fail", "succeed"])
def test_a_branch_that_waits_for_its_next_try_is_not_left_behind(world: World, ends: str):
    """P10: whatever the end of one branch means for the other, no step stays open in a run that has ended."""
    provider = Provider(faults=[raise_without_acting(NeverSent("refused"))])
    run = api.start(fork(pay_effect(provider), ends), {"amount": 5})
    _deliver(world, "fork.begin", "fork.pay")
    assert StepRun.objects.get(run=run, name="pay").state == StepState.RETRY_SCHEDULED

    _deliver(world, "fork.other")
    world.run_through()

    assert WorkflowRun.objects.get(pk=run.pk).ended_at is not None
    assert_sound(run.pk, provider)


def test_a_branch_under_way_sends_nothing_more_once_another_has_failed_the_run(world: World):
    """P6, P15: the run only waits for the answer that is out; the body that gets it would go on to the next send."""

    def fail_the_run(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        _deliver(world, "fork.other")
        return provider.act(call.key, amount)

    def pay_a_tip_first(run: Run[PayState]) -> None:
        run.effect(pay_it, operation="tip", amount=1)

    provider = Provider(faults=[fail_the_run])
    pay_it = pay_effect(provider)
    run = api.start(fork(pay_it, "fail", pay_a_tip_first), {"amount": 5})

    _deliver(world, "fork.begin", "fork.pay")
    world.run_through()

    assert state_of(run.pk) is RunState.FAILED
    assert len(provider.sends) == 1
    assert_sound(run.pk, provider)


def test_a_branch_that_has_not_begun_stays_so_in_a_run_that_waits_to_end(world: World):
    """P6, rule 10: the run is cancelled and waits for what is in doubt; the other branch's message comes meanwhile."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))])
    run = api.start(fork(pay_effect(provider, key_window=None), "succeed"), {"amount": 5})
    _deliver(world, "fork.begin", "fork.pay")
    api.cancel(run.pk, reason="no")
    assert state_of(run.pk) is RunState.ENDING

    _deliver(world, "fork.other")

    assert StepRun.objects.get(run=run, name="other").attempts == 0


def _deliver(world: World, *names: str) -> None:
    for name in names:
        message = next(message for message in world.messages if message[0] == name)
        world.messages.remove(message)
        world.deliver(*message)
