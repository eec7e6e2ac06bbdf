"""What is looked at again when a run wakes after an approval, before anything is sent (P9, S2.8, S2.9, S3.40, R26)."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User

from durableflows import Facts, Run, Workflow, api, approval, step
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import RunEvent, WorkflowRun
from durableflows.testing import World, open_request, virtual
from tests.support.flows import PayState, Provider, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


@pytest.fixture
def manager() -> User:
    user = User.objects.create_user("manager")
    user.user_permissions.add(Permission.objects.get(codename="answer_approval"))
    return User.objects.get(pk=user.pk)


def approved(world: World, manager: User, provider: Provider, facts: dict[str, str]) -> WorkflowRun:
    """A run whose payment was approved and has not gone on yet."""
    run = api.start(pay_workflow(provider, facts=lambda: dict(facts)), {"amount": 900, "ask": True})
    world.run_until_idle()
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=manager, facts_digest=request.facts_digest)
    return run


def end_of(world: World, run: WorkflowRun) -> WorkflowRun:
    world.run_until_idle()
    return WorkflowRun.objects.get(pk=run.pk)


def test_an_approval_that_still_holds_lets_the_run_go_on(world: World, manager: User):
    provider = Provider()
    run = approved(world, manager, provider, {"to": "Ada"})

    assert end_of(world, run).state == RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_facts_that_changed_after_the_approval_stop_the_run_before_anything_is_sent(world: World, manager: User):
    provider, facts = Provider(), {"to": "Ada"}
    run = approved(world, manager, provider, facts)
    facts["to"] = "Mallory"

    stopped = end_of(world, run)

    assert stopped.state == RunState.PARKED
    assert "has changed since (to)" in stopped.parked_detail
    assert provider.sends == []


def test_a_right_that_was_taken_away_after_the_approval_stops_the_run(world: World, manager: User):
    provider = Provider()
    run = approved(world, manager, provider, {"to": "Ada"})
    manager.user_permissions.clear()

    stopped = end_of(world, run)

    assert stopped.state == RunState.PARKED
    assert "has lost the permission" in stopped.parked_detail
    assert provider.sends == []


@pytest.mark.parametrize("change", ["deactivated", "deleted"])
def test_an_approver_who_is_gone_stops_the_run(world: World, manager: User, change: str):
    provider = Provider()
    run = approved(world, manager, provider, {"to": "Ada"})
    if change == "deleted":
        manager.delete()
    else:
        User.objects.filter(pk=manager.pk).update(is_active=False)

    stopped = end_of(world, run)

    assert stopped.state == RunState.PARKED
    assert "is not active any more" in stopped.parked_detail
    assert provider.sends == []


def asking(show: Callable[[Run[PayState]], object]) -> type[Workflow[PayState]]:
    """A run that asks at once; `show` is what its facts do beside."""

    def facts(run: Run[PayState]) -> Facts:
        show(run)
        return Facts(binding={"amount": run.state.amount})

    class Asking(Workflow[PayState]):
        name, deadline = "asking", timedelta(days=9)

        @step(start=True, to="sign_off")
        def begin(self, run: Run[PayState]) -> None: ...

        sign_off = approval(
            title="Pay {amount}",
            shows=facts,
            permission="durableflows.answer_approval",
            approved="done",
            rejected="done",
        )

        @step(end=True)
        def done(self, run: Run[PayState]) -> None: ...

    return Asking


def test_facts_that_write_a_note_write_it_when_they_are_asked_for_and_not_for_each_answer(world: World, manager: User):
    """Who answers holds no lease: there is no attempt whose note it would be."""
    run = api.start(asking(lambda run: run.note("shown")), {"amount": 5})
    world.run_until_idle()
    request = open_request(run.pk)

    api.answer(request.pk, "reject", by=manager, facts_digest=request.facts_digest)

    assert end_of(world, run).state == RunState.SUCCEEDED
    assert RunEvent.objects.filter(run=run, kind="run.note").count() == 1


def test_facts_that_call_a_model_are_an_error_in_our_code_before_anybody_is_asked(world: World):
    def think(run: Run[PayState]) -> None:
        with run.model_call("small", estimate_usd=Decimal("0.01")):
            pass

    run = api.start(asking(think), {"amount": 5})

    parked = end_of(world, run)
    assert (parked.state, parked.parked_reason) == (RunState.PARKED, "error in our code")
    assert "is an approval: call the model in a step before it" in parked.parked_detail
