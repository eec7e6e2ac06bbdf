"""What a provider has refused can be done with corrected arguments, once a person has decided so; nothing else can."""

import pytest
from django.contrib.auth.models import User

from durableflows import NotAllowed, Permanent, api
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def refused(world: World, provider: Provider) -> WorkflowRun:
    provider.faults = [raise_without_acting(Permanent("the amount is below the least one"))]
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    assert state_of(run) == RunState.FAILED
    return run


def correct(run: WorkflowRun, amount: int) -> None:
    api.edit(run.pk, reason="below the least amount", changes={"amount": amount})


def permit(run: WorkflowRun, by: User | None = None) -> None:
    row = SideEffect.objects.filter(run=run).latest("issue")
    api.resolve_effect(row.pk, "did_not_happen", reason="they refused it", row_version=row.row_version, by=by)


def test_a_refused_payment_is_made_with_the_corrected_amount_under_a_key_of_its_own(world: World):
    provider = Provider()
    run = refused(world, provider)

    permit(run)
    correct(run, 50)
    api.redrive(run.pk, reason="corrected", step="pay")
    world.run_through()

    assert state_of(run) == RunState.SUCCEEDED
    first, second = SideEffect.objects.filter(run=run).order_by("issue")
    assert (first.state, second.state) == (EffectState.REJECTED, EffectState.CONFIRMED)
    assert (first.arguments["amount"], second.arguments["amount"]) == (5, 50)
    assert provider.sends == [first.key, second.key]
    assert provider.acts == [second.key]
    assert second.replaces == first


def test_without_a_verdict_other_arguments_are_refused_and_nothing_is_sent(world: World):
    provider = Provider()
    run = refused(world, provider)

    correct(run, 50)
    api.redrive(run.pk, reason="corrected", step="pay")
    world.run_through()

    assert state_of(run) == RunState.PARKED
    assert "did_not_happen" in fresh(run).parked_detail
    assert len(provider.sends) == 1

    permit(run)
    api.retry(run.pk, reason="permitted")
    world.run_through()

    assert state_of(run) == RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_a_verdict_on_what_was_refused_is_an_operator_s(world: World, django_user_model):
    run = refused(world, Provider())

    with pytest.raises(NotAllowed):
        permit(run, by=django_user_model.objects.create_user("anybody"))


def test_what_happened_after_all_is_not_taken_for_what_is_asked_now(world: World):
    """Two issues were refused; then it comes out that the first one happened."""
    provider = Provider()
    run = refused(world, provider)
    provider.faults = [raise_without_acting(Permanent("refused again"))]
    permit(run)
    api.redrive(run.pk, reason="once more", step="pay")
    world.run_through()
    first, second = SideEffect.objects.filter(run=run).order_by("issue")
    assert second.state == EffectState.REJECTED
    permit(run)
    receipt = {"id": "pay_0", "status": "done"}
    SideEffect.objects.filter(pk=first.pk).update(state=EffectState.CONFIRMED, receipt=receipt)

    correct(run, 50)
    api.redrive(run.pk, reason="corrected", step="pay")
    world.run_through()

    assert state_of(run) == RunState.PARKED
    assert "with other arguments" in fresh(run).parked_detail
    assert provider.acts == []
    assert len(provider.sends) == 2
