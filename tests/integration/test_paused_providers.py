"""A provider that is paused, by a person or for its refusal of our credentials: what waits, and what is charged."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from durableflows import CredentialsRefused, Retry, UnknownOutcome, api, signals
from durableflows.core.states import EffectState, ParkedReason, RunState, StepState
from durableflows.doctor import Severity
from durableflows.errors import InvalidState, NotAllowed, NotFoundError
from durableflows.models import BreakerChange, EffectSend, SideEffect, StepAttempt, WorkflowRun
from durableflows.services import reconcile, sweeps
from durableflows.testing import World
from tests.support import trips
from tests.support.flows import Provider, act_then_raise, pay_effect, raise_without_acting
from tests.support.payers import (
    DOWN,
    NAME,
    breaker,
    codes,
    found,
    held,
    operator_named,
    pay_of,
    ready_to_pay,
    start_many,
    states,
)

pytestmark = pytest.mark.django_db(transaction=True)


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
    world.clock.advance(minutes=10)
    reconcile.route(pay_of(run).pk)
    assert not world.messages, "no message for a question that is not asked"
    wake_at = pay_of(run).wake_at
    assert wake_at is not None
    assert wake_at - world.clock.now() >= timedelta(minutes=1)
    assert not pay_of(run).needs_person
    assert not found(Severity.BROKEN)
    api.resume_provider(NAME, reason="it is over")
    world.run_through()

    assert len(provider.lookups) == 1


def test_a_question_that_was_sent_before_the_pause_is_not_asked_after_it(world: World):
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("read timed out"))])
    [run] = start_many(provider, 1, pay_effect(provider, key_window=None))
    world.run_until_idle()
    world.clock.advance(minutes=10)
    reconcile.route(pay_of(run).pk)
    assert len(world.messages) == 1

    api.pause_provider(NAME, reason="maintenance")
    world.run_until_idle()

    assert (provider.lookups, SideEffect.objects.get().lookup_count) == ([], 0)


def test_what_is_audited_waits_for_a_provider_that_is_left_alone_and_fills_no_queue(world: World):
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("read timed out"))])
    start_many(provider, 1, pay_effect(provider, key_window=None))
    world.run_through(until=world.clock.now() + timedelta(hours=1))
    assert SideEffect.objects.get().state == EffectState.ABSENT
    world.clock.advance(days=2)

    api.pause_provider(NAME, reason="maintenance")
    assert (sweeps.audit_absent(world.clock.now()), len(world.messages)) == (0, 0)
    api.resume_provider(NAME, reason="it is over")
    assert sweeps.audit_absent(world.clock.now()) == 1


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
    assert BreakerChange.objects.get().reason == "it does not take our credentials"
    assert states(runs) == {RunState.RUNNING}
    assert WorkflowRun.objects.exclude(alert="").get().alert.endswith("credentials: api key expired")
    assert "paused since 09:00, it does not take our credentials; until" in api.explain(runs[1]).sentence
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
