"""A worker that is paused past its lease wakes up to find that it may do nothing more (R06)."""

import time
from collections.abc import Callable

import pytest

from durableflows import api, claims, context, ledger, runner
from durableflows.boundaries import Boundary
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.errors import LeaseLost
from durableflows.models import EffectSend, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import Provider, pay_effect, pay_workflow
from tests.support.rivals import Gate, Rival, gate_at

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def to_pay(world: World, provider: Provider, **options: object) -> StepRun:
    """Start a run whose `pay` step is READY, its message not delivered."""
    run = api.start(pay_workflow(provider, **options), {"amount": 5})  # type: ignore[arg-type]
    world.deliver(*world.messages.popleft())
    world.lose_messages()
    return StepRun.objects.get(run=run, name="pay")


def working(step: StepRun, name: str) -> Callable[[], bool]:
    return lambda: runner.run_step(step.run_id, step.pk, task_id=name)


def assert_nothing_broken(run_id: object) -> None:
    assert not [found for found in examine() if found.severity is Severity.BROKEN], run_id


def test_a_worker_that_is_paused_before_the_call_makes_none(world: World):
    """R06, first half: B has taken over and finished; A checks its lease right before it would send."""
    provider = Provider()
    step = to_pay(world, provider)

    with gate_at(Boundary.EFFECT_BEFORE_RESERVE) as gate:
        paused = Rival(working(step, "A")).begin()
        gate.wait()
        world.clock.advance(minutes=2)
        assert sweeps.free_overdue(world.clock.now()) == 1
        world.run_until_idle()
        assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
        before = list(RunEvent.objects.order_by("sequence").values_list("digest", flat=True))
        gate.open()
        paused.outcome()

    assert len(provider.sends) == len(provider.acts) == 1
    assert EffectSend.objects.count() == 1
    assert list(RunEvent.objects.order_by("sequence").values_list("digest", flat=True)) == before
    assert_nothing_broken(step.run_id)


def test_a_worker_that_is_paused_before_the_call_while_its_successor_still_works(world: World):
    """R06: the step is RUNNING again, by somebody else; the state alone would let A through."""
    provider = Provider()
    step = to_pay(world, provider)
    inside = Gate()
    provider.before_call = lambda call: inside.pass_through()

    with gate_at(Boundary.EFFECT_BEFORE_RESERVE) as gate:
        paused = Rival(working(step, "A")).begin()
        gate.wait()
        assert sweeps.free_lost_tasks(["A"]) == 1
        successor = Rival(working(step, "B")).begin()
        inside.wait()
        gate.open()
        paused.outcome()
        assert len(provider.sends) == 1
        step.refresh_from_db()
        assert (step.state, step.lease_task_id) == (StepState.RUNNING, "B"), "A wrote a step that is B's"
        inside.open()
        successor.outcome()
    world.run_until_idle()

    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
    assert len(provider.sends) == len(provider.acts) == 1
    assert_nothing_broken(step.run_id)


def test_a_worker_that_is_paused_between_intent_and_call_is_too_late_to_send(world: World, monkeypatch):
    """R06, protocol rule 2: its intent is stored, so B takes it for doubt; A's own clock keeps it from sending."""
    provider = Provider(keyed=False)
    effect = pay_effect(provider, key_window=None, with_lookup=False)
    step = to_pay(world, provider, pay_it=effect)

    monkeypatch.setattr(context, "SEND_BY_SECONDS", 0.05)
    with gate_at(Boundary.EFFECT_AFTER_RESERVE) as gate:
        paused = Rival(working(step, "A")).begin()
        gate.wait()
        assert sweeps.free_lost_tasks(["A"]) == 1
        assert SideEffect.objects.get().state == EffectState.UNKNOWN
        assert working(step, "B")() is False
        time.sleep(0.1)  # `send_by` is measured by a clock that no test can move
        gate.open()
        paused.outcome()

    assert provider.sends == []
    row = SideEffect.objects.get()
    assert row.state == EffectState.UNKNOWN, "a fenced worker's 'not sent' is kept on its send, and decides nothing"
    assert EffectSend.objects.get().outcome
    assert_nothing_broken(step.run_id)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_worker_that_is_paused_inside_the_call_brings_its_receipt_and_writes_nothing_else(world: World, keyed: bool):
    """R06, second half: B treats the intent as an unclear outcome; A's state write is refused, its receipt is kept."""
    provider = Provider(keyed=keyed)
    options = {} if keyed else {"pay_it": pay_effect(provider, key_window=None, with_lookup=False)}
    step = to_pay(world, provider, **options)
    inside = Gate()
    provider.before_call = lambda call: inside.pass_through() if len(provider.sends) == 1 else None

    paused = Rival(working(step, "A")).begin()
    inside.wait()
    assert sweeps.free_lost_tasks(["A"]) == 1
    step.refresh_from_db()
    assert step.state == StepState.NEEDS_RECONCILIATION
    assert SideEffect.objects.get().state == EffectState.UNKNOWN
    assert working(step, "B")() is False, "nobody simply calls again"
    version = WorkflowRun.objects.get().checkpoint_sequence
    inside.open()
    paused.outcome()

    assert len(provider.sends) == 1
    row = SideEffect.objects.get()
    assert (row.state, row.receipt) == (EffectState.CONFIRMED, {"id": "pay_1", "status": "done"})
    step.refresh_from_db()
    assert step.state == StepState.NEEDS_RECONCILIATION, "A settled a step that was not its own any more"
    assert WorkflowRun.objects.get().checkpoint_sequence == version
    world.run_through()
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
    assert len(provider.sends) == len(provider.acts) == 1
    assert_nothing_broken(step.run_id)


def test_a_worker_that_waits_for_the_lock_of_whoever_frees_its_lease_is_refused(world: World, monkeypatch):
    """R06, P2: the lease is looked at after the lock, not before it."""
    provider = Provider()
    step = to_pay(world, provider)
    free = claims.free_locked
    meanwhile: list[Rival] = []

    def slowly(*arguments: object) -> None:
        gate.open()
        meanwhile[0].wait_until_blocked()
        free(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("durableflows.services.sweeps.free_locked", slowly)
    refused: list[BaseException] = []
    reserve = ledger.reserve

    def watched(*arguments: object, **named: object) -> object:
        try:
            return reserve(*arguments, **named)  # type: ignore[arg-type]
        except LeaseLost as lost:
            refused.append(lost)
            raise

    monkeypatch.setattr(ledger, "reserve", watched)
    with gate_at(Boundary.EFFECT_BEFORE_RESERVE) as gate:
        meanwhile.append(Rival(working(step, "A")).begin())
        gate.wait()
        assert sweeps.free_lost_tasks(["A"]) == 1
        meanwhile[0].outcome()

    assert len(refused) == 1
    assert provider.sends == []
    assert not SideEffect.objects.exists()


def test_a_settlement_that_waits_for_the_lock_of_whoever_frees_its_lease_is_refused(world: World, monkeypatch):
    """R06, P2: either order of "settle" and "free" is sound; here the sweep was first."""
    provider = Provider()
    step = to_pay(world, provider)
    free = claims.free_locked
    meanwhile: list[Rival] = []

    def slowly(*arguments: object) -> None:
        gate.open()
        meanwhile[0].wait_until_blocked()
        free(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("durableflows.services.sweeps.free_locked", slowly)
    with gate_at(Boundary.EFFECT_AFTER_RECEIPT) as gate:
        meanwhile.append(Rival(working(step, "A")).begin())
        gate.wait()
        assert sweeps.free_lost_tasks(["A"]) == 1
        meanwhile[0].outcome()

    step.refresh_from_db()
    assert (step.state, step.lost_workers) == (StepState.READY, 1)
    assert not StepRun.objects.filter(name="done").exists()
    world.run_until_idle()
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED
    assert len(provider.sends) == 1


def test_a_sweep_that_meets_a_settlement_leaves_it_alone(world: World):
    """R06: the other order; the sweep does not wait for the run's lock, and looks again later."""
    provider = Provider()
    step = to_pay(world, provider)

    with gate_at(Boundary.SETTLE_BEFORE_COMMIT) as gate:
        settling = Rival(working(step, "A")).begin()
        gate.wait()
        assert sweeps.free_lost_tasks(["A"]) == 0
        gate.open()
        settling.outcome()
    assert sweeps.free_lost_tasks(["A"]) == 0

    step.refresh_from_db()
    assert (step.state, step.lost_workers) == (StepState.SUCCEEDED, 0)
