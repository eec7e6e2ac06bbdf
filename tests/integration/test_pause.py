"""Pause and resume: nothing of a paused run begins, is sent or is done again; what comes meanwhile is kept."""

from datetime import timedelta

import pytest

from durableflows import InvalidState, NeedsHuman, NotAllowed, NotFoundError, TooLate, Transient, UnknownOutcome, api
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, parcel_workflow
from tests.support.play import assert_chain
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db(transaction=True)


def broken() -> list[str]:
    return [one.text for one in examine() if one.severity is not Severity.ATTENTION]


def pause(run: WorkflowRun) -> WorkflowRun:
    return api.pause(run.pk, reason="the carrier asked for quiet")


def resume(run: WorkflowRun) -> WorkflowRun:
    return api.resume(run.pk, reason="it is over")


def test_nothing_of_a_paused_run_is_claimed_or_sent_until_it_is_resumed(world: World):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {})
    pause(run)

    world.run_until_idle()
    world.clock.advance(days=1)
    world.run_until_idle()

    assert depot.ran == []
    assert state_of(run) is RunState.PARKED
    assert broken() == []

    resume(run)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert_chain(fresh(run))


def test_what_is_under_way_ends_and_the_next_step_stays_unsent(world: World):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {})
    depot.during = lambda name: pause(run) if name == "hand_over" else None
    world.run_until_idle()

    assert depot.ran == ["pack", "pay", "hand_over"]
    following = StepRun.objects.get(run=run, name="tell")
    assert (following.state, following.sent_at) == (StepState.READY, None)
    assert not [message for message in world.sent if message[1][-1] == str(following.pk)]
    assert fresh(run).data["paid"]

    depot.during = None
    resume(run)
    assert world.messages, "it is sent at once, not by the next sweep"
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED
    assert depot.ran == ["pack", "pay", "hand_over", "tell"]


def test_an_effect_that_was_not_begun_does_not_begin_in_a_paused_run(world: World):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {})
    depot.during = lambda name: pause(run) if name == "pay" else None
    world.run_until_idle()

    assert depot.carrier.sends == []
    assert StepRun.objects.get(run=run, name="pay").state == StepState.READY

    depot.during = None
    resume(run)
    world.run_until_idle()
    assert len(depot.carrier.acts) == 1
    assert state_of(run) is RunState.SUCCEEDED


def test_an_effect_in_doubt_is_looked_up_but_not_sent_again_while_paused(world: World):
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))] * 2)
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    pause(run)
    world.clock.advance(minutes=5)
    world.run_until_idle()

    assert len(provider.sends) == 1
    assert provider.lookups
    assert SideEffect.objects.get(run=run).state == EffectState.ABSENT

    resume(run)
    world.run_through()
    assert StepRun.objects.get(run=run, name="pay").needs_person


def test_who_was_asked_while_it_was_paused_is_not_needed_when_the_same_key_may_be_sent_again(world: World):
    provider = Provider(faults=[act_then_raise(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider, pay_effect(provider, with_lookup=False)), {"amount": 5})
    world.run_until_idle()
    pause(run)
    world.clock.advance(minutes=5)
    world.run_until_idle()
    assert StepRun.objects.get(run=run, name="pay").needs_person
    assert fresh(run).alert

    resume(run)
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).alert == ""
    assert len(provider.acts) == 1


def test_due_timers_fire_after_the_pause(world: World):
    run_id = waiting(world, "timer")
    run = WorkflowRun.objects.get(pk=run_id)
    pause(run)
    world.clock.advance(days=3)
    world.run_until_idle()
    assert state_of(run) is RunState.PARKED
    assert broken() == []

    resume(run)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_signal_to_a_paused_run_is_kept_and_used(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "signal"))
    pause(run)
    api.signal(run.pk, "begin", {"n": 1})
    world.run_until_idle()
    assert state_of(run) is RunState.PARKED

    resume(run)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_child_goes_on_and_its_end_is_handed_over_after_the_pause(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    child = WorkflowRun.objects.get(parent=run)
    pause(run)
    api.signal(child.pk, "begin")
    world.run_until_idle()
    assert (state_of(child), state_of(run)) == (RunState.SUCCEEDED, RunState.PARKED)

    resume(run)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_paused_run_does_not_fail_with_its_child(world: World):
    """The message that the child has ended comes during the pause: it is carried after it, as the sweep would."""
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    pause(run)
    api.cancel(WorkflowRun.objects.get(parent=run).pk, reason="not wanted")
    world.run_until_idle()
    assert state_of(run) is RunState.PARKED

    resume(run)
    world.run_until_idle()

    assert state_of(run) is RunState.FAILED


def test_a_request_is_answered_while_paused_and_the_run_goes_on_after_it(world: World, admin_user):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {"ask": True})
    world.run_until_idle()
    pause(run)
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=admin_user, facts_digest=request.facts_digest)
    world.run_until_idle()
    assert depot.ran == ["pack"]

    resume(run)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_retry_keeps_its_time_and_its_tries_over_a_pause(world: World):
    provider = Provider(faults=[raise_without_acting(Transient("503"))] * 2)
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    due = StepRun.objects.get(run=run, name="pay").wake_at
    pause(run)
    resume(run)

    step = StepRun.objects.get(run=run, name="pay")
    assert (step.state, step.wake_at, step.attempts_forgiven) == (StepState.RETRY_SCHEDULED, due, 0)
    world.run_through()
    assert state_of(run) is RunState.SUCCEEDED


def test_the_deadline_goes_on_while_a_run_is_paused(world: World):
    run = api.start(parcel_workflow(Depot(), days=2), {})
    pause(run)
    world.clock.advance(days=3)
    world.run_until_idle()

    assert state_of(run) is RunState.DEADLINE_EXCEEDED


def test_a_paused_run_can_be_cancelled(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    pause(run)
    api.cancel(run.pk, reason="not wanted")

    assert state_of(run) is RunState.CANCELLED


def test_a_second_pause_and_a_needless_resume_change_nothing(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    resume(run)
    pause(run)
    pause(run)

    kinds = list(RunEvent.objects.filter(run=run).order_by("sequence").values_list("kind", flat=True))
    assert kinds == ["run.started", "step.ready", "run.paused"]


def test_pause_is_refused_for_what_stands_still_anyhow(world: World):
    provider = Provider(faults=[raise_without_acting(NeedsHuman("the key expired"))])
    parked = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()

    with pytest.raises(TooLate, match="parked already"):
        pause(parked)
    with pytest.raises(TooLate, match="retry it"):
        resume(parked)
    api.cancel(parked.pk, reason="x")
    for verb in (pause, resume):
        with pytest.raises(TooLate, match="does not go on"):
            verb(parked)


def test_retry_is_refused_for_a_paused_run(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    pause(run)

    with pytest.raises(TooLate, match="paused by the system: the carrier asked for quiet: resume it"):
        api.retry(run.pk, reason="x")


def test_rights_and_reason(world: World, django_user_model, settings):
    owner = django_user_model.objects.create_user("owner")
    stranger = django_user_model.objects.create_user("stranger")
    run = api.start(parcel_workflow(Depot()), {}, by=owner)

    for verb in (api.pause, api.resume):
        with pytest.raises(NotAllowed, match="operate_run"):
            verb(run.pk, by=owner, reason="x")
        with pytest.raises(NotFoundError):
            verb(run.pk, by=stranger, reason="x")
        with pytest.raises(InvalidState, match="reason"):
            verb(run.pk, reason="  ")
    assert fresh(run).parked_reason == ""


def test_explain_tells_who_paused_and_what_is_safe(world: World, admin_user):
    run = WorkflowRun.objects.get(pk=waiting(world, "timer"))
    assert "pause" in api.explain(run.pk).safe

    api.pause(run.pk, by=admin_user, reason="stock is counted")
    story = api.explain(run.pk)

    assert story.sentence == "Paused by admin: stock is counted"
    assert story.next == "a person lets it go on; else the deadline ends the run"
    assert story.safe == ("cancel", "resume")
    assert "Paused by admin: stock is counted" in [line.text for line in story.lines]
    world.clock.advance(timedelta(hours=1).total_seconds())
    api.resume(run.pk, by=admin_user, reason="counted")
    assert "Resumed by admin: counted" in [line.text for line in api.explain(run.pk).lines]
