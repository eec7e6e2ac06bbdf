"""A cancel against a worker, in either order: sound rows, and no send after the confirmed cancel (P6)."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from durableflows import EffectCall, api, claims, clock, journal, runner
from durableflows.boundaries import Boundary
from durableflows.core.directives import Succeed
from durableflows.core.outcomes import Done
from durableflows.core.states import EFFECT_OPEN, EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow
from tests.support.play import assert_acts_once, stage
from tests.support.rivals import Gate, Rival, at_once, gate_at

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def to_pay(world: World, provider: Provider) -> StepRun:
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.deliver(*world.messages.popleft())
    world.lose_messages()
    return StepRun.objects.get(run=run, name="pay")


def working(step: StepRun, name: str = "A") -> Callable[[], bool]:
    return lambda: runner.run_step(step.run_id, step.pk, task_id=name)


def broken() -> list[str]:
    return [f"{found.code}: {found.text}" for found in examine() if found.severity is Severity.BROKEN]


def sends_after_confirmed_cancel(run_id: UUID) -> int:
    ended = RunEvent.objects.filter(run=run_id, kind="run.ended").first()
    if ended is None:
        return 0
    return RunEvent.objects.filter(run=run_id, kind="effect.dispatched", sequence__gt=ended.sequence).count()


@pytest.mark.parametrize("first", ["settle", "cancel"])
def test_settle_against_cancel(world: World, first: str):
    """R34, P6, P15: whoever comes second waits for the lock and takes the other's commit as it is."""
    provider = Provider()
    step = to_pay(world, provider)
    boundary = Boundary.SETTLE_BEFORE_COMMIT if first == "settle" else Boundary.CANCEL_BEFORE_COMMIT

    with gate_at(boundary) as held, gate_inside(provider) as inside:
        worker = Rival(working(step)).begin()
        inside.wait()
        cancel = Rival(partial(api.cancel, step.run_id, reason="stop"))
        if first == "settle":
            inside.open()
            held.wait()
            cancel.begin().wait_until_blocked()
        else:
            cancel.begin()
            held.wait()
            inside.open()
            worker.wait_until_blocked()
        held.open()
        assert isinstance(cancel.outcome(), WorkflowRun)
        worker.outcome()
    world.run_through()

    assert WorkflowRun.objects.get().state == RunState.CANCELLED
    assert not StepRun.objects.filter(name="done", attempts__gt=0).exists()
    assert SideEffect.objects.get().state == EffectState.CONFIRMED
    assert len(provider.sends) == 1
    assert broken() == []


@contextmanager
def gate_inside(provider: Provider) -> Iterator[Gate]:
    """Hold the worker inside the provider's call."""
    gate = Gate()

    def hang(call: EffectCall) -> None:
        gate.pass_through()

    provider.before_call = hang
    try:
        yield gate
    finally:
        gate.open()


@contextmanager
def gate_in_reserve() -> Iterator[Gate]:
    """Hold the worker inside the transaction of `reserve`, after its checks and with its locks."""
    gate, real = Gate(), journal.record

    def record(run: WorkflowRun, kind: str, **facts: Any) -> RunEvent:
        if kind == "effect.dispatched":
            gate.pass_through()
        return real(run, kind, **facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "record", record)
        try:
            yield gate
        finally:
            gate.open()


@pytest.mark.parametrize("first", ["reserve", "cancel"])
def test_reserve_against_cancel(world: World, first: str):
    """P6, protocol rule 10: either the intent is there and the cancel waits for its answer, or nothing is sent."""
    provider = Provider()
    step = to_pay(world, provider)
    if first == "reserve":
        with gate_in_reserve() as go_on:
            worker = Rival(working(step)).begin()
            go_on.wait()
            cancel = Rival(partial(api.cancel, step.run_id, reason="stop")).begin()
            cancel.wait_until_blocked()
            go_on.open()
            cancelled = cancel.outcome()
            worker.outcome()
    else:
        with gate_at(Boundary.EFFECT_BEFORE_RESERVE) as gate:
            worker = Rival(working(step)).begin()
            gate.wait()
            cancelled = Rival(partial(api.cancel, step.run_id, reason="stop")).begin().outcome()
            gate.open()
            worker.outcome()
    assert isinstance(cancelled, WorkflowRun)
    world.run_through()

    run = WorkflowRun.objects.get()
    assert run.state == RunState.CANCELLED
    assert len(provider.sends) == (1 if first == "reserve" else 0)
    assert sends_after_confirmed_cancel(run.pk) == 0
    assert not SideEffect.objects.filter(state__in=[str(state) for state in EFFECT_OPEN]).exists()
    assert broken() == []


def test_a_worker_and_a_cancel_let_go_at_the_same_instant(world: World):
    """P6: thirty rounds without a script; in whichever order, no send after the confirmed cancel."""
    provider = Provider()
    pay_workflow(provider)
    for _ in range(30):
        run = api.start("pay", {"amount": 5})
        world.deliver(*world.messages.popleft())
        world.lose_messages()
        step = StepRun.objects.get(run=run, name="pay")

        at_once(working(step), partial(api.cancel, run.pk, reason="stop"), partial(sweeps.confirm_ends, clock.now()))

        world.run_through()
        run.refresh_from_db()
        assert run.state == RunState.CANCELLED
        assert sends_after_confirmed_cancel(run.pk) == 0
    assert broken() == []
    assert_acts_once(provider)


def test_a_last_step_that_ends_after_the_cancel_does_not_make_it_a_success(world: World):
    """R34, P6: the cancel waits for a request that may still be on its way, while the last step is at work."""
    played = stage(world)
    played.hand("A").claim().reserve().lose_lease()
    world.clock.advance(5)
    played.sweep()
    second = played.hand("B").claim().reserve()
    second.record(second.act())
    second.settle()
    done = played.step("done")
    last = claims.claim(done.run_id, done.pk, task_id="C", pid=1)
    assert last is not None

    assert api.cancel(played.run_id, reason="stop").state == RunState.ENDING
    claims.settle(last.lease, Done(Succeed(), last.data), rng=random.Random(0))

    assert WorkflowRun.objects.get().state == RunState.ENDING
    world.run_through()
    assert WorkflowRun.objects.get().state == RunState.CANCELLED
    assert broken() == []


def test_a_ready_step_of_a_run_that_waits_to_end_does_not_stop_the_clock(world: World):
    """Protocol, rules 3 and 10: a late receipt settles the effect, its request's time has yet to pass, and the step is
    due in vain. `run_through` goes on to what comes next."""
    played = stage(world)
    slow = played.hand("A").claim().reserve().lose_lease()
    world.clock.advance(5)
    played.sweep()
    assert played.step().state == StepState.READY
    slow.record(slow.act())
    world.clock.advance(5)

    assert api.cancel(played.run_id, reason="stop").state == RunState.ENDING
    world.run_through()

    assert played.run().state == RunState.CANCELLED
    assert len(played.provider.sends) == 1
    assert broken() == []
