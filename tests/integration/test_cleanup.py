"""`cleanup` removes what ended long ago, all of it; and nothing that somebody may still need."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.apps import apps
from django.core.files.storage import storages
from django.db import connection
from django.db.models.signals import pre_delete
from django.test.utils import CaptureQueriesContext

from durableflows import InvalidState, Permanent, Run, StepReturn, TooLate, UnknownOutcome, Workflow, api, child, step
from durableflows.core.states import RunState
from durableflows.doctor import examine, verify
from durableflows.management import cleanups
from durableflows.models import Artifact, ProviderEvent, SideEffect, WorkflowRun
from durableflows.services import cleanup
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.integration.test_command import data, said
from tests.integration.test_references import storage  # noqa: F401 - a fixture
from tests.integration.test_verify import child_ended, keeping
from tests.support.examined import absent, asking, cancelled, done, in_doubt, parked, ready
from tests.support.flows import act_then_raise, raise_without_acting
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.trips import Agency
from tests.support.trips import start as start_trip
from tests.support.waits import Way, waiting

pytestmark = pytest.mark.django_db(transaction=True)

LONG = ("--older-than", "400d")
LATER = timedelta(days=401)


def rows() -> dict[str, int]:
    """How many rows each of the engine's tables has."""
    return {
        model.__name__: model._default_manager.count()
        for model in apps.get_app_config("durableflows").get_models()
        if model.__name__ not in ("Worker", "Breaker", "BreakerChange", "PinnedContent")
    }


def old(world: World, *stages: Callable[[World], UUID]) -> list[UUID]:
    ids = [stage(world) for stage in stages]
    world.clock.advance(seconds=LATER.total_seconds())
    return ids


def all_of_one(world: World) -> UUID:
    """A run with a row in as many tables as a run can have."""
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {"rounds": 1})
    world.run_until_idle()
    api.redrive(run.pk, reason="x", step="pay", repeat=("post.pay",))
    world.run_until_idle()
    effect = SideEffect.objects.filter(run=run)[0]
    ProviderEvent.objects.create(
        provider="post", event_id="e1", body_digest="x", arrived_at=run.created_at, effect=effect
    )
    return run.pk


def test_everything_of_a_run_that_ended_long_ago_goes(world: World, storage: Path):  # noqa: F811
    old(world, all_of_one, keeping, cancelled)
    name = Artifact.objects.get().storage_name
    events = sum(WorkflowRun.objects.values_list("event_sequence", flat=True))

    shown = data("cleanup", *LONG)

    assert (shown["runs"], shown["events"], shown["files"], shown["kept"]) == (3, events, 1, {})
    assert set(rows().values()) == {0}
    assert not storages["artifacts"].exists(name)


def test_branches_and_their_items_go(world: World):
    run_id = waiting(world, "turn")
    api.cancel(run_id, reason="x")
    old(world)

    assert data("cleanup", *LONG)["runs"] == 1
    assert set(rows().values()) == {0}


def test_a_dry_run_changes_nothing_and_says_how_many(world: World):
    old(world, done, child_ended, in_doubt)
    before = rows()

    text = said("cleanup", *LONG, "--dry-run")
    shown = data("cleanup", *LONG, "--dry-run")

    assert "nothing was done; 3 runs that ended before" in text
    assert "1 of them are children of others" in text
    assert (shown["removable"], shown["children"]) == (3, 1)
    assert rows() == before


def test_what_ended_lately_or_has_not_ended_stays(world: World):
    ids = old(world, parked, asking, in_doubt, ready)
    ids.append(done(world))

    assert data("cleanup", *LONG)["runs"] == 0
    assert WorkflowRun.objects.filter(pk__in=ids).count() == 5


def abandoned(world: World) -> UUID:
    depot = Depot()
    depot.carrier.faults.append(act_then_raise(UnknownOutcome("cut")))
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    from django.contrib.auth.models import User

    api.abandon(run.pk, reason="x", heir=User.objects.create_superuser("heir"))
    return run.pk


def to_be_audited(world: World) -> UUID:
    run_id = absent(world)
    api.cancel(run_id, reason="x")
    assert SideEffect.objects.get(run=run_id).audit_at is not None
    return run_id


def contradicted(world: World) -> UUID:
    run_id = done(world)
    SideEffect.objects.filter(run=run_id).update(contradiction="a second receipt")
    return run_id


def not_undone(world: World) -> UUID:
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    run = start_trip(agency)
    world.run_until_idle()
    return run.pk


def with_a_living_child(world: World) -> UUID:
    run_id = waiting(world, "child")
    api.cancel(run_id, reason="x")
    assert WorkflowRun.objects.get(parent_id=run_id).ended_at is None
    return run_id


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (abandoned, "an effect of it is not settled"),
        (to_be_audited, "an effect of it is looked up once more"),
        (contradicted, "a person has to look at a contradiction"),
        (not_undone, "a person has to say what became of what could not be undone"),
        (with_a_living_child, "a run that it has started goes on"),
    ],
)
def test_what_somebody_may_still_need_is_kept_and_the_reason_said(world: World, stage, why: str):
    (run_id,) = old(world, stage)
    assert WorkflowRun.objects.get(pk=run_id).ended_at is not None

    shown = data("cleanup", *LONG)

    assert (shown["runs"], shown["kept"]) == (0, {why: 1})
    assert f"1 are kept: {why}" in said("cleanup", *LONG, "--dry-run")
    assert cleanup.remove(run_id, world.clock.now()) is None  # picked before, by somebody who comes late
    assert WorkflowRun.objects.filter(pk=run_id).exists()


def test_a_child_goes_after_the_run_that_has_started_it(world: World):
    """A parent that is redriven would start a child again that is gone."""
    (parent,) = old(world, child_ended)
    child = WorkflowRun.objects.get(parent_id=parent).pk
    before = world.clock.now() - timedelta(days=400)

    assert cleanup.remove(child, before) is None
    with crash_at(Boundary.OPERATE_AFTER_COMMIT), pytest.raises(Crash):
        cleanup.remove(parent, before)

    assert not WorkflowRun.objects.filter(pk=parent).exists()
    assert WorkflowRun.objects.get(pk=child).parent_id is None
    assert (verify().findings, [one.text for one in examine() if one.severity == "broken"]) == ((), [])
    assert data("cleanup", *LONG)["runs"] == 1
    assert set(rows().values()) == {0}


def test_the_end_of_a_child_is_final_when_the_run_that_has_started_it_is_gone(world: World):
    """What that one made of the child's failure, it has done: the child would act once more for nobody."""

    class Kid(Workflow[Way]):
        name, deadline = "kid", timedelta(days=900)

        @step(start=True, end=True)
        def act(self, run: Run[Way]) -> None:
            raise Permanent("no")

    class Starting(Workflow[Way]):
        name, deadline = "starting", timedelta(days=900)

        @step(start=True, to="done")
        def begin(self, run: Run[Way]) -> StepReturn:
            return child("kid", {}, then=self.done)

        @step(end=True)
        def done(self, run: Run[Way]) -> None: ...

    parent = api.start(Starting, {})
    world.run_until_idle()
    kid = WorkflowRun.objects.get(parent=parent)
    world.clock.advance(days=30)
    assert cleanup.remove(parent.pk, world.clock.now() - timedelta(days=10)) is not None

    with pytest.raises(TooLate, match="which is removed, has gone on without it"):
        api.redrive(kid.pk, reason="again", step="act")


def test_a_child_of_a_run_that_stays_stays(world: World):
    parent = waiting(world, "child")
    child = WorkflowRun.objects.get(parent_id=parent)
    api.signal(child.pk, "begin")
    world.run_until_idle()
    WorkflowRun.objects.filter(pk=parent).update(ended_at=world.clock.now() + timedelta(days=100))
    old(world)

    shown = data("cleanup", *LONG)

    assert (shown["runs"], shown["kept"]) == (0, {"the run that has started it is kept, or goes first": 1})


def test_before_the_commit_nothing_is_gone(world: World, storage: Path):  # noqa: F811
    (run_id,) = old(world, keeping)
    before = rows()

    with crash_at(Boundary.OPERATE_BEFORE_COMMIT), pytest.raises(Crash):
        cleanup.remove(run_id, world.clock.now() - timedelta(days=400))

    assert rows() == before
    assert verify(run_id).findings == ()


def test_a_file_that_cannot_be_removed_is_named_and_the_run_is_gone(
    world: World,
    storage: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    old(world, keeping)
    name = Artifact.objects.get().storage_name
    path = Path(storages["artifacts"].path(name))
    path.unlink()
    (path / "in the way").mkdir(parents=True)

    shown = data("cleanup", *LONG, code=1)

    assert (shown["runs"], shown["files"], shown["files_left"]) == (1, 0, [name])
    assert set(rows().values()) == {0}


@pytest.fixture
def invoices():
    """A table of the project whose rows forbid that their run goes."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE invoice (run_id uuid REFERENCES durableflows_workflowrun (id))")
    yield make_invoice
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE invoice")


def make_invoice(run_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO invoice VALUES (%s)", [run_id])


def test_a_row_of_the_project_may_keep_its_run(world: World, invoices: Callable[[UUID], None]):
    kept, _ = old(world, done, done)
    invoices(kept)

    shown = data("cleanup", *LONG, code=1)

    assert (shown["runs"], [row["run"] for row in shown["failed"]]) == (1, [str(kept)])
    assert 'table "invoice"' in shown["failed"][0]["message"]
    assert WorkflowRun.objects.filter(pk=kept).exists()
    assert verify(kept).findings == ()


@pytest.fixture
def receiver():
    """A receiver of the project that fails for some runs."""
    fails: set[UUID] = set()

    def refuse(instance: WorkflowRun, **_: object) -> None:
        if instance.pk in fails:
            raise ValueError("the ledger of the year is closed")

    pre_delete.connect(refuse, sender=WorkflowRun)
    yield fails
    pre_delete.disconnect(refuse, sender=WorkflowRun)


def test_a_run_that_cannot_be_removed_keeps_no_other_from_going(world: World, receiver: set[UUID]):
    bad, _ = sorted(old(world, done, done))
    receiver.add(bad)

    shown = data("cleanup", *LONG, code=1)

    assert (shown["runs"], [row["run"] for row in shown["failed"]]) == (1, [str(bad)])
    assert shown["failed"][0]["message"] == "ValueError: the ledger of the year is closed"
    assert verify(bad).findings == ()


def test_what_may_go_is_read_a_page_at_a_time(world: World, receiver: set[UUID], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cleanups, "BATCH", 2)
    ids = sorted(old(world, done, done, done, done, done))
    receiver.add(ids[1])

    with CaptureQueriesContext(connection) as asked:
        assert data("cleanup", *LONG, "--limit", "1")["runs"] == 1
    shown = data("cleanup", *LONG, code=1)

    pages = [one["sql"] for one in asked if one["sql"].startswith('SELECT "durableflows_workflowrun"."id" AS "pk"')]
    assert [sql.endswith("LIMIT 2") for sql in pages] == [True]
    assert (shown["runs"], [row["run"] for row in shown["failed"]]) == (3, [str(ids[1])])


def test_each_removal_is_a_line_in_the_log(world: World, caplog: pytest.LogCaptureFixture):
    (run_id,) = old(world, done)

    with caplog.at_level(logging.INFO, "durableflows.cleanup"):
        data("cleanup", *LONG)

    (line,) = [one.getMessage() for one in caplog.records if one.name == "durableflows.cleanup"]
    assert line.startswith(f"removed pay run={run_id} key='' SUCCEEDED")


def test_only_what_was_asked_for(world: World):
    old(world, done, done, cancelled)

    assert data("cleanup", *LONG, "--workflow", "other")["runs"] == 0
    assert data("cleanup", *LONG, "--limit", "1")["runs"] == 1
    assert data("cleanup", *LONG, "--workflow", "pay")["runs"] == 2
    assert data("cleanup", *LONG) == {**data("cleanup", *LONG), "runs": 0}


@pytest.mark.parametrize("span", ["0d", "23h", "2500-01-01T00:00Z"])
def test_what_has_just_ended_is_not_removed(world: World, span: str):
    run_id = done(world)

    assert "a day ago or earlier" in said("cleanup", "--older-than", span, code=1)
    with pytest.raises(InvalidState):
        cleanup.check_moment(world.clock.now(), world.clock.now())
    assert WorkflowRun.objects.get(pk=run_id).state == RunState.SUCCEEDED
