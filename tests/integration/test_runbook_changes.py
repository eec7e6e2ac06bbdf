"""The runbook is played, its commands as they stand, on runs that were brought into its cases: deploys and approvals.

S2.41. `tests/contract/test_runbook.py` sees to it that no page and no command is left out.
"""

import pytest
from django.contrib.auth.models import User

from durableflows import api, doctor
from durableflows.core.states import EffectState, ParkedReason, RunState
from durableflows.models import ApprovalDecision, SideEffect, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.look import fresh
from tests.support.payers import start_many
from tests.support.refunds import person
from tests.support.runbook import Scene, assert_over, filled, said
from tests.support.stages import deployed, finish, pass_time_with_a_worker_of_the_new_code, retrying
from tests.support.trips import Agency
from tests.support.trips import start as start_trip

pytestmark = pytest.mark.django_db

plays = pytest.mark.plays


# A bad deploy


@plays("bad-deploy", "look")
def test_bad_deploy_is_seen_by_gate_doctor_and_list(world: World, scene: Scene):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with deployed(provider, 2, with_migration=False):
        assert "STOPS: 1 of paying version 1" in scene.run(code=1)
        pass_time_with_a_worker_of_the_new_code(world)

        assert "incompatible release" in scene.run()
        assert str(run.pk) in scene.run()


@plays("bad-deploy", "before a deploy")
def test_bad_deploy_is_not_one_where_gate_check_and_migrate_pass(world: World, scene: Scene):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with deployed(provider, 1, 2):
        assert "all can go on" in scene.run()
        scene.run()
        scene.run()
        world.run_through()

        assert_over(run)


@plays("bad-deploy", "the old class is back")
def test_bad_deploy_whose_old_class_is_back(world: World, scene: Scene):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with deployed(provider, 2, with_migration=False):
        pass_time_with_a_worker_of_the_new_code(world)
        assert fresh(run).parked_reason == ParkedReason.INCOMPATIBLE
    with deployed(provider, 1, 2):
        scene.rest(RUN=run.pk)
        world.run_through()

        assert_over(run)
        assert fresh(run).version == 1


@plays("bad-deploy", "migrate")
def test_bad_deploy_whose_runs_go_on_under_the_new_version(world: World, scene: Scene):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with deployed(provider, 2, with_migration=False):
        pass_time_with_a_worker_of_the_new_code(world)
    with deployed(provider, 2):
        scene.rest(WORKFLOW="paying")
        finish(world, run, User())

        assert_over(run)
        assert fresh(run).version == 2


@plays("bad-deploy", "the fix is deployed")
def test_bad_deploy_that_parked_many_is_mended_and_each_goes_on(world: World, scene: Scene):
    errors = [KeyError("typo"), KeyError("typo")]

    def body(run: object) -> None:
        if errors:
            raise errors.pop()

    provider = Provider()
    runs = start_many(provider, 2, body=body)
    world.run_until_idle()

    listed = scene.run(WORKFLOW="pay")
    assert all(str(run) in listed for run in runs)
    command = scene.left[0]
    scene.run(RUN=runs[0])
    said(filled(command, {"RUN": str(runs[1])}), 0)
    world.run_until_idle()

    assert_over(*runs)
    assert len(provider.acts) == 2


# Something was approved by mistake


@pytest.fixture
def approved(world: World) -> tuple[WorkflowRun, Provider]:
    """Approved, and what was approved is about to begin."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 900, "ask": True}, by=person("clerk"))
    world.run_until_idle()
    approve(run, person("boss", "answer_approval"))
    assert provider.sends == []
    return run, provider


def approve(run: WorkflowRun, by: User) -> None:
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=by, facts_digest=request.facts_digest)


@plays("wrong-approval", "look")
def test_wrong_approval_who_decided_what_on_which_facts(approved: tuple[WorkflowRun, Provider], scene: Scene):
    run, _ = approved

    explained, table = scene.rest(RUN=run.pk, WORKFLOW="pay")

    assert "boss" in explained
    assert all(word in table for word in ("boss", "approve", str(run.pk), "900"))


@plays("wrong-approval", "stop it")
def test_wrong_approval_is_stopped_before_anything_is_sent(
    world: World, approved: tuple[WorkflowRun, Provider], scene: Scene
):
    run, provider = approved

    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert (provider.sends, fresh(run).parked_reason) == ([], ParkedReason.PAUSED)


@plays("wrong-approval", "not wanted")
def test_wrong_approval_of_what_is_not_wanted(world: World, approved: tuple[WorkflowRun, Provider], scene: Scene):
    run, provider = approved
    api.pause(run.pk, reason="approved by mistake")

    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert_over(run, state=RunState.CANCELLED)
    assert provider.sends == []
    assert ApprovalDecision.objects.count() == 1


@plays("wrong-approval", "other facts")
def test_wrong_approval_with_other_facts_is_asked_anew(
    world: World, approved: tuple[WorkflowRun, Provider], scene: Scene
):
    run, provider = approved
    api.pause(run.pk, reason="approved by mistake")

    scene.run(RUN=run.pk)
    scene.run(RUN=run.pk)
    scene.run(RUN=run.pk, STEP="sign_off")
    world.run_until_idle()

    assert (provider.sends, open_request(run.pk).binding["amount"]) == ([], 500)
    approve(run, User.objects.get(username="boss"))
    world.run_until_idle()
    assert_over(run)
    assert SideEffect.objects.get(run=run).arguments == {"amount": 500}


@plays("wrong-approval", "undo it")
def test_wrong_approval_of_what_has_happened_is_undone(world: World, scene: Scene):
    from durableflows import succeed

    agency = Agency(end=succeed())
    run = start_trip(agency)
    world.run_until_idle()

    scene.run(RUN=run.pk)
    assert agency.undone == []
    scene.run(RUN=run.pk)
    world.run_until_idle()

    assert_over(run, state=RunState.COMPENSATED)
    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]


@plays("wrong-approval", "undone by hand")
def test_wrong_approval_of_what_can_only_be_undone_by_hand(world: World, scene: Scene):
    from durableflows import Permanent

    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    run = start_trip(agency)
    world.run_until_idle()
    row = SideEffect.objects.get(run=run, effect="hotels.book")
    assert [one.code for one in doctor.examine()] == ["not-undone"]

    scene.rest(EFFECT=row.pk, N=row.row_version)

    assert_over(run, state=RunState.COMPENSATION_FAILED)
    row.refresh_from_db()
    assert row.state == EffectState.UNDONE
