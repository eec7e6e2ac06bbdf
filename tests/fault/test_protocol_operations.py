"""P3 and P4 against the bodies that people write: changed arguments, repeated operations, open transactions."""

import time

import pytest
from django.db import transaction
from django.test import TestCase
from pydantic import BaseModel, model_validator

from durableflows import (
    EffectCall,
    InvalidState,
    NeverSent,
    Permanent,
    ReserveInTransaction,
    Run,
    TooLate,
    Transient,
    UnknownOutcome,
    api,
    effect,
)
from durableflows.core import registry
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.models import RunEvent, SideEffect
from durableflows.testing import World, effect_states, virtual
from tests.support.flows import (
    PayReceipt,
    PayState,
    Provider,
    act_then_raise,
    answer_pending,
    pay_effect,
    raise_without_acting,
)
from tests.support.hostile import fresh, work_of, workflow
from tests.support.play import assert_sound, state_of

pytestmark = pytest.mark.django_db(transaction=True)

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
    """S1.2, P3: a name of its own makes it another operation; the first receipt is kept while the second is open."""
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
    """S2.5, S3.25, P4, R34: its intent could be rolled back after the act."""
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

    def answer_otherwise(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        return {"id": provider.act(call.key, amount).id}  # type: ignore[return-value]

    provider = Provider(faults=[answer_otherwise])
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


def test_a_call_that_does_not_come_back_in_its_time_is_in_doubt(world: World):
    """Rule 2, P5: `timeout_seconds` covers the whole call, whatever the client's own time-outs do."""

    @effect(name="test.hang", provider="test", receipt=PayReceipt, settle_seconds=30, timeout_seconds=0.2)
    def hang(call: EffectCall, *, amount: int) -> PayReceipt:
        time.sleep(3)
        return PayReceipt(id="late")

    def body(run: Run[PayState]) -> None:
        run.effect(hang, amount=5)

    run = api.start(workflow(body, hang), {"amount": 5})
    world.run_until_idle()

    row = SideEffect.objects.get(run=run)
    assert (row.state, row.receipt) == (EffectState.UNKNOWN, None)
    assert "gave no answer within 0.2 s" in row.reason


def test_stored_arguments_that_do_not_load_are_an_error_and_no_doubt(world: World):
    """Rule 7, P5: the row says DISPATCHED then, and it is known that nothing has left."""

    class Sum(BaseModel):
        minor: int

        @model_validator(mode="after")
        def _fits(self) -> "Sum":
            if SideEffect.objects.exists():
                raise ValueError("the code of today wants more")
            return self

    @effect(name="test.strict", provider="test", receipt=PayReceipt, settle_seconds=30, timeout_seconds=10)
    def strict(call: EffectCall, *, amount: Sum) -> PayReceipt:
        raise AssertionError("it was sent")

    def body(run: Run[PayState]) -> None:
        run.effect(strict, amount=Sum(minor=5))

    run = api.start(workflow(body, strict), {"amount": 5})
    world.run_until_idle()

    assert SideEffect.objects.get(run=run).state == EffectState.PLANNED
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
