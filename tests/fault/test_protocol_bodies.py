"""P3, P4, P9 and P15 against the bodies that people write: swallowed errors, changed arguments, open transactions."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import TestCase

from durableflows import (
    InvalidState,
    NeverSent,
    Permanent,
    ReserveInTransaction,
    Retry,
    Run,
    TooLate,
    Transient,
    UnknownOutcome,
    Workflow,
    api,
    step,
)
from durableflows.core import registry
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.errors import LeaseLost, RunHalted
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World, effect_states, virtual
from tests.support.flows import (
    PayState,
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
    raise_without_acting,
)
from tests.support.play import assert_sound, state_of

pytestmark = pytest.mark.django_db(transaction=True)

Body = Callable[[Run[PayState]], object]


def workflow(body: Body, *effects: object, tries: int = 4) -> type[Workflow[PayState]]:
    """One step with this body, then the end."""

    class Hostile(Workflow[PayState]):
        """Does what its body wants."""

        name, version = "hostile", 1
        deadline = timedelta(days=3)

        @step(start=True, to="done", effects=effects, retry=Retry(attempts=tries, within=timedelta(hours=20)))  # type: ignore[arg-type]
        def work(self, run: Run[PayState]) -> None:
            body(run)

        @step(end=True)
        def done(self, run: Run[PayState]) -> None:
            run.note("done")

    return Hostile


def work_of(run: WorkflowRun) -> StepRun:
    return StepRun.objects.get(run=run, name="work")


def fresh(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run.pk)


def is_done(run: WorkflowRun) -> bool:
    return StepRun.objects.filter(run=run, name="done").exists()


# What a body may swallow


@pytest.mark.parametrize("keyed", [True, False])
def test_a_body_that_swallows_every_exception_does_not_settle_while_its_effect_is_open(world: World, keyed: bool):
    """P15: `except Exception` around run.effect, and the answer is lost."""
    provider = Provider(keyed=keyed, faults=[act_then_raise(UnknownOutcome("read timed out"))])
    pay = pay_effect(provider, key_window=timedelta(hours=24) if keyed else None)

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount=5)
        except Exception:  # noqa: BLE001, S110 - what this is about
            pass

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
        try:
            run.effect(pay, amount=5)
        except:  # noqa: E722, S110 - what this is about
            pass

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


def test_a_parked_run_sends_nothing_more_and_its_worker_is_halted(world: World):
    """RunHalted: the run is parked by somebody while the body works; it goes on where it was."""
    provider = Provider()
    pay = pay_effect(provider)
    seen: list[object] = []

    def body(run: Run[PayState]) -> None:
        if not seen:
            WorkflowRun.objects.filter(pk=run.id).update(parked_reason="paused", parked_detail="a test")
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
    api.retry(run.pk, reason="go on")
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert_sound(run.pk, provider)


# The same operation, other arguments


def test_a_body_that_computes_other_arguments_sends_nothing_and_is_parked_loudly(world: World):
    """P3, P4: what was stored is what was asked for."""
    provider = Provider(faults=[raise_without_acting(NeverSent("refused"))])
    pay = pay_effect(provider)
    amounts = iter([5, 6, 5])
    run = api.start(workflow(lambda run: run.effect(pay, amount=next(amounts)), pay), {"amount": 5})

    world.run_through()

    assert len(provider.sends) == 1
    assert provider.acts == []
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    assert "other arguments" in fresh(run).parked_detail
    api.retry(run.pk, reason="fixed")
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert_sound(run.pk, provider)


def test_other_arguments_in_doubt_send_nothing_and_end_loudly(world: World):
    """P3, P5: the first request may have acted; the second amount must not go out under any key."""
    provider = Provider(faults=[act_then_raise(UnknownOutcome("?"))])
    pay = pay_effect(provider)
    amounts = iter(range(5, 50))
    run = api.start(workflow(lambda run: run.effect(pay, amount=next(amounts)), pay), {"amount": 5})

    world.run_through()

    assert len(provider.sends) == 1
    assert effect_states(run.pk) == [("test.pay", EffectState.CONFIRMED)]
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    assert "other arguments" in fresh(run).parked_detail
    assert_sound(run.pk, provider)


def test_the_same_operation_twice_in_one_attempt_is_an_error_and_sent_once(world: World):
    """P3: the second would get the first one's receipt."""
    provider = Provider()
    pay = pay_effect(provider)
    run = api.start(workflow(lambda run: (run.effect(pay, amount=5), run.effect(pay, amount=5)), pay), {"amount": 5})

    world.run_through()

    assert len(provider.sends) == 1
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    assert "twice in one attempt" in fresh(run).parked_detail
    assert_sound(run.pk, provider)


def test_a_refused_operation_is_not_tried_again_in_the_same_attempt(world: World):
    """P3: a loop of the body's own would be a second retry layer."""
    provider = Provider(faults=[raise_without_acting(Transient("429"))] * 3)
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        for _ in range(3):
            try:
                run.effect(pay, amount=5)
            except Transient:
                continue

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_until_idle()

    assert len(provider.sends) == 1
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE


def test_two_operations_of_one_effect_have_two_keys_and_each_is_sent_once(world: World):
    """P3: an explicit name makes it another operation; the first one's receipt is kept while the second is in doubt."""
    provider = Provider()
    pay = pay_effect(provider)
    provider.faults = [lambda p, call, amount: p.act(call.key, amount), act_then_raise(UnknownOutcome("?"))]

    def body(run: Run[PayState]) -> None:
        run.effect(pay, amount=5)
        run.effect(pay, amount=5, operation="second")

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()

    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(set(provider.acts)) == len(provider.acts) == 2
    assert len(provider.sends) == 3
    assert_sound(run.pk, provider)


# What was refused stays refused


def test_a_refusal_is_given_again_when_the_body_runs_again(world: World):
    """P3, P4: card refused, credit given instead, credit in doubt; the body's second run must not charge the card."""
    provider = Provider(faults=[raise_without_acting(Permanent("card expired")), act_then_raise(UnknownOutcome("?"))])
    pay = pay_effect(provider)
    refusals: list[str] = []

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount=5)
        except Permanent as error:
            refusals.append(str(error))
            run.effect(pay, amount=5, operation="credit")

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()

    assert state_of(run.pk) is RunState.SUCCEEDED
    assert effect_states(run.pk) == [("test.pay", EffectState.REJECTED), ("credit", EffectState.CONFIRMED)]
    assert len(provider.acts) == 1
    assert refusals == ["card expired"] * 2
    assert_sound(run.pk, provider)


def test_what_was_accepted_and_then_failed_is_not_sent_again_by_itself(world: World):
    """P3, R17: the provider says at the lookup that the payment failed. A new one is a new decision."""
    provider = Provider(faults=[answer_pending, answer_pending, answer_pending])
    pay = pay_effect(provider)
    provider.lookup_answers = [Permanent("the refund failed")] * 3
    run = api.start(workflow(lambda run: run.effect(pay, amount=5), pay), {"amount": 5})

    world.run_through()

    assert len(provider.sends) == 1
    assert effect_states(run.pk) == [("test.pay", EffectState.REJECTED)]
    assert state_of(run.pk) is RunState.FAILED
    assert "the refund failed" in fresh(run).error_text


def test_a_refused_operation_gets_a_new_key_by_a_verdict_only(world: World):
    """P3: "issue grows only by a recorded verdict"; a retry alone meets the same refusal."""
    provider = Provider(faults=[raise_without_acting(Permanent("account blocked"))])
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount=5)
        except Permanent:
            raise ValueError("somebody must look") from None

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()
    api.retry(run.pk, reason="unblocked")
    world.run_through()
    assert len(provider.sends) == 1
    row = SideEffect.objects.get(run=run)
    with pytest.raises(TooLate):
        api.resolve_effect(row.pk, "ask_again", reason="x", row_version=row.row_version)
    api.resolve_effect(row.pk, "did_not_happen", reason="unblocked", row_version=row.row_version)
    api.retry(run.pk, reason="unblocked")
    world.run_through()

    assert state_of(run.pk) is RunState.SUCCEEDED
    assert effect_states(run.pk) == [("test.pay", EffectState.REJECTED), ("test.pay", EffectState.CONFIRMED)]
    assert len(provider.acts) == 1


# Open transactions


def test_an_effect_inside_an_open_transaction_is_refused_and_nothing_is_sent(world: World):
    """P4, R34: its intent could be rolled back after the act."""
    provider = Provider()
    pay = pay_effect(provider)

    def body(run: Run[PayState]) -> None:
        with transaction.atomic():
            run.effect(pay, amount=5)

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()

    assert provider.sends == []
    assert not SideEffect.objects.exists()
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    assert "open database transaction" in fresh(run).parked_detail


def test_a_caller_s_transaction_around_the_whole_worker_is_refused_too(world: World):
    """P4: claims are durable for the same reason."""
    run = api.start(workflow(lambda run: None), {"amount": 5})

    with pytest.raises(ReserveInTransaction), transaction.atomic():
        world.run_until_idle()

    assert work_of(run).state == StepState.READY


class DjangoTestCase(TestCase):
    """P4: Django's TestCase wraps each test in a transaction of its own; users' tests must work there."""

    def test_effects_work_inside_it(self) -> None:
        provider = Provider()
        pay = pay_effect(provider)
        with registry.isolated(), virtual() as world:
            run = api.start(workflow(lambda run: run.effect(pay, amount=5), pay), {"amount": 5})
            world.run_until_idle()

        assert state_of(run.pk) is RunState.SUCCEEDED
        assert len(provider.acts) == 1

    def test_a_block_of_the_user_s_own_is_refused_inside_it_too(self) -> None:
        provider = Provider()
        pay = pay_effect(provider)

        def body(run: Run[PayState]) -> None:
            with transaction.atomic():
                run.effect(pay, amount=5)

        with registry.isolated(), virtual() as world:
            run = api.start(workflow(body, pay), {"amount": 5})
            world.run_until_idle()

        assert provider.sends == []
        assert fresh(run).parked_reason == ParkedReason.OUR_CODE


def test_a_receipt_of_the_wrong_type_is_doubt(world: World):
    """P5: the call was made; what came back cannot be read, so nobody knows."""
    provider = Provider(faults=[lambda p, call, amount: {"id": p.act(call.key, amount).id}])  # type: ignore[list-item,arg-type]
    pay = pay_effect(provider)
    run = api.start(workflow(lambda run: run.effect(pay, amount=5), pay), {"amount": 5})

    world.run_until_idle()

    assert effect_states(run.pk) == [("test.pay", EffectState.UNKNOWN)]
    world.run_through()
    assert state_of(run.pk) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_arguments_that_do_not_fit_leave_no_row(world: World):
    """P4: nothing is stored and nothing sent."""
    pay = pay_effect(Provider())
    seen: list[Exception] = []

    def body(run: Run[PayState]) -> None:
        try:
            run.effect(pay, amount="5")
        except InvalidState as error:
            seen.append(error)
            raise

    run = api.start(workflow(body, pay), {"amount": 5})
    world.run_through()

    assert len(seen) == 1
    assert not SideEffect.objects.exists()
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    assert RunEvent.objects.filter(run=run, kind="run.parked").count() == 1


def _stop(how: str, run_id: str) -> None:
    if how == "cancelled":
        api.cancel(run_id, reason="no")
    else:
        running = StepRun.objects.get(run_id=run_id, state=StepState.RUNNING)
        assert sweeps.free_lost_tasks([running.lease_task_id]) == 1
