"""Protocol rules 11 and 14, P1, P10: lost messages; workers that die, hang or look dead; poisonous steps."""

from datetime import timedelta
from itertools import cycle
from uuid import UUID

import pytest

from durableflows import dispatch, leases
from durableflows.conf import settings
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.errors import LeaseLost
from durableflows.models import StepAttempt, Worker
from durableflows.services import reconcile, sweeps
from durableflows.testing import Boundary, Crash, World, crash_at, next_due
from tests.support.play import Stage, assert_sound, stage, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def messages_of(played: Stage) -> int:
    return sum(1 for name, _ in played.world.messages if name == "pay.pay")


def look_until_sent(played: Stage, *, every: float, just_before: float) -> None:
    """Let a ticker look just before each multiple of `every` seconds, and at it, until it sends.

    What is due at any other moment is sent by a look just before, and gives itself away by the odd length of its pause.
    """
    for pause in cycle((every - just_before, just_before)):
        played.pass_time(pause)
        played.sweep()
        if messages_of(played):
            return


# Rule 11


def test_a_ready_step_whose_message_was_lost_is_sent_again_with_backoff(world: World):
    """Rule 11, P1; "sent is not delivered": READY, marked sent, message lost."""
    played = stage(world)
    pauses: list[float] = []
    before = world.clock.now()

    for _ in range(9):
        world.lose_messages()
        look_until_sent(played, every=15, just_before=1)
        pauses.append((world.clock.now() - before).total_seconds())
        before = world.clock.now()

    assert pauses == [15, 30, 60, 120, 240, 480, 600, 600, 600]
    world.run_through()
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert_sound(played.run_id, played.provider)


def test_a_lost_message_is_sent_again_at_once_when_the_broker_is_empty(world: World, monkeypatch):
    """Rule 11, R02: the broker itself says that it has lost them."""
    played = stage(world)
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: 0)

    played.pass_time(dispatch.UNCLAIMED_SECONDS + 0.5)
    played.sweep()

    assert messages_of(played) == 1


def test_a_broker_that_loses_its_messages_again_and_again_is_given_them_within_a_minute_each_time(
    world: World, monkeypatch
):
    """R02, P1: there is no number of losses after which a step stands still."""
    played = stage(world)
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: 0)
    pauses: list[float] = []

    for _ in range(9):
        before = world.clock.now()
        world.lose_messages()
        look_until_sent(played, every=3, just_before=0.5)
        pauses.append((world.clock.now() - before).total_seconds())

    assert pauses == [3, 6, 12, 24, 48, 60, 60, 60, 60]


def test_a_message_that_waits_in_the_queue_is_not_sent_again_at_once(world: World, monkeypatch):
    """Rule 11: a busy fleet must not be buried under copies."""
    played = stage(world)
    monkeypatch.setattr(dispatch, "queued_messages", lambda queue: 7)

    played.pass_time(dispatch.UNCLAIMED_SECONDS + 0.5)
    played.sweep()

    assert messages_of(played) == 0


def test_a_message_that_comes_twice_or_too_late_does_nothing(world: World):
    """S2.18, P1: any message, any number of times, in any state."""
    played = stage(world)
    message = ("pay.pay", (str(played.run_id), str(played.step().pk)))
    holder = played.hand("A").claim().reserve()

    world.deliver(*message)
    holder.record(holder.act())
    world.deliver(*message)
    holder.settle()
    world.deliver(*message)
    world.run_through()
    world.deliver(*message)

    assert len(played.provider.sends) == 1
    assert played.step().attempts == 1
    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert_sound(played.run_id, played.provider)


# Leases that end without their worker


def test_a_message_that_comes_before_its_step_is_due_does_nothing(world: World):
    """P1: the same request is asked again, but not before the backoff is over; whoever looks early makes it READY."""
    played = stage(world)
    played.hand("A").claim().reserve().settle_doubtful()
    reconcile.route(played.step().pk)
    assert played.step().state == StepState.READY

    assert not played.hand("early").may_claim()

    played.pass_time(61)
    assert played.hand("in time").may_claim()


def test_a_lease_past_its_time_is_void_whatever_the_heartbeat_says(world: World):
    """Design, section 4: the worker beats, and the step hangs."""
    played = stage(world)
    _heard_of(leases.boot_id(), world, seconds_ago=0)
    slow = played.hand("A").claim().reserve()
    slow.act()

    played.pass_time(60 + settings().LEASE_MARGIN_SECONDS - 1)
    sweeps.free_overdue(world.clock.now())
    assert played.step().state == StepState.RUNNING
    played.pass_time(2)
    _heard_of(leases.boot_id(), world, seconds_ago=0)
    sweeps.free_overdue(world.clock.now())

    assert played.step().state == StepState.NEEDS_RECONCILIATION
    assert played.row().state == EffectState.UNKNOWN
    attempt = StepAttempt.objects.get(step=played.step(), number=1)
    assert (attempt.outcome, attempt.ended_at is None) == ("lost", False)
    with pytest.raises(LeaseLost):
        slow.settle()
    world.run_through()
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_only_a_stale_worker_s_leases_are_freed(world: World):
    """Rule 14: a worker that is heard of is treated as alive; one that never registered is judged by its time alone."""
    played = stage(world)
    played.hand("A").claim()
    worker = played.step().lease_worker

    sweeps.free_stale_workers(world.clock.now())
    assert played.step().state == StepState.RUNNING
    _heard_of(worker, world, seconds_ago=settings().STALE_SECONDS - 1)
    sweeps.free_stale_workers(world.clock.now())
    assert played.step().state == StepState.RUNNING
    _heard_of(worker, world, seconds_ago=settings().STALE_SECONDS + 1)
    sweeps.free_stale_workers(world.clock.now())

    assert played.step().state == StepState.READY
    assert played.step().lost_workers == 1


def test_an_orphan_that_works_on_after_its_lease_was_freed_is_recorded_and_fenced(world: World):
    """Rule 14: safety does not rest on the orphan being dead."""
    played = stage(world)
    orphan = played.hand("A").claim().reserve()
    _heard_of(played.step().lease_worker, world, seconds_ago=settings().STALE_SECONDS + 1)
    sweeps.free_stale_workers(world.clock.now())
    assert played.row().state == EffectState.UNKNOWN

    orphan.record(orphan.act())
    with pytest.raises(LeaseLost):
        orphan.settle()
    world.run_through()

    assert state_of(played.run_id) is RunState.SUCCEEDED
    assert len(played.provider.acts) == 1
    assert_sound(played.run_id, played.provider)


def test_a_child_s_death_frees_only_the_lease_of_its_own_task(world: World, monkeypatch):
    """Rule 14: between the sweep's look and its lock the step has gone to another worker, which is alive."""
    played = stage(world)
    played.hand("A").claim()
    fresh = played.hand("B")
    real = sweeps._free

    def slowly(*arguments):
        monkeypatch.setattr(sweeps, "_free", real)
        assert sweeps.free_lost_tasks(["A"]) == 1
        fresh.claim()
        return real(*arguments)

    monkeypatch.setattr(sweeps, "_free", slowly)
    sweeps.free_lost_tasks(["A"])

    assert played.step().state == StepState.RUNNING
    assert played.step().lease_token == fresh.token


def test_the_start_of_a_lost_worker_is_not_held_against_the_step_s_retries(world: World):
    """R05."""
    played = stage(world)

    for name in ("A", "B"):
        played.hand(name).claim().lose_lease()

    step = played.step()
    assert (step.attempts, step.attempts_forgiven, step.lost_workers) == (2, 2, 2)
    assert step.state == StepState.READY


# Poison


def test_a_step_that_kills_its_worker_three_times_is_parked(world: World):
    """Design, section 4; R05: "killed its worker 3 times", and a person is told."""
    played = stage(world)

    for name in ("A", "B", "C"):
        played.hand(name).claim().lose_lease()

    run = played.run()
    assert run.state == RunState.PARKED
    assert run.parked_reason == ParkedReason.NEEDS_PERSON
    assert run.parked_detail == "pay killed its worker 3 times"
    assert not played.hand("D").may_claim()
    assert_sound(played.run_id, played.provider)


def test_a_step_that_kills_its_worker_after_each_send_does_not_go_on_for_ever(world: World):
    """R05, P10: each loss leaves doubt, which a provider with keys would let us settle by sending again."""
    played = stage(world, lookup=False)

    with crash_at(Boundary.EFFECT_AFTER_ANSWER, times=1000):
        deaths = _die_until_quiet(played)

    assert deaths <= 4
    assert len(played.provider.acts) == 1
    assert played.run().alert or played.run().parked_reason
    assert_sound(played.run_id, played.provider)


def test_a_step_that_kills_its_worker_after_each_receipt_is_parked_with_its_receipt(world: World):
    """R05, P4: the effect is confirmed, what comes after it is poison."""
    played = stage(world)

    with crash_at(Boundary.SETTLE_BEFORE_COMMIT, times=1000):
        deaths = _die_until_quiet(played)

    assert deaths == 3
    assert played.run().parked_detail == "pay killed its worker 3 times"
    assert len(played.provider.sends) == 1
    assert_sound(played.run_id, played.provider)


def _die_until_quiet(played: Stage) -> int:
    """Workers come, die, and are found dead, until nothing is due any more."""
    deaths = 0
    for _ in range(60):
        try:
            played.world.run_until_idle()
        except Crash:
            deaths += 1
            played.world.lose_messages()
            step = played.step()
            assert step.must_end_by is not None
            played.world.clock.move_to(step.must_end_by + timedelta(seconds=1))
            continue
        due = next_due()
        if due is None:
            return deaths
        played.world.clock.move_to(due)
    raise AssertionError(f"still busy after {deaths} deaths")


def _heard_of(boot_id: UUID | None, world: World, *, seconds_ago: float) -> None:
    assert boot_id is not None
    beat = world.clock.now() - timedelta(seconds=seconds_ago)
    values = {"name": "w", "host": "h", "pid": 1, "started_at": beat, "heartbeat_at": beat}
    Worker.objects.update_or_create(boot_id=boot_id, defaults=values)
