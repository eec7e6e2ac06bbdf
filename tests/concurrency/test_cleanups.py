"""Two removals of old runs, or a removal and an operator, at the same instant: a run is gone once, or goes on whole."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.conf import LazySettings

from durableflows import NotFoundError, api
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.doctor import verify
from durableflows.models import RunEvent, WorkflowRun
from durableflows.services import cleanup
from durableflows.testing import World
from tests.support import attics
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.rivals import Rival, at_once, gate_at

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def failed_long_ago(world: World) -> WorkflowRun:
    run = api.start(parcel_workflow(Depot(handing=[lost_address()]), days=900), {})
    world.run_until_idle()
    world.clock.advance(days=401)
    return run


def remove(world: World, run: WorkflowRun) -> cleanup.Removed | None:
    return cleanup.remove(run.pk, world.clock.now() - timedelta(days=400))


def test_two_removals_at_once_are_one(world: World):
    run = failed_long_ago(world)

    outcomes = at_once(partial(remove, world, run), partial(remove, world, run))

    assert sorted(type(one).__name__ for one in outcomes) == ["NoneType", "Removed"]
    assert not RunEvent.objects.filter(run_id=run.pk).exists()


def test_a_redrive_that_waited_for_a_removal_finds_no_run(world: World):
    run = failed_long_ago(world)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        removing = Rival(partial(remove, world, run)).begin()
        gate.wait()
        redrive = Rival(partial(api.redrive, run.pk, reason="x", step="hand_over")).begin()
        redrive.wait_until_blocked()

    assert isinstance(removing.outcome(), cleanup.Removed)
    assert isinstance(redrive.outcome(), NotFoundError)


def test_a_run_that_an_operator_holds_is_left_alone(world: World):
    run = failed_long_ago(world)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        redrive = Rival(partial(api.redrive, run.pk, reason="x", step="hand_over")).begin()
        gate.wait()
        assert remove(world, run) is None

    assert isinstance(redrive.outcome(), WorkflowRun)
    assert remove(world, run) is None
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert verify(run.pk).findings == ()


@pytest.fixture
def attic(tmp_path: Path, settings: LazySettings) -> Iterator[Path]:
    settings.STORAGES = attics.settings_with(tmp_path, settings.STORAGES)
    yield tmp_path
    attics.Attic.faults.clear()


def archive(world: World, run: WorkflowRun) -> cleanup.Removed | None:
    return cleanup.remove(run.pk, world.clock.now() - timedelta(days=400), archive=attics.ALIAS)


def test_two_that_keep_and_remove_a_run_at_once_keep_it_once(world: World, attic: Path):
    run = failed_long_ago(world)

    outcomes = at_once(partial(archive, world, run), partial(archive, world, run))

    assert sorted(type(one).__name__ for one in outcomes) == ["NoneType", "Removed"], outcomes
    assert [attics.is_whole(path) for path in attics.objects(attic)] == [True]


def test_who_comes_while_another_one_writes_keeps_it_once_whoever_is_first(world: World, attic: Path):
    """The second one finds half an object under the usual name, and is overtaken or overtakes."""
    run, others = failed_long_ago(world), list[cleanup.Removed | None]()

    def slowly(attic: attics.Attic, name: str, data: bytes) -> str | None:
        attic.whole(name, data[:50])
        second = Rival(partial(archive, world, run)).begin()
        path = Path(attic.path(name))
        outcome = second.outcome()
        assert outcome is None or isinstance(outcome, cleanup.Removed), outcome
        others.append(outcome)
        path.write_bytes(data)
        return name

    attics.Attic.faults[:] = [slowly]
    mine = archive(world, run)

    assert [type(one).__name__ for one in (mine, *others)] == ["NoneType", "Removed"]
    kept = attics.objects(attic)
    assert all(map(attics.is_whole, kept))
    assert len({path.read_bytes() for path in kept}) == 1


def test_nobody_is_held_up_while_a_storage_writes(world: World, attic: Path):
    run = failed_long_ago(world)

    def meanwhile(attic: attics.Attic, name: str, data: bytes) -> str | None:
        redriven = Rival(partial(api.redrive, run.pk, reason="x", step="hand_over")).begin().outcome()
        assert isinstance(redriven, WorkflowRun), redriven
        return None

    attics.Attic.faults[:] = [meanwhile]

    assert archive(world, run) is None
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert verify(run.pk).findings == ()
