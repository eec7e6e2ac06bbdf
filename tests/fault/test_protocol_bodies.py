"""P2, P6 and P15 against the bodies that people write: an open effect or a lost lease is not swallowed."""

import contextlib
from datetime import timedelta
from uuid import UUID

import pytest

from durableflows import (
    EffectCall,
    Permanent,
    Run,
    UnknownOutcome,
    api,
)
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.errors import LeaseLost, RunHalted
from durableflows.models import StepRun
from durableflows.services import sweeps
from durableflows.testing import World, effect_states
from tests.support.flows import (
    PayReceipt,
    PayState,
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
)
from tests.support.hostile import fresh, is_done, work_of, workflow
from tests.support.play import assert_sound, state_of

pytestmark = pytest.mark.django_db(transaction=True)

# What a body may swallow


@pytest.mark.parametrize("keyed", [True, False])
def test_a_body_that_swallows_every_exception_does_not_settle_while_its_effect_is_open(world: World, keyed: bool):
    """P15: `except Exception` around run.effect, and the answer is lost."""
    provider = Provider(keyed=keyed, faults=[act_then_raise(UnknownOutcome("read timed out"))])
    pay = pay_effect(provider, key_window=timedelta(hours=24) if keyed else None)

    def body(run: Run[PayState]) -> None:
        with contextlib.suppress(Exception):
            run.effect(pay, amount=5)

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert work_of(run).state == StepState.NEEDS_RECONCILIATION
    assert not is_done(run)
    assert effect_states(run.pk) == [("test.pay", EffectState.UNKNOWN)]
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


@pytest.mark.parametrize(("fault", "waits"), [("lost", StepState.NEEDS_RECONCILIATION), ("pending", StepState.WAITING)])
def test_even_a_bare_except_does_not_end_a_step_open(world: World, fault: str, waits: StepState):
    """P15: control flow is swallowed too; the settlement looks at the rows, not at what the body says."""
    faults = {"lost": act_then_raise(UnknownOutcome("?")), "pending": answer_pending}
    provider = Provider(faults=[faults[fault]])
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        with contextlib.suppress(BaseException):
            run.effect(pay, amount=5)

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert work_of(run).state == waits
    assert not is_done(run)
    provider.known = {key: receipt.model_copy(update={"status": "done"}) for key, receipt in provider.known.items()}
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


def test_a_body_that_fails_the_run_while_its_effect_is_open_waits_too(world: World):
    """P15: an error of our own after a swallowed doubt."""
    provider = Provider(faults=[act_then_raise(UnknownOutcome("?"))])
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount=5)
        except BaseException:  # noqa: BLE001
            raise Permanent("I give up") from None

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert work_of(run).state == StepState.NEEDS_RECONCILIATION
    assert not fresh(run).ended_at
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


@pytest.mark.parametrize("how", ["cancelled", "lease lost"])
def test_halts_and_lost_leases_pass_through_except_exception(world: World, how: str):
    """P2, P6: control flow is no Exception, and the rest of the body does not run."""
    provider = Provider()
    pay = pay_effect(provider)
    seen: list[object] = []

    def body(run: Run[PayState]) -> None:
        if not seen:
            seen.append("begun")
            _stop(how, run.id)
        try:
            run.effect(pay, amount=5)
        except Exception as error:  # noqa: BLE001
            seen.append(error)
        except BaseException as error:
            seen.append(type(error))
            raise
        seen.append("went on")

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert seen[1] in (LeaseLost, RunHalted)
    assert "went on" not in seen[:2]
    if how == "cancelled":
        assert seen == ["begun", LeaseLost]
        assert state_of(run.pk) is RunState.CANCELLED
        assert provider.sends == []
    else:
        assert state_of(run.pk) is RunState.SUCCEEDED
        assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


def test_a_refusal_that_the_row_does_not_believe_sends_no_body_another_way(world: World):
    """P2, rule 7: the lease was lost during the call. This no is about this send only; the body must not act on it."""
    other_ways: list[str] = []

    def lose_lease_and_refuse(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        assert sweeps.free_lost_tasks([StepRun.objects.get(name="work").lease_task_id]) == 1
        raise Permanent("the card has expired")

    provider = Provider(faults=[lose_lease_and_refuse])
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount=5)
        except Permanent as error:
            other_ways.append(str(error))

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()

    assert other_ways == []
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


def test_a_paused_run_sends_nothing_more_and_its_worker_is_halted(world: World):
    """RunHalted: the run is paused by somebody while the body works; it goes on where it was."""
    provider = Provider()
    pay = pay_effect(provider)
    seen: list[object] = []

    def body(run: Run[PayState]) -> None:
        if not seen:
            api.pause(run.id, reason="a test")
        try:
            run.effect(pay, amount=5)
        except Exception as error:  # noqa: BLE001
            seen.append(error)
        except BaseException as error:
            seen.append(type(error))
            raise

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert seen == [RunHalted]
    assert state_of(run.pk) is RunState.PARKED
    assert provider.sends == []
    api.resume(run.pk, reason="go on")
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert_sound(run.pk, provider)


def _stop(how: str, run_id: str) -> None:
    if how == "cancelled":
        api.cancel(run_id, reason="no")
    else:
        running = StepRun.objects.get(run_id=UUID(run_id), state=StepState.RUNNING)
        assert sweeps.free_lost_tasks([running.lease_task_id]) == 1
