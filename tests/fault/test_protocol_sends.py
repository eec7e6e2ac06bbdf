"""Protocol rules 1, 2, 9 and 12: when a request may leave, and what happens to a worker that is too late for it."""

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from durableflows import EffectCall, NeverSent, Retry, Transient, UnknownOutcome
from durableflows.core import effects
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.errors import LeaseLost, RunHalted
from durableflows.ledger import Stored, Unsettled
from durableflows.models import SideEffect
from durableflows.services import runs
from durableflows.testing import Boundary, World
from tests.support.flows import Provider, act_then_raise, raise_without_acting
from tests.support.play import KEY_WINDOW, SETTLE, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_that_lost_its_lease_before_the_intent_is_written_sends_nothing(world: World):
    """Rule 1, P2; the trace "A checks (PLANNED); freed; A writes DISPATCHED"."""
    played = stage(world)
    slow = played.hand("A").claim().lose_lease()

    with pytest.raises(LeaseLost):
        slow.ask()

    assert played.provider.sends == []
    assert not SideEffect.objects.filter(run_id=played.run_id).exists()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert_sound(played.run_id, played.provider)


def test_a_stale_worker_cannot_write_dispatched_over_its_successor_s_intent(world: World):
    """Rule 1, P2: the lease that counts is the row's, not the state RUNNING."""
    played = stage(world)
    slow = played.hand("A").claim().lose_lease()
    fresh = played.hand("B").claim().reserve()

    with pytest.raises(LeaseLost):
        slow.ask()

    assert played.row().send_count == 1
    fresh.record(fresh.act())
    fresh.settle()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_stale_worker_cannot_settle(world: World):
    """Rule 1, P2; the trace "freed; A settles"."""
    played = stage(world)
    slow = played.hand("A").claim().lose_lease()

    with pytest.raises(LeaseLost):
        slow.settle()
    fresh = played.hand("B").claim()
    with pytest.raises(LeaseLost):
        slow.settle()

    assert played.step().state == StepState.RUNNING
    assert played.step().lease_token == fresh.token
    assert not played.run().steps.filter(name="done").exists()
    assert "receipt_id" not in played.run().data or played.run().data["receipt_id"] is None


def test_a_stale_worker_cannot_settle_over_the_attempt_of_its_successor(world: World):
    """P2: the step is RUNNING, so nothing but the token tells whose attempt it is."""
    played = stage(world)
    slow = played.hand("A").claim().lose_lease()
    fresh = played.hand("B").claim()

    with pytest.raises(LeaseLost):
        slow.settle()

    assert (played.step().state, played.step().lease_token) == (StepState.RUNNING, fresh.token)


def test_a_cancel_between_claim_and_intent_is_seen_by_the_intent(world: World):
    """Rule 1, P6; the trace "A claims; cancel; A writes DISPATCHED", with A's lease taken, and with it left."""
    played = stage(world)
    slow = played.hand("A").claim()
    other = SideEffect.objects.filter(run_id=played.run_id)

    runs.cancel(played.run_id, by=None, reason="no")

    with pytest.raises((LeaseLost, RunHalted)):
        slow.ask()
    assert not other.exists()
    assert state_of(played.run_id) is RunState.CANCELLED
    assert_sound(played.run_id, played.provider)


def test_a_cancel_that_waits_stops_the_next_send_of_a_worker_with_a_lease(world: World):
    """Rules 1 and 10, P6: the cancel cannot be confirmed while an answer is out, and reserve reads it all the same."""
    played = stage(world)
    holder = played.hand("A").claim().reserve()
    runs.cancel(played.run_id, by=None, reason="no")
    holder.fail(NeverSent("refused"))

    with pytest.raises(RunHalted):
        holder.ask()

    assert played.row().send_count == 1
    assert played.provider.sends == []


def test_a_first_send_is_not_begun_after_the_deadline(world: World):
    """P7: the deadline passed while the body worked, and no sweep has been."""
    played = stage(world)
    holder = played.hand("A").claim()
    played.pass_time(days=14)

    with pytest.raises(RunHalted):
        holder.ask()

    assert not SideEffect.objects.exists()


def test_a_send_that_comes_too_late_leaves_nothing_and_is_tried_again(world: World, monkeypatch):
    """Rules 2 and 12; the trace "A writes DISPATCHED, stops; settle time; freed; ABSENT; A sends"."""
    played = stage(world)
    stopped = _stop_after_reserve(monkeypatch, times=1)

    world.run_until_idle()

    assert played.provider.sends == []
    assert played.row().state == EffectState.PLANNED
    assert played.step().state == StepState.RETRY_SCHEDULED
    assert (played.step().attempts, played.step().attempts_forgiven) == (1, 0)
    assert stopped == [1]
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_worker_that_is_late_at_each_try_ends_at_a_person_and_not_in_a_loop(world: World, monkeypatch):
    """Rule 12: each send given up at `send_by` counts as an attempt."""
    played = stage(world)
    _stop_after_reserve(monkeypatch, times=100)

    world.run_through()

    run = played.run()
    assert run.parked_reason == ParkedReason.NEEDS_PERSON
    assert "4 attempts" in run.parked_detail
    assert played.step().attempts == 4
    assert played.provider.sends == []
    assert_sound(played.run_id, played.provider)


def test_a_redirect_after_the_time_is_refused_and_nothing_more_leaves(world: World, monkeypatch):
    """Rule 2: the adapter asks again at each redirect and reconnect, with the same answer."""
    provider = Provider()
    played = stage(world, provider=provider)
    late = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr(effects, "time", late)

    def redirect(call: EffectCall) -> None:
        late.monotonic = lambda: time.monotonic() + 60
        call.check()

    provider.before_call = redirect

    world.run_until_idle()

    assert provider.acts == []
    assert played.row().state == EffectState.PLANNED


def test_the_key_window_is_judged_where_dispatched_is_written(world: World):
    """Rule 9, P5; the trace "A acts; reconciler: READY; window ends; B writes, sends"."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.act()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()
    played.pass_time(60)
    played.sweep()
    assert played.step().state == StepState.READY
    second = played.hand("B").claim()

    played.pass_time(KEY_WINDOW.total_seconds())

    assert second.ask() == Unsettled(EffectState.UNKNOWN, "it may have happened, and may not be sent again")
    assert played.row().send_count == 1
    second.settle_doubtful()
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert played.provider.lookups != []
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def test_a_claim_after_the_key_window_sends_the_step_to_reconciliation(world: World):
    """Rules 9 and 10: a READY step in doubt that may not be sent is looked at, not worked on."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()
    played.pass_time(60)
    played.sweep()

    played.pass_time(KEY_WINDOW.total_seconds())

    assert not played.hand("B").may_claim()
    assert played.step().state == StepState.NEEDS_RECONCILIATION


@pytest.mark.parametrize(("seconds_before_margin", "is_sent"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_our_window_ends_a_settle_time_before_the_provider_s(world: World, seconds_before_margin: float, is_sent: bool):
    """Rule 9, P5; the trace "A acts; B sends in time; provider forgets; B's request arrives"."""
    played = stage(world, retry=Retry(attempts=4, base_seconds=2, cap_seconds=60))
    first = played.hand("A").claim().reserve()
    first.fail(UnknownOutcome("read timed out"))
    first.settle_doubtful()
    played.pass_time(60)
    played.sweep()
    second = played.hand("B").claim()
    started = played.row().first_dispatched_at
    assert started is not None

    world.clock.move_to(started + KEY_WINDOW - timedelta(seconds=SETTLE + seconds_before_margin))

    assert isinstance(second.ask(), Unsettled) is not is_sent


def test_the_key_window_counts_from_the_first_send_however_often_it_was_sent_again(world: World):
    """Rule 9, P5: the provider keeps a key from when it first saw it."""
    played = stage(world)
    played.hand("A").claim().reserve().lose_lease()
    played.pass_time(hours=12)
    played.sweep()
    played.hand("B").claim().reserve().lose_lease()
    played.sweep()
    assert played.step().state == StepState.READY

    played.pass_time(hours=12)

    assert not played.hand("C").may_claim()
    assert played.row().send_count == 2


def test_a_receipt_that_is_stored_is_given_back_and_nothing_is_sent(world: World):
    """S2.22: Rule 1, P4: a body that runs again gets its receipt."""
    played = stage(world)
    first = played.hand("A").claim().reserve()
    first.record(first.act())
    first.lose_lease()

    answer = played.hand("B").claim().ask()

    assert answer == Stored({"id": "pay_1", "status": "done"})
    assert len(played.provider.sends) == 1


@pytest.mark.parametrize("error", [NeverSent("refused"), Transient("429")])
def test_what_was_checked_before_is_checked_again_while_nothing_was_sent(world: World, error: Exception):
    """P9: a try that is known to have done nothing is no first send; the facts may have changed meanwhile."""
    verdicts = iter([True, "it was sold meanwhile"])
    provider = Provider(faults=[raise_without_acting(error)])
    played = stage(world, provider=provider, recheck=lambda run: next(verdicts))

    world.run_through()

    assert len(provider.sends) == 1
    assert provider.acts == []
    assert played.run().steps.filter(name="turned_down", state=StepState.SUCCEEDED).exists()
    assert_sound(played.run_id, provider)


def test_what_was_checked_before_is_not_checked_against_our_own_doubtful_send(world: World):
    """P9: after a send that may have acted, the recheck would see what we did ourselves."""
    verdicts = iter([True, "it was refunded already"])
    provider = Provider(faults=[act_then_raise(UnknownOutcome("read timed out"))])
    played = stage(world, provider=provider, recheck=lambda run: next(verdicts))

    world.run_through()

    assert len(provider.acts) == 1
    assert played.run().steps.filter(name="done", state=StepState.SUCCEEDED).exists()
    assert_sound(played.run_id, provider)


def _stop_after_reserve(monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """Stop the worker for a minute of its own clock between the stored intent and the first byte."""
    stops: list[int] = []
    real = time.monotonic
    clock = SimpleNamespace(monotonic=real)
    monkeypatch.setattr(effects, "time", clock)

    def hook(crossed: Boundary) -> None:
        if crossed is Boundary.EFFECT_AFTER_RESERVE and len(stops) < times:
            stops.append(1)
            clock.monotonic = lambda: real() + 60
        elif crossed is Boundary.EFFECT_AFTER_ANSWER:
            clock.monotonic = real

    monkeypatch.setattr("durableflows.boundaries._hook", hook)
    return stops
