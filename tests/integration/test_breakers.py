"""A provider that fails is left alone, and tried by one request at a time (S3.12, R12)."""

from datetime import timedelta
from uuid import UUID

import pytest

from durableflows import NeverSent, Permanent, Retry, Transient, UnknownOutcome, api
from durableflows.core.states import RunState
from durableflows.doctor import Severity
from durableflows.models import BreakerChange, EffectSend, RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.services import providers as service
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.flows import Fault, Provider, act_then_raise, pay_effect, raise_without_acting
from tests.support.payers import (
    DOWN,
    NAME,
    breaker,
    codes,
    found,
    held,
    limits,
    pay_of,
    ready_to_pay,
    start_many,
    states,
)

pytestmark = pytest.mark.django_db(transaction=True)

TRIES = Retry(attempts=4, base_seconds=2, cap_seconds=60)


def trip(world: World, provider: Provider, count: int = 5) -> list[UUID]:
    """Runs whose first sends fail one after the other."""
    provider.faults += [DOWN] * count
    runs = start_many(provider, count + 3)
    world.run_until_idle()
    return runs


def test_five_failures_in_a_row_and_nothing_more_is_sent(world: World):
    provider = Provider()

    runs = trip(world, provider)

    assert breaker().state == "open"
    assert len(provider.sends) == 5
    assert len(held()) == 3, "those that came after the trip wait"
    assert states(runs) == {RunState.RUNNING}
    assert BreakerChange.objects.get().reason == "after 5 failures in a row, the last a NeverSent"
    assert RunEvent.objects.filter(kind="provider.left_alone").count() == 1


def test_what_a_provider_said_of_one_run_is_not_told_to_those_who_wait(world: World):
    """Why a provider is left alone is read in every tenant; an error's words may name one tenant's customer."""
    provider = Provider(faults=[raise_without_acting(NeverSent("no seat for Ada Lovelace"))] * 5)

    runs = start_many(provider, 8)
    world.run_until_idle()

    told = [BreakerChange.objects.get().reason, breaker().reason, *(step.retry_reason for step in held())]
    told += [api.explain(run).sentence for run in runs[5:]]
    assert len(told) == 8
    assert "left alone" in told[2]
    assert not [text for text in told if "Ada" in text]


def test_waiting_costs_no_attempt_no_budget_and_no_call(world: World):
    """P7: an open breaker is not the run's fault."""
    provider = Provider()
    runs = trip(world, provider)

    for run in runs[5:]:
        step, row = pay_of(run), WorkflowRun.objects.get(pk=run)
        assert (step.attempts - step.attempts_forgiven, row.attempts_count, row.tool_calls_count) == (0, 1, 0)
        assert step.wake_at is not None
        assert not SideEffect.objects.filter(run=run).exists()
        before = StepAttempt.objects.filter(step=step).count()
        world.clock.move_to(step.wake_at)
    with limits(cool_down_seconds=86400):
        breaker_row = breaker()
        breaker_row.open_until = world.clock.now() + timedelta(days=1)
        breaker_row.save()
        world.run_until_idle()

    assert StepAttempt.objects.filter(step=step).count() == before, "looking again is no attempt"
    assert not found(Severity.BROKEN)


def test_the_first_that_waits_tries_and_its_success_lets_all_go_on(world: World):
    provider = Provider()
    runs = trip(world, provider)

    world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}
    assert breaker().state == "closed"
    assert len(provider.acts) == len(set(provider.acts)) == len(runs)
    assert EffectSend.objects.filter(is_probe=True).count() == 1
    assert not held()
    assert not found(Severity.BROKEN)


def test_a_probe_that_fails_leaves_the_provider_alone_for_another_cool_down(world: World):
    provider = Provider()
    trip(world, provider)
    provider.faults.append(DOWN)
    first = breaker()

    world.clock.advance(seconds=30)
    world.run_until_idle()

    row = breaker()
    assert (row.state, len(provider.sends)) == ("open", 6)
    assert row.open_until == world.clock.now() + timedelta(seconds=30)
    assert row.opened_at == first.opened_at, "it is said since when it has been away, not since when it was tried"


def test_a_prober_that_is_gone_loses_its_place(world: World):
    """R12: a dead prober's slot frees itself, after the time in which it must have had an answer."""
    provider = Provider()
    trip(world, provider)
    world.clock.advance(seconds=30)
    with crash_at(Boundary.EFFECT_AFTER_RESERVE), pytest.raises(Crash):
        world.run_until_idle()
    row = breaker()
    assert (row.state, len(provider.sends)) == ("half-open", 5)
    assert row.probe_until is not None

    world.clock.move_to(row.probe_until - timedelta(seconds=1))
    world.run_until_idle()
    assert (breaker().probe_token, len(provider.sends)) == (row.probe_token, 5), "nobody else may try yet"
    world.clock.advance(seconds=1)
    world.run_until_idle()

    assert breaker().state == "closed"
    assert EffectSend.objects.filter(is_probe=True).count() == 2


def test_at_the_cool_down_s_end_one_of_those_that_wait_is_told_to_go_on(world: World):
    """R12: a thousand that wait are not a thousand that try."""
    provider = Provider()
    trip(world, provider)
    world.clock.advance(seconds=30)

    assert len(service.next_ones(NAME, world.clock.now())) == 1


@pytest.mark.parametrize("late", [DOWN, None], ids=["fails", "succeeds"])
def test_what_was_under_way_at_the_trip_does_not_move_the_breaker(world: World, late: Fault | None):
    provider = Provider()
    runs = start_many(provider, 7)
    steps = ready_to_pay(world, runs)
    slow: list = []

    def others_fail_meanwhile(call: object) -> None:
        if slow:
            return
        slow.append(call)
        provider.faults += [DOWN] * 5
        world.clock.advance(seconds=1)
        for step in steps[1:6]:
            world.deliver("pay.pay", (str(step.run_id), str(step.pk)))
        provider.faults += [late] if late else []
        assert breaker().state == "open"

    provider.before_call = others_fail_meanwhile
    world.deliver("pay.pay", (str(steps[0].run_id), str(steps[0].pk)))

    assert (breaker().state, breaker().failures) == ("open", 5)
    assert BreakerChange.objects.count() == 1


def test_failures_of_what_began_before_the_breaker_closed_do_not_open_it_again(world: World):
    provider = Provider(faults=[DOWN] * 6)
    runs = start_many(provider, 6)

    def closed_meanwhile(call: object) -> None:
        world.clock.advance(seconds=1)
        api.pause_provider(NAME, reason="maintenance")
        api.resume_provider(NAME, reason="over")

    provider.before_call = closed_meanwhile
    for step in ready_to_pay(world, runs):
        world.deliver("pay.pay", (str(step.run_id), str(step.pk)))

    assert len(provider.sends) == 6
    assert breaker().state == "closed"


def test_a_prober_that_was_taken_for_dead_says_nothing_any_more(world: World):
    """R12: whoever has the token speaks."""
    provider = Provider()
    runs = trip(world, provider)
    first, second = held()[0], held()[1]
    world.clock.advance(seconds=30)
    inside: list[object] = []

    def next_one_tries(call: object) -> None:
        inside.append(call)
        if len(inside) == 1:
            world.clock.move_to((breaker().probe_until or world.clock.now()) + timedelta(seconds=1))
            world.deliver("pay.pay", (str(second.run_id), str(second.pk)))
            assert breaker().state == "open", "the second probe has failed"

    provider.before_call = next_one_tries
    provider.faults = [DOWN]
    StepRun.objects.filter(pk=first.pk).update(wake_at=world.clock.now())
    StepRun.objects.filter(pk=second.pk).update(wake_at=world.clock.now())
    world.deliver("pay.pay", (str(first.run_id), str(first.pk)))

    assert len(inside) == 2
    assert breaker().state == "open", "the first one's late success is not what was asked for last"
    assert states(runs) == {RunState.RUNNING}


def test_the_doctor_names_a_probe_that_nobody_has_taken_over(world: World):
    provider = Provider()
    trip(world, provider)
    world.clock.advance(seconds=30)
    with crash_at(Boundary.EFFECT_AFTER_RESERVE), pytest.raises(Crash):
        world.run_until_idle()
    assert "probe-overdue" not in codes()

    world.clock.advance(minutes=5)

    [late] = [one for one in found() if one.code == "probe-overdue"]
    assert late.severity is Severity.DUE
    assert "no other has taken its place" in late.text


@pytest.mark.parametrize(
    "fault",
    [
        raise_without_acting(Permanent("card expired")),
        raise_without_acting(Transient("429")),
        raise_without_acting(KeyError("a mistake of ours")),
        raise_without_acting(NeverSent("too late", code="too_late")),
    ],
    ids=["rejections", "throttling", "our bugs", "our own lateness"],
)
def test_what_is_not_the_provider_s_health_trips_nothing(world: World, fault: Fault):
    provider = Provider(faults=[fault] * 8)
    start_many(provider, 8)

    world.run_until_idle()

    assert len(provider.sends) == 8
    assert not BreakerChange.objects.exists()


def test_a_success_between_failures_breaks_the_row(world: World):
    provider = Provider()
    for _ in range(3):
        provider.faults += [DOWN] * 4
        start_many(provider, 4)
        world.run_until_idle()
        world.clock.advance(seconds=0.5)
        start_many(provider, 1)
        world.run_until_idle()
        world.clock.advance(seconds=0.5)

    assert not BreakerChange.objects.exists()


def test_in_doubt_counts_as_a_failure_and_is_settled_after_the_pause(world: World):
    provider = Provider(faults=[act_then_raise(UnknownOutcome("500"))] * 5)
    runs = start_many(provider, 6)

    world.run_until_idle()
    assert breaker().state == "open"
    world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}
    assert len(provider.acts) == len(set(provider.acts)) == 6


def test_a_manager_reads_why_it_waits_and_what_comes(world: World):
    provider = Provider()
    runs = trip(world, provider)

    story = api.explain(runs[-1])

    assert "pay waits for test: left alone since 09:00 after 5 failures in a row" in story.sentence
    assert "one request tries it at 09:00" in story.sentence
    assert story.next_at is not None
    assert any(line.kind == "waiting" and "waits for test" in line.text for line in story.lines)
    assert "provider-open" in codes()


def test_a_run_that_waits_is_cancelled_at_once(world: World):
    provider = Provider()
    runs = trip(world, provider)

    api.cancel(runs[-1], reason="never mind")

    assert states([runs[-1]]) == {RunState.CANCELLED}
    assert not SideEffect.objects.filter(run=runs[-1]).exists()


def test_a_provider_that_is_told_to_has_no_breaker(world: World):
    provider = Provider()
    with limits(failures_in_a_row=None):
        trip(world, provider, 8)

    assert not BreakerChange.objects.exists()


def test_another_provider_is_not_touched(world: World):
    provider, other = Provider(), Provider()
    trip(world, provider)
    effect = pay_effect(other)
    object.__setattr__(effect, "provider", "another")
    from durableflows.core import registry

    with registry.isolated():
        [run] = start_many(other, 1, effect)
        world.run_until_idle()

        assert states([run]) == {RunState.SUCCEEDED}
