"""`cleanup --archive`: a run is kept whole before it goes; what fails between leaves it, and nothing comes twice."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import LazySettings
from django.core.files.storage import storages

from durableflows import api
from durableflows.checks import check_settings
from durableflows.core.states import RunState
from durableflows.models import Artifact, ProviderEvent, RunEvent, WorkflowRun
from durableflows.services import cleanup
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.integration.test_cleanup import LATER, LONG, all_of_one, old, rows
from tests.integration.test_command import data, said
from tests.integration.test_references import storage  # noqa: F401 - a fixture
from tests.integration.test_verify import child_ended, keeping
from tests.support import attics
from tests.support.attics import ALIAS, Attic, artifact, half_then_refuse, is_whole, lose_a_byte, objects, read, refuse
from tests.support.examined import asking, cancelled, done
from tests.support.flows import Provider, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

TO = (*LONG, "--archive", ALIAS)


@pytest.fixture(autouse=True)
def attic(tmp_path: Path, settings: LazySettings, storage: Path) -> Iterator[Path]:  # noqa: F811
    """A folder for archives, beside the one of artifacts."""
    folder = tmp_path / "attic"
    settings.STORAGES = attics.settings_with(folder, settings.STORAGES)
    yield folder
    Attic.faults.clear()


def stays(run_id: UUID) -> bool:
    return WorkflowRun.objects.filter(pk=run_id).exists()


def approved(world: World) -> UUID:
    """A run with people's rows."""
    from django.contrib.auth.models import User

    run_id = asking(world)
    request = WorkflowRun.objects.get(pk=run_id).requests.get()
    api.answer(request.pk, "approve", by=User.objects.create_superuser("boss"), facts_digest=request.facts_digest)
    world.run_until_idle()
    return run_id


def test_every_row_and_artifact_is_kept_before_it_goes(world: World, attic: Path):
    ids = old(world, all_of_one, keeping, cancelled, approved, child_ended)
    (kept,) = Artifact.objects.all()
    before, runs = rows(), WorkflowRun.objects.count()

    shown = data("cleanup", *TO)

    assert (shown["runs"], shown["archived"], shown["failed"], shown["kept"]) == (runs, runs, [], {})
    assert set(rows().values()) == {0}
    found = objects(attic)
    assert len(found) == runs
    lines = [line for path in found for line in read(path)]
    tables = Counter(line["table"] for line in lines if "table" in line)
    assert {name.lower(): count for name, count in before.items() if count} == tables
    heads = [line for line in lines if "format" in line]
    assert {(head["format"], head["version"]) for head in heads} == {("durableflows.archive", 1)}
    assert set(map(str, ids)) <= {head["run"] for head in heads}
    assert [artifact(path, kept.sha256) for path in found if str(kept.run_id) in path.name] == [b"%PDF"]


def test_the_rows_are_kept_as_they_stood_with_the_digests_of_their_history(world: World, attic: Path):
    (run_id,) = old(world, done)
    digests = list(RunEvent.objects.filter(run=run_id).order_by("sequence").values_list("digest", flat=True))
    stood = WorkflowRun.objects.get(pk=run_id)

    data("cleanup", *TO)

    lines = list(read(objects(attic)[0]))
    events = sorted((line["row"] for line in lines if line.get("table") == "runevent"), key=lambda row: row["sequence"])
    (run,) = [line["row"] for line in lines if line.get("table") == "workflowrun"]
    assert [row["digest"] for row in events] == digests
    assert (run["data"], run["data_digest"], run["state"]) == (stood.data, stood.data_digest, "SUCCEEDED")


def test_an_archive_reaches_the_disk_before_its_rows_go(world: World, attic: Path, monkeypatch: pytest.MonkeyPatch):
    """A loss of power after the removal must not take the only copy."""
    (run_id,) = old(world, done)
    reached: list[str] = []

    def note(descriptor: int) -> None:
        assert stays(run_id)
        reached.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    data("cleanup", *TO)

    (kept,) = objects(attic)
    assert not stays(run_id)
    assert {str(kept), str(kept.parent), str(attic)} <= set(reached)


@pytest.mark.parametrize("storage_class", ["InMemory", "Elsewhere"])
def test_a_storage_without_files_of_this_machine_answers_for_what_it_has_taken(
    world: World, attic: Path, settings: LazySettings, storage_class: str
):
    settings.STORAGES = {**settings.STORAGES, ALIAS: {"BACKEND": f"tests.support.attics.{storage_class}"}}
    (run_id,) = old(world, done)

    assert data("cleanup", *TO)["archived"] == 1
    assert not stays(run_id)


def test_the_setting_says_where_and_nothing_is_kept_without_it(world: World, attic: Path, settings: LazySettings):
    old(world, done, done)

    assert data("cleanup", *LONG, "--limit", "1")["archived"] == 0
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "ARCHIVE_STORAGE": ALIAS}
    assert f"kept in the storage '{ALIAS}' first" in said("cleanup", *LONG, "--dry-run")
    assert objects(attic) == []
    assert data("cleanup", *LONG)["archived"] == 1
    assert len(objects(attic)) == 1


def test_a_storage_that_the_project_lacks_is_refused_and_named_by_the_check(world: World, settings: LazySettings):
    (run_id,) = old(world, done)

    assert "STORAGES has no 'nowhere'" in said("cleanup", *LONG, "--archive", "nowhere", code=1)
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "ARCHIVE_STORAGE": "nowhere"}
    assert [one.id for one in check_settings(None)] == ["durableflows.E005"]
    assert stays(run_id)


@pytest.mark.parametrize("fault", [refuse, half_then_refuse, lose_a_byte])
def test_a_storage_that_fails_leaves_the_rows_and_says_so_and_the_next_time_it_is_kept_once(
    world: World, attic: Path, fault: Callable[[Attic, str, bytes], str | None]
):
    bad, good = old(world, done, done)
    before = rows()
    Attic.faults[:] = [fault]

    shown = data("cleanup", *TO, "--limit", "1", code=1)

    (said_of,) = shown["failed"]
    assert (shown["runs"], said_of["run"], said_of["code"]) == (0, str(min(bad, good)), "not_archived")
    assert "it stays: " in said_of["message"]
    assert "SECRET1" not in said_of["message"]
    assert rows() == before
    assert data("cleanup", *TO)["archived"] == 2
    assert len([path for path in objects(attic) if is_whole(path)]) == 2
    assert set(rows().values()) == {0}


def test_a_storage_that_is_away_is_not_asked_for_every_run(world: World, attic: Path):
    old(world, *[done] * 5)
    Attic.faults[:] = [refuse] * 5

    text = said("cleanup", *TO, code=1)

    assert len(Attic.faults) == 2
    assert "failed 3 times in a row: the others were not tried" in text
    assert WorkflowRun.objects.count() == 5


def test_who_dies_between_the_archive_and_the_removal_leaves_both_and_the_next_one_finds_it(world: World, attic: Path):
    (run_id,) = old(world, keeping)
    before = rows()

    with crash_at(Boundary.OPERATE_BEFORE_COMMIT), pytest.raises(Crash):
        data("cleanup", *TO)

    (left,) = objects(attic)
    assert rows() == before
    assert is_whole(left)
    assert data("cleanup", *TO)["archived"] == 1
    assert objects(attic) == [left]
    assert not stays(run_id)


def die_half_way(attic: Attic, name: str, data: bytes) -> str | None:
    attic.whole(name, data[:100])
    raise Crash("the process was killed while it wrote")


def test_who_dies_while_it_writes_leaves_the_rows_and_half_an_object_that_nobody_takes_for_a_whole_one(
    world: World, attic: Path
):
    (run_id,) = old(world, done)
    Attic.faults[:] = [die_half_way]

    with pytest.raises(Crash):
        data("cleanup", *TO)

    assert stays(run_id)
    assert [is_whole(path) for path in objects(attic)] == [False]
    assert data("cleanup", *TO)["archived"] == 1
    assert sorted(map(is_whole, objects(attic))) == [False, True]


def test_what_was_changed_while_it_was_kept_stays_and_is_kept_as_it_is_then(world: World, attic: Path):
    (run_id,) = old(world, done)

    def meanwhile(attic: Attic, name: str, data: bytes) -> str | None:
        WorkflowRun.objects.filter(pk=run_id).update(labels={"seen": "by the auditor"})
        return None

    Attic.faults[:] = [meanwhile]

    assert data("cleanup", *TO, "--limit", "1")["runs"] == 0
    assert stays(run_id)
    assert data("cleanup", *TO)["archived"] == 1
    newest = [
        line["row"]["labels"] for path in objects(attic) for line in read(path) if "labels" in line.get("row", {})
    ]
    assert {"seen": "by the auditor"} in newest


def test_an_artifact_that_is_gone_is_said_in_the_archive_and_one_that_cannot_be_read_keeps_the_run(
    world: World, attic: Path
):
    gone, unread = old(world, keeping, keeping)
    path = Path(storages["artifacts"].path(Artifact.objects.get(run=gone).storage_name))
    path.unlink()
    other = Path(storages["artifacts"].path(Artifact.objects.get(run=unread).storage_name))
    other.unlink()
    other.mkdir()

    shown = data("cleanup", *TO, code=1)

    assert (shown["archived"], [row["run"] for row in shown["failed"]]) == (1, [str(unread)])
    (whole,) = objects(attic)
    assert [line["sha256"] for line in read(whole) if "artifact" in line] == [None]
    assert stays(unread)


def test_events_about_no_effect_of_ours_are_kept_too(world: World, attic: Path):
    at = world.clock.now()
    for number in range(3):
        ProviderEvent.objects.create(provider="post", event_id=f"e{number}", body_digest="x", arrived_at=at)
    old(world)

    Attic.faults[:] = [refuse]
    assert data("cleanup", *TO, code=1)["provider_events"] == 0
    assert ProviderEvent.objects.count() == 3
    assert data("cleanup", *TO)["provider_events"] == 3

    (kept,) = objects(attic)
    assert [line["row"]["event_id"] for line in read(kept) if "row" in line] == ["e0", "e1", "e2"]


def test_only_runs_that_ended_so(world: World):
    old(world, done, cancelled)

    assert data("cleanup", *LONG, "--state", "CANCELLED", "--dry-run")["removable"] == 1
    assert data("cleanup", *LONG, "--state", "FAILED")["runs"] == 0
    assert data("cleanup", *LONG, "--state", "CANCELLED")["runs"] == 1
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_a_run_that_is_redriven_after_it_was_chosen_is_not_archived(world: World, attic: Path):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    world.run_until_idle()

    assert cleanup.remove(run.pk, world.clock.now() - LATER, archive=ALIAS) is None
    assert objects(attic) == []
