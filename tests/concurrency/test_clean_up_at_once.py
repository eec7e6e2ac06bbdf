"""Who ends a run, who works at it and who cleans it up, at the same instant: one clean-up, and nothing beside it."""

from datetime import timedelta
from functools import partial
from random import Random

import pytest

from durableflows import api, claims, context
from durableflows.boundaries import Boundary
from durableflows.core import registry
from durableflows.core.directives import Goto, Succeed
from durableflows.core.outcomes import Done, Outcome
from durableflows.core.states import EndingPhase, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.errors import LeaseLost, RunHalted
from durableflows.leases import Claim
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.look import fresh, how_often, state_of
from tests.support.play import assert_chain
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.rooms import Hotel, stay_workflow

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def broken() -> list[str]:
    return [one.text for one in examine() if one.severity is Severity.BROKEN]


def booked(world: World, hotel: Hotel) -> WorkflowRun:
    """A run that has booked, and whose `pay` nobody has claimed."""
    run = api.start(stay_workflow(hotel), {})
    world.deliver(*world.messages.popleft())
    world.lose_messages()
    return fresh(run)


def claimed(run: WorkflowRun, name: str) -> Claim:
    step = StepRun.objects.get(run=run, name=name)
    claim = claims.claim(run.pk, step.pk, task_id=name, pid=1)
    assert claim is not None
    return claim


def cancel(run: WorkflowRun) -> WorkflowRun:
    return api.cancel(run.pk, reason="changed my mind")


def settle(claim: Claim, outcome: Outcome) -> object:
    return claims.settle(claim.lease, outcome, rng=Random(0))


def paid(run: WorkflowRun) -> Done:
    return Done(Goto(("confirm",)), run.data)


def test_a_settlement_that_meets_the_beginning_of_the_clean_up_is_lost(world: World):
    """The commit that begins it has taken every lease of the main path."""
    hotel = Hotel()
    run = booked(world, hotel)
    claim = claimed(run, "pay")

    with gate_at(Boundary.CLEANUP_BEFORE_COMMIT) as gate:
        canceller = Rival(partial(cancel, run)).begin()
        gate.wait()
        settler = Rival(partial(settle, claim, paid(run))).begin()
        settler.wait_until_blocked()

    assert isinstance(canceller.outcome(), WorkflowRun)
    assert isinstance(settler.outcome(), LeaseLost)
    assert not StepRun.objects.filter(run=run, name="confirm").exists()
    world.run_until_idle()
    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["book", "free"]
    assert broken() == []


def test_a_cancel_that_meets_a_settlement_sees_what_it_did_and_cleans_up_after_it(world: World):
    hotel = Hotel()
    run = booked(world, hotel)
    claim = claimed(run, "pay")

    with gate_at(Boundary.SETTLE_BEFORE_COMMIT) as gate:
        settler = Rival(partial(settle, claim, Done(Goto(("confirm",)), {**run.data, "paid": "p"}))).begin()
        gate.wait()
        canceller = Rival(partial(cancel, run)).begin()
        canceller.wait_until_blocked()

    assert not isinstance(settler.outcome(), BaseException)
    assert isinstance(canceller.outcome(), WorkflowRun)
    assert StepRun.objects.get(run=run, name="confirm").state == StepState.CANCELLED
    world.run_until_idle()
    assert (fresh(run).state, fresh(run).data["paid"]) == (RunState.CANCELLED, "p")
    assert hotel.ran == ["book", "free"]
    assert_chain(fresh(run))


def test_a_reserve_that_meets_the_beginning_of_the_clean_up_sends_nothing(world: World):
    """I2: nothing of the main path is written DISPATCHED once the clean-up has begun."""
    hotel = Hotel()
    run = booked(world, hotel)
    claim = claimed(run, "pay")
    definition = registry.get("stay")
    body = context.RunContext(claim, definition, definition.step("pay"))

    with gate_at(Boundary.CLEANUP_BEFORE_COMMIT) as gate:
        canceller = Rival(partial(cancel, run)).begin()
        gate.wait()
        sender = Rival(partial(body.effect, definition.effects["bank.take"], amount=2)).begin()
        sender.wait_until_blocked()

    assert isinstance(canceller.outcome(), WorkflowRun)
    assert isinstance(sender.outcome(), LeaseLost | RunHalted)
    assert hotel.bank.sends == []
    assert not SideEffect.objects.filter(run=run, effect="bank.take").exists()


def test_two_cancels_at_once_begin_one_clean_up(world: World):
    hotel = Hotel()
    run = booked(world, hotel)

    outcomes = at_once(partial(cancel, run), partial(cancel, run))

    assert all(isinstance(one, WorkflowRun) for one in outcomes)
    assert how_often(run, "free") == 1
    assert RunEvent.objects.filter(run=run, kind="run.cleanup_began").count() == 1
    world.run_until_idle()
    assert state_of(run) is RunState.CANCELLED
    assert hotel.ran == ["book", "free"]


def test_two_tickers_that_find_a_run_quiet_begin_one_clean_up(world: World):
    hotel = Hotel()
    run = booked(world, hotel)
    SideEffect.objects.filter(run=run).update(settles_at=world.clock.now() + timedelta(seconds=5))
    cancel(run)
    assert fresh(run).ending_phase == EndingPhase.SETTLING
    world.clock.advance(seconds=6)

    at_once(*[partial(sweeps.confirm_ends, world.clock.now())] * 2)

    assert how_often(run, "free") == 1
    world.run_until_idle()
    assert state_of(run) is RunState.CANCELLED


def test_a_clean_up_that_ends_in_the_moment_its_time_is_over_is_done_or_was_late_and_nothing_between(world: World):
    hotel = Hotel()
    run = booked(world, hotel)
    cancel(run)
    claim = claimed(run, "free")
    world.clock.advance(hours=1)

    at_once(partial(settle, claim, Done(Succeed(), run.data)), partial(sweeps.end_late_cleanups, world.clock.now()))
    sweeps.end_late_cleanups(world.clock.now())

    ended = fresh(run)
    done = StepRun.objects.get(run=run, name="free").state == StepState.SUCCEEDED
    assert ended.state == RunState.CANCELLED
    assert bool(ended.cleanup_error) is not done
    assert broken() == []
    assert_chain(ended)


def test_two_who_do_a_failed_clean_up_again_begin_it_once(world: World):
    hotel = Hotel()
    run = booked(world, hotel)
    cancel(run)
    world.clock.advance(hours=1)
    sweeps.end_late_cleanups(world.clock.now())
    again = partial(api.redrive, run.pk, reason="x", step="free")

    outcomes = at_once(again, again)

    assert sorted(type(one).__name__ for one in outcomes) == ["TooLate", "WorkflowRun"]
    world.run_until_idle()
    assert hotel.ran == ["book", "free"]
    assert (fresh(run).state, fresh(run).cleanup_error) == (RunState.CANCELLED, "")
