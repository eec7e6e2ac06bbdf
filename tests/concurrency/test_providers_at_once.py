"""Many processes before one provider: one probe, no place and no turn twice, and no lock in the wrong order (R12)."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableflows import EffectCall, api, clock, provider_state, runner
from durableflows.boundaries import Boundary
from durableflows.core.breaker import BreakerState
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import Breaker, BreakerChange, EffectSend, SideEffect, StepRun
from durableflows.testing import World
from tests.integration.test_limits_of_providers import in_turns
from tests.support.flows import Provider
from tests.support.payers import DOWN, NAME, breaker, held, limits, ready_to_pay, start_many, states
from tests.support.rivals import Gate, Rival, at_once, gate_at
from tests.support.workers import wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

MANY = 20


def working(step: StepRun) -> Callable[[], bool]:
    return lambda: runner.run_step(step.run_id, step.pk, task_id=str(step.pk))


def fail_as_one(provider: Provider, count: int) -> None:
    """Every call waits until all are there, then all fail."""
    together = threading.Barrier(count)

    def fail(call: EffectCall) -> None:
        together.wait(20)
        DOWN(provider, call, 0)

    provider.before_call = fail


def assert_nothing_broken() -> None:
    assert not [one for one in examine() if one.severity is Severity.BROKEN]


def open_breaker(world: World) -> None:
    """A provider that has been left alone, and whose cool-down is over."""
    past = world.clock.now() - timedelta(seconds=1)
    Breaker.objects.create(provider=NAME, state="open", failures=5, changed_at=past, opened_at=past, open_until=past)


def test_of_twenty_at_once_one_is_the_probe_and_the_others_wait_without_an_attempt(world: World):
    """R12: exactly one probe, across all connections."""
    provider, inside = Provider(), Gate()
    steps = ready_to_pay(world, start_many(provider, MANY))
    open_breaker(world)
    provider.before_call = lambda call: inside.pass_through()
    together = threading.Barrier(MANY)
    rivals = [Rival(working(step), together=together) for step in steps]
    for rival in rivals:
        rival.start()

    inside.wait()
    done = lambda: sum(not rival.is_alive() for rival in rivals) == MANY - 1  # noqa: E731
    wait_for(done, seconds=20, what="the others to end while the probe is out: nobody waits for it under a lock")
    assert len(provider.sends) == 1
    assert (breaker().state, len(held())) == ("half-open", MANY - 1)
    assert all(step.attempts - step.attempts_forgiven == 0 for step in held())
    inside.open()
    for rival in rivals:
        rival.outcome()

    assert breaker().state == "closed", "its success closes the breaker for all"
    assert EffectSend.objects.filter(is_probe=True).count() == 1
    world.run_until_idle(limit=500)
    assert states([step.run_id for step in steps]) == {RunState.SUCCEEDED}
    assert len(provider.acts) == MANY
    assert_nothing_broken()


def test_failures_that_come_at_once_open_the_breaker_once(world: World):
    """The second of two that fail together sees the first one: the row is locked before it is counted."""
    provider = Provider()
    steps = ready_to_pay(world, start_many(provider, 5))
    fail_as_one(provider, 5)

    at_once(*[working(step) for step in steps])

    assert (breaker().state, BreakerChange.objects.count()) == ("open", 1)
    assert_nothing_broken()


def test_ten_at_once_take_three_places(world: World):
    provider, inside = Provider(), Gate()
    steps = ready_to_pay(world, start_many(provider, 10))
    provider.before_call = lambda call: inside.pass_through()

    with limits(at_once=3):
        rivals = [Rival(working(step)).begin() for step in steps]
        wait_for(lambda: len(held()) == 7, seconds=20, what="seven to be put off")
        wait_for(lambda: len(provider.sends) == 3, seconds=20, what="three to be under way")
        inside.open()
        for rival in rivals:
            rival.outcome()
        provider.before_call = None
        world.run_until_idle(limit=500)

    assert states([step.run_id for step in steps]) == {RunState.SUCCEEDED}
    assert_nothing_broken()


def test_ten_at_once_take_what_a_second_gives(world: World):
    provider = Provider()
    steps = ready_to_pay(world, start_many(provider, 10))

    with limits(per_second=4):
        at_once(*[working(step) for step in steps])

        assert (len(provider.sends), len(held())) == (4, 6)


def test_of_two_about_the_same_thing_one_waits(world: World):
    provider, inside = Provider(), Gate()
    steps = ready_to_pay(world, start_many(provider, 3, in_turns(provider)))
    provider.before_call = lambda call: inside.pass_through()

    first = Rival(working(steps[0])).begin()
    inside.wait()
    provider.before_call = None
    runner.run_step(steps[2].run_id, steps[2].pk, task_id="C")

    assert [step.held_for for step in held()] == ["turn"]
    inside.open()
    first.outcome()
    world.run_until_idle()
    assert states([step.run_id for step in steps[::2]]) == {RunState.SUCCEEDED}


def test_both_at_the_same_instant_and_one_waits(world: World):
    """Without the provider's lock each would see that nobody is under way."""
    provider, inside = Provider(), Gate()
    steps = ready_to_pay(world, start_many(provider, 3, in_turns(provider)))[::2]
    provider.before_call = lambda call: inside.pass_through()
    together = threading.Barrier(2)
    rivals = [Rival(working(step), together=together) for step in steps]
    for rival in rivals:
        rival.start()
    inside.wait()
    wait_for(held, seconds=20, what="the other one to be put off")

    assert (len(provider.sends), len(held())) == (1, 1)
    inside.open()
    for rival in rivals:
        rival.outcome()


def test_the_provider_s_lock_is_the_last_and_is_held_for_no_call(world: World):
    """P11: who is at the provider holds no lock; who takes the next place waits for a commit only."""
    provider, inside = Provider(), Gate()
    steps = ready_to_pay(world, start_many(provider, 2))
    provider.before_call = lambda call: inside.pass_through()
    with limits(at_once=2):
        first = Rival(working(steps[0])).begin()
        inside.wait()
        provider.before_call = None

        runner.run_step(steps[1].run_id, steps[1].pk, task_id="B")

        assert StepRun.objects.get(pk=steps[1].pk).state == StepState.SUCCEEDED
        inside.open()
        first.outcome()


def test_a_pause_that_commits_while_a_send_is_at_the_gate_is_seen_or_waits_for_it(world: World):
    """What had its intent stored before the pause leaves; nothing after it does."""
    provider = Provider()
    steps = ready_to_pay(world, start_many(provider, 2))

    with gate_at(Boundary.EFFECT_BEFORE_RESERVE) as gate:
        late = Rival(working(steps[0])).begin()
        gate.wait()
        api.pause_provider(NAME, reason="quiet")
        gate.open()
        late.outcome()

    assert (provider.sends, len(held())) == ([], 1)
    assert not SideEffect.objects.exists()


def test_two_processes_make_the_provider_s_row_at_once(world: World):
    provider = Provider()
    steps = ready_to_pay(world, start_many(provider, 6))

    with limits(at_once=50):
        results = at_once(*[working(step) for step in steps])

    assert results == [True] * 6
    assert Breaker.objects.get().pk == NAME
    assert provider_state.read(NAME).state == "closed"


def test_the_breaker_comes_with_the_time_by_one_round_trip():
    """What protection costs where nothing is declared: nothing of its own."""
    past = clock.now()
    Breaker.objects.create(provider=NAME, state="paused", changed_at=past, opened_at=past, reason="quiet")

    with CaptureQueriesContext(connection) as asked:
        now, known = provider_state.look(NAME)
        later, unknown = provider_state.look("another")

    assert len(asked) == 2
    assert past <= now <= later
    assert (known.state, known.changed_at, known.reason) == (BreakerState.PAUSED, past, "quiet")
    assert unknown.state is BreakerState.CLOSED
