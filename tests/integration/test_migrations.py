"""A run goes on under the version it began with, or by a declared migration, or it stops visibly (P8, R36)."""

from datetime import timedelta

import pytest

from durableflows import (
    InvalidDefinition,
    InvalidState,
    NotAllowed,
    Run,
    TooLate,
    Workflow,
    api,
    doctor,
    gate,
    migration,
    sleep,
    step,
)
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.integration.test_command import said
from tests.support.flows import Provider
from tests.support.look import fresh, state_of, steps_of
from tests.support.play import assert_chain
from tests.support.releases import New, Old
from tests.support.stages import (
    STAGES,
    asking,
    deployed,
    finish,
    in_doubt,
    pass_time_with_a_worker_of_the_new_code,
    retrying,
)
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss(django_user_model):
    return django_user_model.objects.create_superuser("boss")


@pytest.mark.parametrize("stage", STAGES)
def test_with_the_old_version_still_there_a_run_goes_on_under_it(world: World, stage, boss):
    """R36: the highest version is for new runs only."""
    provider = Provider()
    with deployed(provider, 1):
        run = stage(world, provider)
    with deployed(provider, 1, 2):
        finish(world, run, boss)

        assert state_of(run) is RunState.SUCCEEDED
        assert fresh(run).version == 1
        assert steps_of(run)[-1][0] == "note"
        assert api.start("paying", {"cents": 500}).version == 2
    assert len(provider.acts) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_goes_on_by_a_declared_migration_and_nothing_happens_twice(world: World, stage, boss):
    """R36: no step that is done runs again, none is skipped; a step keeps its effects under its new name."""
    provider = Provider()
    with deployed(provider, 1):
        run = stage(world, provider)
    with deployed(provider, 2):
        api.migrate(run.pk, reason="deploy")
        finish(world, run, boss)

        assert state_of(run) is RunState.SUCCEEDED
        assert fresh(run).version == 2
        assert fresh(run).data["cents"] == 500
        assert [name for name, _, _ in steps_of(run)].count("pay_out") == 1
        assert steps_of(run)[-1][0] == "close"
        assert not [one for one in doctor.examine() if one.severity is doctor.Severity.BROKEN]
    assert len(provider.acts) == 1
    assert len(set(provider.sends)) == 1


def test_a_parked_run_goes_on_as_soon_as_it_is_migrated(world: World):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with deployed(provider, 2):
        pass_time_with_a_worker_of_the_new_code(world)
        assert fresh(run).parked_reason == "incompatible release"

        api.migrate(run.pk, reason="deploy")
        world.run_until_idle()

        assert state_of(run) is RunState.SUCCEEDED
        assert RunEvent.objects.get(run=run, kind="run.migrated").data["steps"] == {"pay": "pay_out"}


def test_a_run_at_which_a_worker_is_is_not_migrated(world: World):
    provider = Provider()
    with deployed(provider, 1):
        run = api.start("paying", {"amount": 5})
        StepRun.objects.filter(run=run).update(
            state="RUNNING", lease_token=run.pk, must_end_by=world.clock.now(), resend_at=None
        )
    with deployed(provider, 2), pytest.raises(TooLate, match="a worker is at begin"):
        api.migrate(run.pk, reason="deploy")

    assert fresh(run).version == 1


def test_a_step_without_a_place_in_the_new_version_is_refused_and_nothing_is_done(world: World):
    provider = Provider()

    def same(self, data):
        return data

    with deployed(provider, 1):
        run = retrying(world, provider)
    with registry.isolated():

        class Short(Workflow[Old]):
            name, version, deadline = "paying", 2, timedelta(days=1)
            from_1 = migration(from_version=1)(same)

            @step(start=True, end=True)
            def begin(self, run: Run[Old]) -> None: ...

        with pytest.raises(InvalidState, match="has no step for pay"):
            api.migrate(run.pk, reason="deploy")

    assert (fresh(run).version, fresh(run).data["amount"]) == (1, 5)


def gathering(number: int, *, is_join: bool) -> None:
    """Two branches, one of which sleeps, and a step at which they meet, or do not."""

    class Gathering(Workflow[Old]):
        name, version, deadline = "gathering", number, timedelta(days=1)

        if number > 1:

            @migration(from_version=1)
            def from_1(self, data):
                return data

        @step(start=True, to=("rest", "gather"))
        def split(self, run: Run[Old]):
            return [sleep(timedelta(hours=1), then=self.rest), self.gather]

        @step(to="gather")
        def rest(self, run: Run[Old]) -> None: ...

        @step(join=is_join, end=True)
        def gather(self, run: Run[Old]) -> None: ...


def test_a_join_that_waits_is_not_migrated_to_a_step_that_is_none(world: World):
    with registry.isolated():
        gathering(1, is_join=True)
        run = api.start("gathering", {"amount": 5})
        world.run_until_idle()
    with registry.isolated():
        gathering(2, is_join=False)

        with pytest.raises(InvalidState, match="gather waits for the branches that lead to it, and is no join"):
            api.migrate(run.pk, reason="deploy")

    assert fresh(run).version == 1


def test_two_steps_that_the_run_has_been_at_do_not_become_one(world: World):
    """P3: both visits would have one number, and keys are made of it."""
    provider = Provider()

    def same(self, data):
        return data

    with deployed(provider, 1):
        run = retrying(world, provider)
    with registry.isolated():

        class Merged(Workflow[Old]):
            name, version, deadline = "paying", 2, timedelta(days=1)
            from_1 = migration(from_version=1, steps={"pay": "begin"})(same)

            @step(start=True, end=True)
            def begin(self, run: Run[Old]) -> None: ...

        with pytest.raises(
            InvalidState, match="has been at begin and at pay, which the migration makes one step, begin"
        ):
            api.migrate(run.pk, reason="deploy")

    assert (fresh(run).version, steps_of(run)[1][0]) == (1, "pay")


def test_a_migration_whose_code_fails_is_refused_in_words_and_the_others_are_moved_all_the_same(world: World):
    """A bug in one migration is a refusal of one run, not the end of the command that moves them all."""
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with registry.isolated():

        class Failing(Workflow[New]):
            name, version, deadline = "paying", 2, timedelta(days=1)

            @migration(from_version=1)
            def stumble(self, data):
                return {**data, "amount": data["no such field"]}

            @step(start=True, end=True)
            def pay(self, run: Run[New]) -> None: ...

        with pytest.raises(InvalidState, match=r"paying from version 1 to 2 fails on this run's state: KeyError"):
            api.migrate(run.pk, reason="deploy")
        told = said("migrate", "--workflow", "paying", "--reason", "deploy", code=1)
        seen = said("migrate", str(run.pk), "--dry-run", "--reason", "deploy", code=1)

    assert "0 migrated, 1 not" in told
    assert "nothing was done; migrate would be refused" in seen
    assert fresh(run).version == 1


def test_a_state_that_does_not_fit_is_refused(world: World):
    provider = Provider()
    with deployed(provider, 1):
        run = retrying(world, provider)
    with registry.isolated():

        class Wrong(Workflow[New]):
            name, version, deadline = "paying", 2, timedelta(days=1)

            @migration(from_version=1)
            def keep(self, data):
                return data

            @step(start=True, end=True)
            def pay(self, run: Run[New]) -> None: ...

        with pytest.raises(InvalidState, match="cents"):
            api.migrate(run.pk, reason="deploy")

    assert fresh(run).version == 1


@pytest.mark.parametrize("boundary", [Boundary.OPERATE_BEFORE_COMMIT, Boundary.OPERATE_AFTER_COMMIT])
def test_a_process_that_dies_in_a_migration_has_done_it_as_a_whole_or_not_at_all(world: World, boundary: Boundary):
    with deployed(provider := Provider(), 1):
        run = asking(world, provider)
    with deployed(provider, 1, 2):
        with crash_at(boundary), pytest.raises(Crash):
            api.migrate(run.pk, reason="deploy")

        is_done = boundary is Boundary.OPERATE_AFTER_COMMIT
        assert fresh(run).version == (2 if is_done else 1)
        assert RunEvent.objects.filter(run=run, kind="run.migrated").count() == is_done
        if not is_done:
            assert api.migrate(run.pk, reason="deploy").version == 2
        assert_chain(fresh(run))


def test_only_operators_migrate(world: World, django_user_model):
    provider = Provider()
    clerk = django_user_model.objects.create_user("clerk")
    with deployed(provider, 1):
        run = api.start("paying", {"amount": 5}, by=clerk)
    with deployed(provider, 2), pytest.raises(NotAllowed, match="may not migrate"):
        api.migrate(run.pk, by=clerk, reason="deploy")


@pytest.mark.parametrize(
    ("from_version", "steps", "says"),
    [
        (2, {}, "from version 2 to version 2"),
        (1, {"pay": "payy"}, "'payy', which is no step"),
        (0, {}, "a whole number from 1"),
    ],
)
def test_a_migration_that_leads_nowhere_is_refused_at_import(from_version: int, steps: dict[str, str], says: str):
    with registry.isolated(), pytest.raises(InvalidDefinition, match=says):

        class Wrong(Workflow[Old]):
            name, version, deadline = "paying", 2, timedelta(days=1)

            @migration(from_version=from_version, steps=steps)
            def keep(self, data):
                return data

            @step(start=True, end=True)
            def pay(self, run: Run[Old]) -> None: ...


# --- the gate


def test_the_gate_is_open_for_the_same_code(world: World):
    provider = Provider()
    with deployed(provider, 1):
        retrying(world, provider)

        verdict = gate.examine()

    assert (verdict.runs, verdict.is_open, verdict.obstacles) == (1, True, ())


def test_the_gate_closes_when_a_version_is_gone(world: World):
    provider = Provider()
    with deployed(provider, 1):
        runs = [retrying(world, provider), api.start("paying", {"amount": 6})]
    with deployed(provider, 2, with_migration=False):
        verdict = gate.examine()

    assert not verdict.is_open
    [obstacle] = verdict.obstacles
    assert (obstacle.runs, obstacle.version, obstacle.stops) == (2, 1, True)
    assert obstacle.example in {run.pk for run in runs}
    assert "declare @migration(from_version=1)" in obstacle.cure


def test_the_gate_names_what_a_migration_will_do(world: World):
    provider = Provider()
    with deployed(provider, 1):
        retrying(world, provider)
    with deployed(provider, 2):
        verdict = gate.examine()

    assert verdict.is_open
    assert "can migrate it to version 2" in verdict.obstacles[0].text


def test_the_gate_closes_when_the_same_version_has_other_steps(world: World):
    provider = Provider()
    with deployed(provider, 1):
        retrying(world, provider)
    with registry.isolated():

        class Paying(Workflow[Old]):
            name, version, deadline = "paying", 1, timedelta(days=1)

            @step(start=True, end=True)
            def begin(self, run: Run[Old]) -> None: ...

        verdict = gate.examine()

    assert not verdict.is_open
    assert "under the same version" in verdict.obstacles[0].text


def test_the_gate_closes_for_an_unsettled_effect_of_another_version(world: World):
    provider = Provider()
    with deployed(provider, 1):
        run = in_doubt(world, provider)
        SideEffect.objects.filter(run=run).update(effect_version=7)

        verdict = gate.examine()

    assert not verdict.is_open
    assert "test.pay version 7 is unsettled" in verdict.obstacles[0].text


def test_the_gate_does_not_look_at_runs_that_have_ended(world: World):
    provider = Provider()
    with deployed(provider, 1):
        api.start("paying", {"amount": 5})
        world.run_until_idle()
    with registry.isolated():
        assert gate.examine().runs == 0


def test_a_timeout_that_leads_to_unknown_code_parks_the_run(world: World):
    """P10: where the run goes on to is in a declaration that no worker has any more."""
    with registry.isolated():
        run_id = waiting(world, "signal in time")
    world.clock.advance(days=2)
    pass_time_with_a_worker_of_the_new_code(world)

    assert WorkflowRun.objects.get(pk=run_id).parked_reason == "incompatible release"
