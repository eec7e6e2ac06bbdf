"""The runbook is played: its index, the verbs for single runs, and retention.

S2.41. `tests/contract/test_runbook.py` sees to it that no page and no command is left out.
"""

from pathlib import Path

import pytest
from django.conf import LazySettings

from durableflows import Budget, Permanent, UnknownOutcome, api, doctor
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support import attics
from tests.support.examined import cancelled, done, parked
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.refunds import person
from tests.support.runbook import Scene, assert_over
from tests.support.trips import Agency
from tests.support.trips import start as start_trip
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db

plays = pytest.mark.plays

# The index


@plays("runbook", "look first")
def test_look_first(world: World, scene: Scene):
    run_id = parked(world)

    health = scene.run(code=1)
    found, *_, shown = scene.rest(RUN=run_id)

    assert "red  workers" in health
    assert "attention [parked]" in found
    assert "effects:" in shown


@plays("runbook", "prove")
def test_prove(world: World, scene: Scene):
    run_id = done(world)

    for text in scene.rest(RUN=run_id):
        assert "all of it agrees" in text
    assert_over(run_id)


@plays("runbook", "what it would do")
def test_what_it_would_do(world: World, scene: Scene):
    pay_workflow(Provider())

    plan, graph, matrix, states = scene.rest(WORKFLOW="pay")

    assert "sign_off" in plan
    assert all("flowchart" in text or "stateDiagram" in text for text in (graph, states))
    assert "pay" in matrix
    assert not WorkflowRun.objects.exists()


# Act on runs


@plays("act-on-runs", "stop and go")
def test_stop_and_go(world: World, scene: Scene):
    depot = Depot()
    run = api.start(parcel_workflow(depot, limits=Budget(tool_calls=5)), {})

    scene.run(RUN=run.pk)
    world.run_until_idle()
    assert depot.ran == []
    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert_over(run)


@plays("act-on-runs", "redrive")
def test_redrive(world: World, scene: Scene):
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    assert state_of(run) is RunState.FAILED

    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert_over(run)
    assert len(depot.carrier.acts) == 1


@plays("act-on-runs", "tell it")
def test_tell_it(world: World, scene: Scene):
    run_id = waiting(world, "signal")

    scene.rest(RUN=run_id)
    world.run_until_idle()

    assert_over(run_id)


@plays("act-on-runs", "correct it")
def test_correct_it(world: World, scene: Scene):
    run = api.start(parcel_workflow(Depot()), {"ask": True})
    world.run_until_idle()
    api.pause(run.pk, reason="she moved")
    checkpoint = fresh(run).checkpoint_sequence

    assert f"checkpoint_sequence: {checkpoint}" in scene.run(RUN=run.pk)
    assert "nothing was done" in scene.run(RUN=run.pk, N=checkpoint)
    scene.run(RUN=run.pk, N=checkpoint)

    assert fresh(run).data["note_id"] == "9 Elm Road"
    api.cancel(run.pk, reason="seen")
    assert_over(run, state=RunState.CANCELLED)


@plays("act-on-runs", "give it up")
def test_give_it_up(world: World, scene: Scene):
    person("anna", "operate_run")
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False)), {"amount": 5})
    world.run_until_idle()

    scene.rest(RUN=run.pk, USER="anna")

    assert (state_of(run), fresh(run).heir_name) == (RunState.ABANDONED, "anna")
    assert [one.code for one in doctor.examine()] == ["inherited"]
    world.clock.advance(minutes=5)
    row = SideEffect.objects.get(run=run)
    api.resolve_effect(row.pk, "happened", reason="found it", row_version=row.row_version, receipt={"id": "re_1"})
    assert_over(run, state=RunState.ABANDONED)


@plays("act-on-runs", "undo the rest")
def test_undo_the_rest(world: World, scene: Scene):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    run = start_trip(agency)
    world.run_until_idle()
    assert [one.code for one in doctor.examine()] == ["not-undone"]

    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert_over(run, state=RunState.COMPENSATED)
    assert SideEffect.objects.get(run=run, effect="hotels.book").state == EffectState.UNDONE


# Remove old runs


@plays("remove-old-runs", "look")
def test_what_would_be_removed(world: World, scene: Scene):
    done(world)
    world.clock.advance(days=401)

    assert "nothing was done; 1 runs" in scene.run()


@plays("remove-old-runs", "remove")
def test_removed_by_age_and_state(world: World, scene: Scene):
    done(world), cancelled(world)
    world.clock.advance(days=100)

    scene.run(WORKFLOW="pay")
    assert [run.state for run in WorkflowRun.objects.all()] == [RunState.CANCELLED]
    world.clock.advance(days=301)
    scene.run()

    assert not WorkflowRun.objects.exists()
    assert doctor.examine() == ()


@plays("remove-old-runs", "keep them first")
def test_kept_first(world: World, scene: Scene, tmp_path: Path, settings: LazySettings):
    settings.STORAGES = attics.settings_with(tmp_path, settings.STORAGES)
    done(world)
    world.clock.advance(days=401)

    scene.run(ALIAS=attics.ALIAS)
    assert attics.objects(tmp_path) == []
    scene.run(ALIAS=attics.ALIAS)

    assert [attics.is_whole(path) for path in attics.objects(tmp_path)] == [True]
    assert not WorkflowRun.objects.exists()
