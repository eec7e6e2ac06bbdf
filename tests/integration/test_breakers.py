"""A provider that fails is left alone, and tried by one request at a time (S3.12, R12)."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.test import override_settings

from durableflows import CredentialsRefused, NeverSent, Permanent, Retry, Transient, UnknownOutcome, api, signals
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.doctor import Severity
from durableflows.errors import InvalidState, NotAllowed, NotFoundError
from durableflows.models import BreakerChange, EffectSend, RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.services import providers as service
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support import trips
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
    assert BreakerChange.objects.get().reason.startswith("after 5 failures in a row")
    assert RunEvent.objects.filter(kind="provider.paused").count() == 1


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


def test_two_that_learn_at_once_that_credentials_are_refused_are_one_alarm(world: World):
    provider = Provider(faults=[raise_without_acting(CredentialsRefused("expired"))] * 2)
    runs = start_many(provider, 2)
    steps = ready_to_pay(world, runs)
    inside: list[object] = []

    def the_other_too(call: object) -> None:
        inside.append(call)
        if len(inside) == 1:
            world.deliver("pay.pay", (str(steps[1].run_id), str(steps[1].pk)))

    provider.before_call = the_other_too
    world.deliver("pay.pay", (str(steps[0].run_id), str(steps[0].pk)))

    assert len(inside) == 2
    assert (breaker().state, BreakerChange.objects.count()) == ("paused", 1)
    assert WorkflowRun.objects.exclude(alert="").count() == 1
    assert {step.held_for for step in held()} == {"breaker"}


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


def test_an_effect_in_doubt_is_not_sent_again_after_its_key_window_however_long_the_provider_is_paused(world: World):
    """P5, rule 9: what waits for a paused provider is looked up when its key is too old, never sent blindly."""
    provider = Provider(faults=[act_then_raise(UnknownOutcome("500"))])
    [run] = start_many(provider, 1)
    world.run_until_idle()
    api.pause_provider(NAME, reason="maintenance")
    for pause in ({"minutes": 1}, {"hours": 23}):
        world.clock.advance(**pause)
        world.run_until_idle()
    assert pay_of(run).held_by == NAME

    world.clock.advance(hours=2)
    world.run_until_idle()
    assert pay_of(run).state == StepState.NEEDS_RECONCILIATION
    assert provider.lookups == [], "nothing leaves for a provider that is paused"
    assert "it waits for test: paused since" in api.explain(run).sentence
    api.resume_provider(NAME, reason="it is over")
    world.run_through()

    assert states([run]) == {RunState.SUCCEEDED}
    assert (len(provider.sends), len(provider.lookups)) == (1, 1)


def test_a_provider_that_is_left_alone_is_not_asked_until_its_answers_are_used_up(world: World):
    """Ten questions that nobody can answer would ask a person for each run."""
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("read timed out"))])
    effect = pay_effect(provider, key_window=None)
    [run] = start_many(provider, 1, effect)
    world.run_until_idle()
    api.pause_provider(NAME, reason="maintenance")

    for _ in range(30):
        world.clock.advance(minutes=10)
        world.run_until_idle()
    assert (provider.lookups, SideEffect.objects.get().lookup_count) == ([], 0)
    assert not pay_of(run).needs_person
    assert not found(Severity.BROKEN)
    api.resume_provider(NAME, reason="it is over")
    world.run_through()

    assert len(provider.lookups) == 1


def test_a_manager_reads_why_it_waits_and_what_comes(world: World):
    provider = Provider()
    runs = trip(world, provider)

    story = api.explain(runs[-1])

    assert "pay waits for test: paused since 09:00 after 5 failures in a row" in story.sentence
    assert "one request tries it at 09:00" in story.sentence
    assert story.next_at is not None
    assert any(line.kind == "waiting" and "waits for test" in line.text for line in story.lines)
    assert "provider-open" in codes()


def test_a_person_pauses_and_resumes_a_provider(world: World):
    provider = Provider()
    heard: list = []
    listen = lambda **told: heard.append((told["state"], told["actor_name"]))  # noqa: E731
    signals.provider_changed.connect(listen)
    runs = start_many(provider, 2)
    operator = operator_named("ola")

    api.pause_provider(NAME, by=operator, reason="their status page says so")
    api.pause_provider(NAME, by=operator, reason="again")
    world.run_until_idle()
    assert (len(provider.sends), len(held())) == (0, 2)
    assert "paused since 09:00 by ola: their status page says so; until a person" in api.explain(runs[0]).sentence
    assert "provider-paused" in codes()
    api.resume_provider(NAME, by=operator, reason="it is over")
    world.run_until_idle()

    assert states(runs) == {RunState.SUCCEEDED}
    changes = list(BreakerChange.objects.order_by("at", "id").values_list("state", "actor_name", "reason"))
    assert changes == [("paused", "ola", "their status page says so"), ("closed", "ola", "it is over")]
    assert heard == [("paused", "ola"), ("closed", "ola")]


def test_a_pause_lasts_until_somebody_resumes_it(world: World):
    provider = Provider()
    runs = start_many(provider, 1)
    api.pause_provider(NAME, reason="closed on Sundays")

    for _ in range(20):
        world.clock.advance(hours=6)
        world.run_until_idle()

    assert (provider.sends, states(runs)) == ([], {RunState.RUNNING})
    assert StepAttempt.objects.filter(step=pay_of(runs[0])).count() == 1


def test_who_may_not_operate_changes_nothing(world: World):
    start_many(Provider(), 1)
    somebody, operator = User.objects.create(username="sam"), operator_named("ola")

    with pytest.raises(NotAllowed):
        api.pause_provider(NAME, by=somebody, reason="x")
    with pytest.raises(NotFoundError, match="did you mean 'test'"):
        api.pause_provider("tests", by=operator, reason="x")
    with pytest.raises(InvalidState):
        api.pause_provider(NAME, by=operator, reason=" ")
    with override_settings(DURABLEFLOWS={"TENANTS_OF": "tests.support.tenants.of"}), pytest.raises(NotAllowed):
        api.pause_provider(NAME, by=operator, reason="x")
    assert not BreakerChange.objects.exists()


def test_expired_credentials_pause_the_provider_and_a_person_is_told_once(world: World):
    """Design, section 5: a person; the provider is paused, the runs wait, nothing is charged."""
    provider = Provider(faults=[raise_without_acting(CredentialsRefused("api key expired"))] * 3)
    runs = start_many(provider, 6)

    world.run_until_idle()
    world.clock.advance(hours=5)
    world.run_until_idle()

    assert len(provider.sends) == 1
    assert breaker().state == "paused"
    assert BreakerChange.objects.count() == 1
    assert states(runs) == {RunState.RUNNING}
    assert WorkflowRun.objects.exclude(alert="").count() == 1
    first = pay_of(runs[0])
    assert first.attempts - first.attempts_forgiven == 0
    assert SideEffect.objects.get().state == EffectState.PLANNED
    provider.faults.clear()
    api.resume_provider(NAME, reason="a new key is in place")
    world.run_through()
    assert states(runs) == {RunState.SUCCEEDED}
    assert not found(Severity.BROKEN)


def test_a_refusal_of_old_credentials_that_comes_after_the_resume_pauses_nothing(world: World):
    provider = Provider()
    runs = start_many(provider, 1)

    def resumed_meanwhile(call: object) -> None:
        world.clock.advance(seconds=1)
        api.pause_provider(NAME, reason="the key is being changed")
        api.resume_provider(NAME, reason="done")

    provider.before_call = resumed_meanwhile
    provider.faults = [raise_without_acting(CredentialsRefused("expired"))]
    [step] = ready_to_pay(world, runs)
    world.deliver("pay.pay", (str(step.run_id), str(step.pk)))
    assert breaker().state == "closed"
    provider.before_call = None
    world.run_through()

    assert states(runs) == {RunState.SUCCEEDED}


def test_time_in_line_is_not_time_of_trying(world: World):
    """P7: `Retry.within` bounds tries, and a paused provider is not one."""
    provider = Provider(faults=[DOWN])
    [run] = start_many(provider, 1, retry=Retry(attempts=4, base_seconds=2, within=timedelta(hours=1)))
    world.run_until_idle()
    api.pause_provider(NAME, reason="maintenance")
    for pause in ({"minutes": 1}, {"hours": 5}):
        world.clock.advance(**pause)
        world.run_until_idle()
    provider.faults = [DOWN]
    api.resume_provider(NAME, reason="it is over")
    world.run_until_idle()

    assert pay_of(run).state == StepState.RETRY_SCHEDULED
    world.run_through()
    assert states([run]) == {RunState.SUCCEEDED}


def test_retry_within_still_ends_the_tries_of_a_step(world: World):
    provider = Provider(faults=[DOWN] * 4)
    [run] = start_many(
        provider, 1, retry=Retry(attempts=9, base_seconds=600, cap_seconds=3600, within=timedelta(hours=1))
    )

    world.run_through()

    assert WorkflowRun.objects.get(pk=run).parked_reason == ParkedReason.NEEDS_PERSON
    sends = EffectSend.objects.order_by("started_at")
    assert sends.last().started_at - sends.first().started_at <= timedelta(hours=1)  # type: ignore[union-attr]


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


def operator_named(name: str) -> User:
    user = User.objects.create(username=name)
    user.user_permissions.add(Permission.objects.get(codename="operate_run"))
    return User.objects.get(pk=user.pk)


def test_an_undo_waits_for_its_provider_too(world: World):
    def pause_when_it_begins(kind: str, **told: object) -> None:
        if kind == "run.undo_began":
            api.pause_provider("agency", reason="maintenance")

    signals.run_event.connect(pause_when_it_begins)
    agency = trips.Agency()
    run = trips.start(agency)
    world.run_until_idle()
    assert {step.held_by for step in held()} == {"agency"}
    assert agency.undone == []
    api.resume_provider("agency", reason="over")
    world.run_until_idle()

    assert states([run.pk]) == {RunState.COMPENSATED}
    assert not found(Severity.BROKEN)
