"""Giving a run up: it ends at once, and what is open of it is named, inherited, looked up and can be resolved."""

from typing import Any

import pytest

from durableflows import InvalidState, NotAllowed, TooLate, UnknownOutcome, api
from durableflows.core.states import ApprovalState, EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.errors import LeaseLost
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World, open_request
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, parcel_workflow
from tests.support.play import assert_chain, stage
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db(transaction=True)


def found(severity: Severity) -> list[str]:
    return [one.code for one in examine() if one.severity is severity and one.code != "no-ticker"]


def examine_codes() -> list[str]:
    return [one.code for one in examine()]


@pytest.fixture
def heir(django_user_model) -> Any:
    return django_user_model.objects.create_superuser("anna", password="x")


def in_doubt(world: World, *faults: Any, lookup: bool = True) -> tuple[WorkflowRun, Provider]:
    """A run whose payment may have happened."""
    provider = Provider(faults=list(faults) or [act_then_raise(UnknownOutcome("cut"))])
    provider.keyed = False
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=lookup)), {"amount": 5})
    world.run_until_idle()
    assert SideEffect.objects.get(run=run).state == EffectState.UNKNOWN
    return run, provider


def test_it_ends_at_once_and_names_who_inherits_what_is_open(world: World, heir):
    """S2.35, P15."""
    run, _ = in_doubt(world)

    abandoned = api.abandon(run.pk, by=heir, reason="the provider is gone", heir=heir)

    assert (abandoned.state, abandoned.heir, abandoned.heir_name) == (RunState.ABANDONED, heir, "anna")
    story = api.explain(run.pk)
    assert story.ended
    assert "Abandoned at 09:00: the provider is gone; still open: test.pay, inherited by anna" in story.sentence
    assert story.unknown == ("test.pay: unknown: it may have happened",)
    assert story.safe == ("resolve",)
    assert story.next == "the provider is asked about test.pay"
    assert "Abandoned by anna: the provider is gone; anna inherits what is open: test.pay" in [
        line.text for line in story.lines
    ]
    assert (found(Severity.BROKEN), found(Severity.DUE), found(Severity.ATTENTION)) == ([], [], ["inherited"])
    assert not StepRun.objects.filter(run=run, ended_at__isnull=True).exists()
    assert_chain(fresh(run))


def test_the_provider_is_still_asked_and_its_answer_settles_the_effect(world: World, heir):
    run, provider = in_doubt(world)
    api.abandon(run.pk, reason="x", heir=heir)

    world.clock.advance(minutes=1)
    world.run_until_idle()

    row = SideEffect.objects.get(run=run)
    assert (row.state, row.contradiction) == (EffectState.CONFIRMED, "")
    assert provider.lookups
    assert len(provider.sends) == 1
    assert state_of(run) is RunState.ABANDONED
    assert examine_codes() == []


def test_the_doctor_notices_when_nobody_asks(world: World, heir):
    run, _ = in_doubt(world)
    api.abandon(run.pk, reason="x", heir=heir)

    world.clock.advance(minutes=2)

    assert found(Severity.DUE) == ["inherited-look-overdue"]


def test_what_is_not_found_is_audited_later(world: World, heir):
    run, _ = in_doubt(world, raise_without_acting(UnknownOutcome("cut")))
    api.abandon(run.pk, reason="x", heir=heir)
    world.clock.advance(minutes=1)
    world.run_until_idle()
    assert SideEffect.objects.get(run=run).state == EffectState.ABSENT
    assert api.explain(run.pk).next == "test.pay is looked up once more"

    world.clock.advance(days=2)
    world.run_until_idle()

    assert RunEvent.objects.filter(run=run, kind="effect.audited").count() == 1


def test_a_lost_question_is_asked_again(world: World, heir):
    run, provider = in_doubt(world)
    api.abandon(run.pk, reason="x", heir=heir)
    world.clock.advance(minutes=1)
    sweeps.sweep(may_free_stale=False)
    assert world.lose_messages() == 1
    sweeps.sweep(may_free_stale=False)
    assert world.lose_messages() == 0

    world.clock.advance(minutes=1)
    world.run_until_idle()

    assert provider.lookups
    assert SideEffect.objects.get(run=run).state == EffectState.CONFIRMED


def test_without_a_lookup_the_heir_is_told_and_resolves_it(world: World, heir):
    run, _ = in_doubt(world, lookup=False)
    api.abandon(run.pk, reason="x", heir=heir)
    world.clock.advance(minutes=1)
    world.run_until_idle()
    assert "anna has inherited it" in fresh(run).alert
    assert api.explain(run.pk).next == "anna finds out what happened with test.pay"
    assert RunEvent.objects.filter(run=run, kind="effect.alert").count() == 1

    row = SideEffect.objects.get(run=run)
    api.resolve_effect(
        row.pk, "happened", by=heir, reason="in the books", row_version=row.row_version, receipt={"ref": 7}
    )
    world.run_until_idle()

    assert SideEffect.objects.get(run=run).state == EffectState.CONFIRMED
    assert fresh(run).alert == ""
    assert api.explain(run.pk).safe == ()
    assert examine_codes() == []


def test_a_verdict_that_it_did_not_happen_sends_nothing(world: World, heir):
    run, provider = in_doubt(world, lookup=False)
    api.abandon(run.pk, reason="x", heir=heir)
    world.clock.advance(minutes=1)
    row = SideEffect.objects.get(run=run)
    api.resolve_effect(row.pk, "did_not_happen", by=heir, reason="not there", row_version=row.row_version)
    world.run_through()

    assert len(provider.sends) == 1
    assert state_of(run) is RunState.ABANDONED


def test_a_worker_that_is_at_it_writes_nothing_more_but_its_receipt(world: World, heir):
    """P2: the lease is gone; what the provider said is kept."""
    played = stage(world)
    worker = played.hand().claim().reserve()
    api.abandon(played.run_id, reason="x", heir=heir)
    assert played.row().state == EffectState.UNKNOWN

    worker.record(worker.act())

    assert played.row().state == EffectState.CONFIRMED
    assert played.row().contradiction == ""
    with pytest.raises(LeaseLost):
        worker.settle()
    with pytest.raises(LeaseLost):
        worker.ask()
    assert played.run().state == RunState.ABANDONED
    assert found(Severity.BROKEN) == []


def test_requests_waits_and_children_end_with_it(world: World, heir):
    asked = api.start(parcel_workflow(Depot()), {"ask": True})
    world.run_until_idle()
    request = open_request(asked.pk)
    waits = WorkflowRun.objects.get(pk=waiting(world, "child"))
    seen = api.preview("abandon", asked.pk, heir=heir)
    assert (seen.refused, seen.closes) == ("", ("the request 'Send it'",))
    assert "waiting run" in api.preview("abandon", waits.pk, heir=heir).closes[0]

    for run in (asked, waits):
        api.abandon(run.pk, reason="x", heir=heir)
    world.run_until_idle()

    assert ApprovalRequest.objects.get(pk=request.pk).state == ApprovalState.CLOSED
    assert state_of(WorkflowRun.objects.get(parent=waits)) is RunState.CANCELLED
    assert examine_codes() == []


def test_a_run_that_is_ending_over_an_effect_in_doubt_is_abandoned(world: World, heir):
    run, _ = in_doubt(world, lookup=False)
    api.cancel(run.pk, reason="x")
    assert state_of(run) is RunState.ENDING

    api.abandon(run.pk, reason="nobody can tell", heir=heir)

    assert state_of(run) is RunState.ABANDONED
    assert found(Severity.BROKEN) == []


def test_who_may_and_who_may_inherit(world: World, heir, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    run = api.start(parcel_workflow(Depot()), {}, by=owner)
    gone = django_user_model.objects.create_superuser("gone", password="x", is_active=False)

    with pytest.raises(NotAllowed):
        api.abandon(run.pk, by=owner, reason="x", heir=heir)
    for nobody in (None, owner, gone, "anna"):
        with pytest.raises(InvalidState, match="abandon: "):
            api.abandon(run.pk, by=heir, reason="x", heir=nobody)
    assert state_of(run) is RunState.PENDING

    api.abandon(run.pk, by=heir, reason="x", heir=heir)
    with pytest.raises(TooLate, match="already finished: abandoned"):
        api.abandon(run.pk, by=heir, reason="x", heir=heir)
    with pytest.raises(TooLate):
        api.redrive(run.pk, reason="x", step="pack")
    assert StepRun.objects.get(run=run).state == StepState.CANCELLED


def test_the_name_of_the_heir_stays_when_the_user_goes(world: World, heir):
    run, _ = in_doubt(world)
    api.abandon(run.pk, reason="x", heir=heir)
    heir.delete()

    assert (fresh(run).heir_id, fresh(run).heir_name) == (None, "anna")
    assert "inherited by anna" in api.explain(run.pk).sentence


def test_the_page_of_the_run_says_it(world: World, heir, client):
    run, _ = in_doubt(world)
    api.abandon(run.pk, by=heir, reason="the provider is gone", heir=heir)
    client.force_login(heir)

    page = client.get(f"/admin/durableflows/workflowrun/{run.pk}/change/").content.decode()

    assert "<span>Inherited by</span><bdi>anna</bdi>" in page
    assert "still open: test.pay, inherited by anna" in page
