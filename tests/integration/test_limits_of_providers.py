"""A provider is given no more than it takes: rates, places, turns and repeats. Waiting is fair and costs nothing."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from durableflows import EffectCall, NeverSent, Retry, Transient, UnknownOutcome, api, checks, effect
from durableflows.conf import settings
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity
from durableflows.errors import EffectOpen
from durableflows.models import Breaker, EffectSend, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.services import providers as service
from durableflows.services import sweeps
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.flows import PayReceipt, Provider, raise_without_acting
from tests.support.payers import NAME, found, held, limits, most_in, pay_of, ready_to_pay, start_many, states
from tests.support.play import Stage, stage

pytestmark = pytest.mark.django_db(transaction=True)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def in_turns(provider: Provider) -> EffectDefinition[PayReceipt]:
    """Pays of one parity take turns."""

    @effect(
        name="test.pay",
        provider=NAME,
        receipt=PayReceipt,
        key_window=timedelta(hours=24),
        settle_seconds=30,
        one_at_a_time=lambda amount, **_: "odd" if amount % 2 else "",
    )
    def pay(call: EffectCall, *, amount: int) -> PayReceipt:
        return provider.send(call, amount)

    return pay


def under_way(world: World, provider: Provider, count: int, **given: object) -> list[StepRun]:
    """Runs that wait to pay; the first one's request is at the provider when its worker dies."""
    runs = start_many(provider, count, **given)  # type: ignore[arg-type]
    steps = ready_to_pay(world, runs)
    with crash_at(Boundary.EFFECT_AFTER_RESERVE), pytest.raises(Crash):
        deliver(world, steps[0])
    return steps


def deliver(world: World, step: StepRun) -> StepRun:
    world.deliver("pay.pay", (str(step.run_id), str(step.pk)))
    step.refresh_from_db()
    return step


def test_no_second_has_more_sends_than_it_takes(world: World):
    provider = Provider()
    with limits(per_second=3):
        runs = start_many(provider, 10)
        world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}
    assert most_in(SECOND) == 3
    assert not found(Severity.BROKEN)


def test_each_of_two_rates_holds(world: World):
    provider = Provider()
    with limits(per_second=2, per_minute=5):
        runs = start_many(provider, 12)
        world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}
    assert (most_in(SECOND), most_in(MINUTE)) == (2, 5)


def test_who_came_first_is_sent_first(world: World):
    """R: waiting is fair, also against those who come when a place is free again."""
    provider = Provider()
    with limits(per_second=1):
        runs = start_many(provider, 4)
        for step in ready_to_pay(world, runs):
            deliver(world, step)
            world.clock.advance(seconds=0.01)
        world.clock.advance(seconds=1)
        [late] = ready_to_pay(world, start_again(provider))
        assert deliver(world, late).held_for == "rate", "a place is free, and others wait longer for it"
        world.run_through()

    order = [send.effect.run_id for send in EffectSend.objects.order_by("started_at")]
    assert order == [*runs, late.run_id]


def start_again(provider: Provider) -> list:
    return [api.start("pay", {"amount": 9}).pk]


def test_waiting_for_a_rate_costs_no_attempt_and_no_budget(world: World):
    provider = Provider()
    with limits(per_minute=1):
        runs = start_many(provider, 3)
        world.run_through()

    for run in runs:
        step, row = pay_of(run), WorkflowRun.objects.get(pk=run)
        assert step.attempts - step.attempts_forgiven == 1
        assert row.attempts_count == 3, "assess, pay and done"
        assert row.tool_calls_count == 1
    assert not found(Severity.BROKEN)


def test_so_many_at_a_time_and_no_more(world: World):
    provider = Provider()
    with limits(at_once=1):
        steps = under_way(world, provider, 3)
        assert deliver(world, steps[1]).held_for == "room"
        assert provider.sends == []

        world.run_through()

        assert states([step.run_id for step in steps]) == {RunState.SUCCEEDED}
        assert not held()


def test_a_dead_worker_s_place_is_free_when_its_request_can_be_under_way_no_more(world: World):
    """A lost answer holds a place until it is settled or its settle time is over, whichever is first."""
    provider = Provider()
    with limits(at_once=1):
        steps = under_way(world, provider, 2)
        dead = StepRun.objects.get(pk=steps[0].pk)
        assert sweeps.free_lost_tasks([dead.lease_task_id]) == 1
        row = SideEffect.objects.get()
        assert row.state == EffectState.UNKNOWN
        assert row.settles_at is not None

        world.clock.move_to(row.settles_at - timedelta(seconds=1))
        assert deliver(world, steps[1]).held_for == "room"
        assert service.let_go_on(world.clock.now()) == 0
        world.clock.move_to(row.settles_at)
        assert service.let_go_on(world.clock.now()) == 1

        assert deliver(world, steps[1]).state == StepState.SUCCEEDED
    assert SideEffect.objects.get(pk=row.pk).state == EffectState.UNKNOWN


def test_effects_that_take_turns_go_one_after_the_other_and_hold_up_no_others(world: World):
    provider = Provider()
    steps = under_way(world, provider, 3, effect=in_turns(provider))

    assert deliver(world, steps[1]).state == StepState.SUCCEEDED, "the even ones take no turns"
    third = deliver(world, steps[2])
    assert (third.held_for, third.held_key) == ("turn", "odd")
    assert "another request for odd is under way" in api.explain(third.run_id).sentence
    world.run_through()

    assert states([step.run_id for step in steps]) == {RunState.SUCCEEDED}
    assert SideEffect.objects.filter(turn_key="odd").count() == 2


def test_a_request_in_doubt_is_not_in_its_own_way(world: World):
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("500"))])
    with limits(at_once=1):
        [run] = start_many(provider, 1, effect=in_turns(provider))
        world.run_through()

    assert states([run]) == {RunState.SUCCEEDED}
    first, second = EffectSend.objects.order_by("started_at")
    assert first.closes_at is not None
    assert second.started_at < first.closes_at, "it did not wait for its own place"


def test_who_waits_and_is_stopped_holds_up_nobody(world: World):
    provider = Provider()
    with limits(per_second=1):
        runs = start_many(provider, 3)
        for step in ready_to_pay(world, runs):
            deliver(world, step)
        api.pause(runs[1], reason="wait")
        world.run_through(until=world.clock.now() + timedelta(seconds=5))

        assert [states([run]).pop() for run in runs] == [RunState.SUCCEEDED, RunState.PARKED, RunState.SUCCEEDED]


def test_who_was_told_to_go_on_and_does_not_come_holds_up_nobody_for_long(world: World):
    provider = Provider()
    with limits(at_once=1):
        steps = under_way(world, provider, 3)
        for step in steps[1:]:
            deliver(world, step)
        StepRun.objects.filter(pk=steps[1].pk).update(wake_at=world.clock.now())
        SideEffect.objects.update(state=EffectState.CONFIRMED, receipt={"id": "x"})
        world.lose_messages()
        assert service.next_ones(NAME, world.clock.now()) == ()
        world.clock.advance(seconds=31)

        assert service.next_ones(NAME, world.clock.now()) == (steps[2].pk,)


def test_repeats_beyond_their_share_are_put_off(world: World):
    """S3.12: no storm. Of the sends of ten seconds, repeats are a part."""
    provider = Provider(faults=[raise_without_acting(Transient("429", retry_after_seconds=1))] * 10)
    tries = Retry(attempts=4, base_seconds=0.1, cap_seconds=0.1)
    with limits(repeats_share=0.2, repeats_always=1):
        runs = start_many(provider, 10, retry=tries)
        world.run_until_idle()
        began = world.clock.now()
        world.run_through(until=began + timedelta(seconds=9))
        assert EffectSend.objects.filter(is_repeat=True, started_at__lt=began + timedelta(seconds=10)).count() <= 3
        waiting = [step for step in held() if step.held_for == "repeats"]
        assert waiting
        assert "many of its requests are repeats" in api.explain(waiting[0].run_id).sentence
        world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}
    for step in StepRun.objects.filter(name="pay"):
        assert step.attempts - step.attempts_forgiven == 2
    assert not found(Severity.BROKEN)


def test_a_storm_of_faults_stays_within_one_and_a_half_sends_an_operation(world: World):
    """S3.12: 30 of 100 operations meet a fault, of four kinds."""
    kinds = [NeverSent("refused"), Transient("429"), UnknownOutcome("500"), Transient("lock")]
    provider = Provider()
    calls = iter(range(10_000))

    def faulty(call: EffectCall) -> None:
        number = next(calls)
        if number % 10 < 3:
            raise kinds[number // 10 % 4]

    provider.before_call = faulty
    with limits(failures_in_a_row=None):
        runs = []
        for _ in range(4):
            runs += start_many(provider, 25, retry=Retry(attempts=8, base_seconds=1, cap_seconds=8))
            world.run_through(limit=2000)

    assert states(runs) == {RunState.SUCCEEDED}
    assert len(provider.acts) == len(set(provider.acts)) == 100
    assert len(provider.sends) <= 150


def test_a_first_send_to_a_provider_without_limits_reads_one_row_more(world: World):
    """What protection costs where nothing is declared: one read by primary key, and nothing at the answer."""
    played = stage(world)
    worker = played.hand().claim()
    with CaptureQueriesContext(
        connection,
    ) as reserving:
        worker.reserve()
    with CaptureQueriesContext(connection) as recording:
        worker.record(worker.act())

    reads = [query["sql"] for query in reserving if "durableflows_breaker" in query["sql"]]
    assert len(reads) == 1
    assert "FOR " not in reads[0]
    assert not [query for query in recording if "durableflows_breaker" in query["sql"]]
    assert not Breaker.objects.exists()


def test_a_send_that_is_held_leaves_nothing_in_the_ledger(world: World):
    played: Stage = stage(world)
    worker = played.hand().claim()
    api.pause_provider(NAME, reason="quiet")

    with pytest.raises(EffectOpen):
        worker.ask()

    assert not SideEffect.objects.exists()
    assert played.run().tool_calls_count == 0


@pytest.mark.parametrize("boundary", [Boundary.TIMER_BEFORE_COMMIT, Boundary.TIMER_AFTER_COMMIT])
def test_a_ticker_that_dies_while_it_lets_a_step_go_on_leaves_it_to_the_next(world: World, boundary: Boundary):
    provider = Provider()
    api_name = "quiet"
    runs = start_many(provider, 1)
    api.pause_provider(NAME, reason=api_name)
    world.run_until_idle()
    api.resume_provider(NAME, reason="over")
    with crash_at(boundary), pytest.raises(Crash):
        service.let_go_on(world.clock.now())
    world.lose_messages()

    world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}


@pytest.mark.parametrize("boundary", [Boundary.OPERATE_BEFORE_COMMIT, Boundary.OPERATE_AFTER_COMMIT])
def test_a_pause_that_dies_is_there_as_a_whole_or_not_at_all(world: World, boundary: Boundary):
    start_many(Provider(), 1)

    with crash_at(boundary), pytest.raises(Crash):
        api.pause_provider(NAME, reason="quiet")

    is_there = boundary is Boundary.OPERATE_AFTER_COMMIT
    assert Breaker.objects.filter(state="paused").exists() is is_there


def test_an_idle_budget_does_not_end_a_run_that_waits_for_a_provider(world: World):
    """P7: waiting is not idling."""
    provider = Provider()
    [run] = start_many(provider, 1)
    WorkflowRun.objects.filter(pk=run).update(budget={"idle_seconds": 3600})
    api.pause_provider(NAME, reason="quiet")
    for _ in range(3):
        world.run_until_idle()
        world.clock.advance(hours=2)

    assert states([run]) == {RunState.RUNNING}
    assert StepAttempt.objects.filter(step=pay_of(run)).count() == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"payments": {"per_hour": 5}}, "'PROVIDERS': 'payments': 'per_hour' is no limit"),
        ({"payments": 5}, "'PROVIDERS' is {'payments': 5}, it should be a dict of dicts"),
        ({"payments": {"at_once": 0}}, "'at_once' is 0"),
    ],
)
def test_wrong_limits_are_refused_at_the_start(given: object, complaint: str):
    with override_settings(DURABLEFLOWS={"PROVIDERS": given}):
        found_by_check = checks.check_settings(None)
        with pytest.raises(ImproperlyConfigured):
            settings()

    assert found_by_check[0].id == "durableflows.E001"
    assert complaint in found_by_check[0].msg
