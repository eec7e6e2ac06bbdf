"""The runbook is played, its commands as they stand, on runs that were brought into its cases: single runs.

S2.41. `tests/contract/test_runbook.py` sees to it that no page and no command is left out.
"""

import pytest

from durableflows import CannotTell, UnknownOutcome, api, claims, doctor
from durableflows.core import registry
from durableflows.core.states import ParkedReason, RunState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.examined import done, handed_over
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.parcels import Depot, parcel_workflow
from tests.support.runbook import Scene, assert_over

pytestmark = pytest.mark.django_db

plays = pytest.mark.plays


# A run is stuck


def broken(world: World, provider: Provider | None = None) -> WorkflowRun:
    """Parked by an error in our code, which is mended since."""
    errors = [KeyError("no such column")]

    def body(run: object) -> None:
        if errors:
            raise errors.pop()

    run = api.start(pay_workflow(provider or Provider(), body=body), {"amount": 5})
    world.run_until_idle()
    assert fresh(run).parked_reason == ParkedReason.OUR_CODE
    return run


@plays("stuck-run", "look")
def test_stuck_run_is_named_by_doctor_list_and_explain(world: World, scene: Scene):
    run = broken(world)

    found, listed, explained = scene.rest(RUN=run.pk)

    assert "attention [parked]" in found
    assert str(run.pk) in listed
    assert "Needs attention, error in our code" in explained


@plays("stuck-run", "parked")
def test_stuck_run_that_is_parked_goes_on_after_the_fix(world: World, scene: Scene):
    provider = Provider()
    run = broken(world, provider)

    assert "nothing was done" in scene.run(RUN=run.pk)
    assert state_of(run) is RunState.PARKED
    scene.run(RUN=run.pk)
    world.run_until_idle()

    assert_over(run)
    assert len(provider.acts) == 1


@plays("stuck-run", "paused and at a limit")
def test_stuck_runs_that_somebody_paused_or_a_limit_ended_go_on(world: World, scene: Scene):
    from durableflows import Budget

    late = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=5)), {})
    world.lose_messages()
    world.clock.advance(days=11)
    world.run_until_idle()
    assert state_of(late) is RunState.DEADLINE_EXCEEDED
    with registry.isolated():
        paused = api.start(pay_workflow(Provider()), {"amount": 5})
        api.pause(paused.pk, reason="by whom?")
        scene.run(PAUSED=paused.pk)
        world.run_until_idle()
    scene.run(ENDED=late.pk)
    world.run_until_idle()

    assert_over(late, paused)


@plays("stuck-run", "not wanted")
def test_stuck_run_that_is_not_wanted_ends(world: World, scene: Scene):
    run = broken(world)

    scene.rest(RUN=run.pk)
    world.run_until_idle()

    assert_over(run, state=RunState.CANCELLED)


@plays("stuck-run", "once by hand")
def test_stuck_runs_that_nobody_sweeps_go_on_after_a_sweep_by_hand(world: World, scene: Scene):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    world.lose_messages()
    world.clock.advance(minutes=5)
    assert {one.code for one in doctor.examine()} == {"no-ticker", "unsent"}

    assert "unsent steps: 1" in scene.run()
    assert [name for name, _ in world.messages] == ["pay.assess"]
    world.run_until_idle()

    assert_over(run)


# An effect is in doubt


@plays("in-doubt", "look")
def test_in_doubt_show_prints_what_a_verdict_needs(world: World, scene: Scene):
    row = SideEffect.objects.get(run=handed_over(world))

    explained, shown = scene.rest(RUN=row.run_id)

    assert "person must find out" in explained
    assert all(str(part) in shown for part in (row.pk, row.key))


def doubtful(world: World, *, acted: bool) -> tuple[SideEffect, Provider]:
    """A person must find out; no request can be on its way any more."""
    error = UnknownOutcome("lost")
    provider = Provider(faults=[act_then_raise(error) if acted else raise_without_acting(error)])
    effect = pay_effect(provider, key_window=None, with_lookup=False)
    run = api.start(pay_workflow(provider, effect), {"amount": 5})
    world.run_until_idle()
    world.clock.advance(minutes=5)
    world.run_until_idle()
    assert {one.code for one in doctor.examine()} >= {"needs-person"}
    return SideEffect.objects.get(run=run), provider


@plays("in-doubt", "it happened")
def test_in_doubt_it_happened(world: World, scene: Scene):
    row, provider = doubtful(world, acted=True)

    scene.rest(EFFECT=row.pk, N=row.row_version)
    world.run_until_idle()

    assert_over(row.run_id)
    assert fresh(row.run).data["receipt_id"] == "re_17"
    assert len(provider.sends) == 1


@plays("in-doubt", "it did not happen")
def test_in_doubt_it_did_not_happen_and_is_sent_again_under_a_new_key(world: World, scene: Scene):
    row, provider = doubtful(world, acted=False)

    scene.rest(EFFECT=row.pk, N=row.row_version)
    world.run_until_idle()

    assert_over(row.run_id)
    assert len(provider.acts) == 1
    assert len(set(provider.sends)) == 2


@plays("in-doubt", "ask again")
def test_in_doubt_the_provider_is_asked_again(world: World, scene: Scene):
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("lost"))])
    provider.lookup_answers = [CannotTell("maintenance")] * 50
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    world.run_through()
    assert StepRun.objects.get(run=run, name="pay").needs_person
    provider.lookup_answers.clear()
    row = SideEffect.objects.get(run=run)

    scene.rest(EFFECT=row.pk, N=row.row_version)
    world.run_through()

    assert_over(run)
    assert len(provider.sends) == 1


@plays("in-doubt", "looked at")
def test_in_doubt_a_contradiction_is_loud_until_somebody_has_looked(world: World, scene: Scene):
    run_id = done(world)
    SideEffect.objects.filter(run=run_id).update(contradiction="a second receipt")
    assert [one.code for one in doctor.examine()] == ["contradiction"]
    row = SideEffect.objects.get(run=run_id)

    scene.rest(EFFECT=row.pk, N=row.row_version)

    assert_over(run_id)


# A step kills its worker


@pytest.fixture
def poisoned(world: World) -> WorkflowRun:
    """Its worker died three times; real ones do in tests/fault/test_killed_workers.py."""
    run = api.start(pay_workflow(Provider()), {"amount": 10**9})
    step = StepRun.objects.get(run=run)
    world.lose_messages()
    for number in range(3):
        assert claims.claim(run.pk, step.pk, task_id=f"t{number}", pid=1) is not None
        assert sweeps.free_lost_tasks([f"t{number}"]) == 1
        world.clock.advance(hours=1)
        sweeps.wake_due(world.clock.now())
    assert state_of(run) is RunState.PARKED
    world.lose_messages()
    return run


@plays("poison-step", "look")
def test_poison_step_is_named_with_how_often_it_killed(poisoned: WorkflowRun, scene: Scene):
    listed, explained, shown = scene.rest(RUN=poisoned.pk)

    assert str(poisoned.pk) in listed
    assert "killed its worker 3 times" in explained
    assert "1000000000" in shown


@plays("poison-step", "correct what it is given")
def test_poison_step_goes_on_with_a_corrected_state(world: World, poisoned: WorkflowRun, scene: Scene):
    scene.rest(RUN=poisoned.pk)
    world.run_until_idle()

    assert_over(poisoned)
    assert SideEffect.objects.get().arguments == {"amount": 5}


@plays("poison-step", "mended")
def test_poison_step_goes_on_when_its_code_is_mended(world: World, poisoned: WorkflowRun, scene: Scene):
    scene.rest(RUN=poisoned.pk)
    world.run_until_idle()

    assert_over(poisoned)


@plays("poison-step", "given up")
def test_poison_step_is_given_up(world: World, poisoned: WorkflowRun, scene: Scene):
    scene.rest(RUN=poisoned.pk)
    world.run_until_idle()

    assert_over(poisoned, state=RunState.CANCELLED)
