"""The runbook is played, its commands as they stand, on runs brought into its cases: providers, restores, keys.

S2.41. `tests/contract/test_runbook.py` sees to it that no page and no command is left out.
"""

from uuid import UUID

import pytest
from django.db import transaction

from durableflows import CredentialsRefused, api, doctor
from durableflows.core.states import ParkedReason, RunState
from durableflows.models import SideEffect, StepRun
from durableflows.testing import World, run_step
from tests.integration.test_rotate import BOTH, NEW, OLD, keys
from tests.support.examined import done, with_a_person
from tests.support.flows import Provider, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh
from tests.support.payers import DOWN, NAME, breaker, held, start_many, states
from tests.support.runbook import Scene, assert_over

pytestmark = pytest.mark.django_db

plays = pytest.mark.plays


# A provider is down


def at_pay(runs: list[UUID]) -> list[StepRun]:
    """Bring the runs to their payment, which has not begun."""
    for run in runs:
        run_step(run, "assess")
    return [StepRun.objects.get(run=run, name="pay") for run in runs]


def left_alone(world: World, provider: Provider) -> list[UUID]:
    provider.faults += [DOWN] * 5
    runs = start_many(provider, 6)
    world.run_until_idle()
    assert (breaker().state, len(held())) == ("open", 1)
    return runs


@plays("provider-down", "look")
def test_provider_down_says_how_it_stands_and_who_waits(world: World, scene: Scene):
    left_alone(world, Provider())

    for text in scene.rest(PROVIDER=NAME):
        assert "open" in text
    assert "provider-open" in {one.code for one in doctor.examine()}


@plays("provider-down", "it is back")
def test_provider_down_is_back_and_all_go_on(world: World, scene: Scene):
    provider = Provider()
    runs = left_alone(world, provider)

    scene.rest(PROVIDER=NAME)
    world.run_through()

    assert_over(*runs)
    assert len(provider.acts) == len(runs)


@plays("provider-down", "maintenance")
def test_provider_down_for_maintenance_is_sent_nothing(world: World, scene: Scene):
    provider = Provider()
    runs = start_many(provider, 3)
    at_pay(runs)

    scene.run(PROVIDER=NAME)
    world.run_until_idle()
    assert (provider.sends, len(held())) == ([], 3)
    world.clock.advance(hours=2)
    scene.run(PROVIDER=NAME)
    world.run_through()

    assert_over(*runs)


@plays("provider-down", "credentials")
def test_provider_down_for_credentials_goes_on_with_the_new_key(world: World, scene: Scene):
    provider = Provider(faults=[raise_without_acting(CredentialsRefused("api key expired"))])
    runs = start_many(provider, 3)
    world.run_until_idle()
    assert "provider-paused" in {one.code for one in doctor.examine()}

    scene.rest(PROVIDER=NAME)
    world.run_through()

    assert_over(*runs)


@plays("provider-down", "more time")
def test_provider_down_past_a_deadline_and_the_run_goes_on(world: World, scene: Scene):
    provider = Provider()
    [run] = start_many(provider, 1)
    at_pay([run])
    api.pause_provider(NAME, reason="maintenance")
    world.run_until_idle()
    world.clock.advance(days=15)
    world.run_until_idle()
    assert states([run]) == {RunState.DEADLINE_EXCEEDED}
    api.resume_provider(NAME, reason="over")

    scene.rest(RUN=run)
    world.run_through()

    assert_over(run)


# PostgreSQL


@plays("postgresql-fail-over", "older than the world")
def test_rows_that_are_older_than_the_world_pay_nothing_twice(world: World, scene: Scene):
    """A provider without keys, which nothing but a person's look at its books protects."""
    provider = Provider(keyed=False)
    runs = start_many(provider, 2, pay_effect(provider, key_window=None))
    paid, _ = at_pay(runs)
    backup = transaction.savepoint()
    run_step(paid.run_id, "pay")
    assert len(provider.acts) == 1
    transaction.savepoint_rollback(backup)
    world.lose_messages()
    world.clock.advance(minutes=20)

    scene.run()  # verify
    scene.run(PROVIDER=NAME)
    scene.run()  # sweep
    world.run_until_idle()
    assert len(provider.sends) == 1
    scene.run(RUN=paid.run_id)
    scene.run(PROVIDER=NAME)
    world.run_through()

    other = next(run for run in runs if run != paid.run_id)
    assert_over(other)
    assert states([paid.run_id]) == {RunState.CANCELLED}
    assert len(provider.acts) == 2


# A key is changed


@plays("key-rotation", "look")
def test_key_rotation_says_which_key_seals_how_much(world: World, scene: Scene):
    with keys(OLD):
        done(world)
    with keys(BOTH):
        assert "1 runs would be sealed anew" in scene.run()


@plays("key-rotation", "rotate")
def test_key_rotation_seals_all_anew_and_the_old_key_may_go(world: World, scene: Scene):
    with keys(OLD):
        ended, waits = done(world), with_a_person(world)
    with keys(BOTH):
        scene.run()
        scene.run()
        assert "key 'k1' seals nothing: it may be taken away" in scene.run()
    with keys(NEW):
        row = SideEffect.objects.get(run=waits)
        world.clock.advance(minutes=5)
        row.refresh_from_db()
        api.resolve_effect(row.pk, "happened", reason="x", row_version=row.row_version, receipt={"id": "re_1"})
        world.run_until_idle()

        assert_over(ended, waits)


@plays("key-rotation", "a key is gone")
def test_key_rotation_that_took_a_key_too_early_is_mended(world: World, scene: Scene):
    with keys(OLD):
        run = api.start(pay_workflow(Provider()), {"amount": 5})
    with keys(NEW):
        world.run_until_idle()
        assert fresh(run).parked_reason == ParkedReason.INTEGRITY
        assert "key-gone" in {one.code for one in doctor.examine()}
    with keys(BOTH):
        scene.rest(RUN=run.pk)
        world.run_until_idle()
    with keys(NEW):
        assert_over(run)
