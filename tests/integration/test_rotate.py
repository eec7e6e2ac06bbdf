"""Rotating keys: what the old key sealed is sealed anew under the new one, whatever the runs are doing meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings

from durableflows import InvalidState, api
from durableflows.conf import from_secret_key
from durableflows.core.states import RunState
from durableflows.doctor import Severity, examine, verify
from durableflows.management import tables
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.services import rotation
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.integration.test_command import data, said
from tests.support.examined import asking, done, in_doubt, parked, ready, retrying
from tests.support.flows import Provider, pay_workflow
from tests.support.play import assert_chain
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db(transaction=True)

OLD = {"k1": "the old secret"}
BOTH = {"k2": "the new secret", **OLD}
NEW = {"k2": "the new secret"}


@contextmanager
def keys(given: dict[str, str]) -> Iterator[None]:
    with override_settings(DURABLEFLOWS={"STATE_KEYS": given}):
        yield


def sealed_under() -> dict[str, int]:
    return dict(rotation.keys_in_use())


def broken() -> list[str]:
    return [one.text for one in examine() if one.severity is Severity.BROKEN]


def all_ways(world: World) -> list[UUID]:
    """Runs that have ended, run, wait, ask, are in doubt, or are parked."""
    stages = [ready, done, retrying, parked, in_doubt, asking]
    ways = ("timer", "signal", "child", "branches", "turn")
    return [stage(world) for stage in stages] + [waiting(world, way) for way in ways]


def test_everything_is_sealed_anew_and_the_old_key_may_go(world: World):
    with keys(OLD):
        all_ways(world)
        assert set(sealed_under()) == {"k1"}
        before = sum(sealed_under().values())

    with keys(BOTH):
        shown = data("rotate")
        assert (shown["rotated"], shown["failed"], shown["idle"]) == (WorkflowRun.objects.count(), [], ["k1"])
        assert sealed_under() == {"k2": before}

    with keys(NEW):
        assert verify().findings == ()
        assert broken() == []
        for run in WorkflowRun.objects.all():
            assert_chain(run)


def test_without_a_rotation_the_old_key_is_missed(world: World):
    with keys(OLD):
        waiting(world, "turn")

    with keys(NEW):
        codes = {one.code for one in verify().findings}
        texts = " ".join(one.text for one in verify().findings)

    assert codes == {"key-gone"}
    assert "what slow for a is given is sealed under key 'k1'" in texts


def test_runs_go_on_before_during_and_after(world: World):
    provider = Provider()
    with keys(OLD):
        first = waiting(world, "signal")
        second = asking(world)
        third = ready(world)
    with keys(BOTH):  # before: the old seal holds, the next one is the new key's
        world.run_until_idle()
        assert WorkflowRun.objects.get(pk=third).state == RunState.SUCCEEDED
        fourth = api.start(pay_workflow(provider), {"amount": 5})
        assert rotation.rotate(first) is True
        world.run_until_idle()
        api.signal(first, "begin")
        world.run_until_idle()
        said("rotate")
        assert WorkflowRun.objects.get(pk=first).state == RunState.SUCCEEDED
        assert WorkflowRun.objects.get(pk=fourth.pk).state == RunState.SUCCEEDED
    with keys(NEW):  # after
        api.cancel(second, reason="no more")
        world.run_until_idle()
        assert WorkflowRun.objects.get(pk=second).state == RunState.CANCELLED
        assert verify().findings == ()


def test_a_worker_that_is_at_a_step_settles_over_a_rotation(world: World):
    seen: list[bool] = []
    with keys(OLD):
        run = api.start(pay_workflow(Provider(), body=lambda _: seen.append(rotation.rotate(run.pk))), {"amount": 5})
    with keys(BOTH):
        world.run_until_idle()

    with keys(NEW):
        assert seen
        assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
        assert verify(run.pk).findings == ()


def test_a_second_rotation_changes_nothing(world: World):
    with keys(OLD):
        all_ways(world)
    with keys(BOTH):
        said("rotate")
        before = list(WorkflowRun.objects.order_by("pk").values_list("row_version", "event_sequence"))

        assert data("rotate")["rotated"] == 0
        assert list(WorkflowRun.objects.order_by("pk").values_list("row_version", "event_sequence")) == before


def test_a_tampered_state_is_never_sealed_anew_and_the_others_are(world: World):
    with keys(OLD):
        bad, good = ready(world), done(world)
        WorkflowRun.objects.filter(pk=bad).update(data={"amount": 500, "receipt_id": None, "ask": False})
    with keys(BOTH):
        shown = data("rotate", code=1)

        assert [row["run"] for row in shown["failed"]] == [str(bad)]
        assert "does not match its digest" in shown["failed"][0]["message"]
        assert WorkflowRun.objects.get(pk=bad).data_key_id == "k1"
        assert WorkflowRun.objects.get(pk=good).data_key_id == "k2"
        assert [(one.code, one.run_id) for one in verify().findings] == [("state-digest", bad)]
        assert "run " + str(bad) in said("rotate", code=1)


@pytest.fixture
def stubborn():
    """A constraint that somebody has put on the table: this run stays under its key."""
    name = "stubborn_run"
    yield lambda run_id: _sql(
        f"ALTER TABLE durableflows_workflowrun ADD CONSTRAINT {name} CHECK (id <> '{run_id}' OR data_key_id = 'k1')"
    )
    _sql(f"ALTER TABLE durableflows_workflowrun DROP CONSTRAINT {name}")


def _sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_run_that_cannot_be_written_keeps_no_other_from_being_sealed_anew(
    world: World, stubborn: Callable[[UUID], None]
):
    with keys(OLD):
        bad, good = sorted([ready(world), done(world)])
    stubborn(bad)
    with keys(BOTH):
        shown = data("rotate", code=1)

    assert [(row["run"], row["code"]) for row in shown["failed"]] == [(str(bad), "failed")]
    assert WorkflowRun.objects.get(pk=good).data_key_id == "k2"


def test_a_long_list_of_refusals_ends_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "REFUSALS_LISTED", 2)
    with keys(OLD):
        for _ in range(5):
            ready(world)
    with keys(NEW):
        text = said("rotate", code=1)

        assert text.count("changed_outside: the state is sealed under key 'k1'") == 2
        assert "and 3 more: --json has all" in text
        assert len(data("rotate", code=1)["failed"]) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"input": {"item": "eve"}},
        {"input_seal": "k1:" + "0" * 64},
        {"input_seal": "nonsense"},
    ],
)
def test_a_tampered_input_is_never_sealed_anew(world: World, change: dict[str, Any]):
    with keys(OLD):
        run_id = waiting(world, "turn")
        StepRun.objects.filter(run=run_id, item_key="b").update(**change)
        before = StepRun.objects.values_list("input", "input_seal").get(run=run_id, item_key="b")
    with keys(BOTH), pytest.raises(InvalidState, match="nothing of the run is sealed anew"):
        rotation.rotate(run_id)

    assert StepRun.objects.values_list("input", "input_seal").get(run=run_id, item_key="b") == before
    assert WorkflowRun.objects.get(pk=run_id).data_key_id == "k1"


def test_an_older_checkpoint_that_was_put_back_is_never_sealed_anew(world: World):
    with keys(OLD):
        run_id = ready(world)
        older = WorkflowRun.objects.values("data", "data_digest", "checkpoint_sequence").get(pk=run_id)
        world.run_until_idle()
        WorkflowRun.objects.filter(pk=run_id).update(**older)

    with keys(BOTH), pytest.raises(InvalidState, match="put back to an older checkpoint"):
        rotation.rotate(run_id)


def test_a_key_that_is_gone_is_named_and_nothing_is_sealed_anew(world: World):
    with keys(OLD):
        run_id = ready(world)

    with keys(NEW):
        dry, shown = data("rotate", "--dry-run"), data("rotate", code=1)

    assert dry["gone"] == ["k1"]
    assert "sealed under key 'k1', which STATE_KEYS no longer has" in shown["failed"][0]["message"]
    assert WorkflowRun.objects.get(pk=run_id).data_key_id == "k1"


def test_a_run_that_was_parked_for_want_of_its_key_goes_on_when_it_is_back(world: World):
    with keys(OLD):
        run_id = ready(world)
    with keys(NEW):
        world.run_until_idle()
        parked = WorkflowRun.objects.get(pk=run_id)
        assert (parked.parked_reason, "STATE_KEYS no longer has" in parked.parked_detail) == ("integrity", True)

    with keys(BOTH):
        said("rotate")
    with keys(NEW):
        api.retry(run_id, reason="the key was back for a while")
        world.run_until_idle()
        assert WorkflowRun.objects.get(pk=run_id).state == RunState.SUCCEEDED


def test_from_secret_key_to_keys_of_its_own(world: World, settings: Any):
    run_id = ready(world)
    key_id, _ = from_secret_key(settings.SECRET_KEY)

    with keys({"k2": "the new secret", key_id: settings.SECRET_KEY}):
        assert data("rotate")["idle"] == [key_id]
    with keys(NEW):
        world.run_until_idle()
        assert WorkflowRun.objects.get(pk=run_id).state == RunState.SUCCEEDED


def test_a_dry_run_says_which_key_seals_how_much(world: World):
    with keys(OLD):
        ready(world)
    with keys(BOTH):
        ready(world)
        text = said("rotate", "--dry-run")
        shown = data("rotate", "--dry-run")

    assert text.startswith("nothing was done; 1 runs would be sealed anew")
    assert (shown["key"], shown["due"], shown["keys"]) == ("k2", 1, {"k1": 2, "k2": 2})
    assert RunEvent.objects.filter(kind="run.resealed").count() == 0


def test_it_stands_in_the_history_and_not_in_the_story(world: World):
    with keys(OLD):
        run_id = waiting(world, "signal")
    with keys(BOTH):
        rotation.rotate(run_id)

        event = RunEvent.objects.get(run=run_id, kind="run.resealed")
        assert event.data == {"from": ["k1"], "to": "k2", "inputs": 2}
        assert not [line for line in api.explain(run_id).lines if "resealed" in line.text]


@pytest.mark.parametrize("boundary", [Boundary.OPERATE_BEFORE_COMMIT, Boundary.OPERATE_AFTER_COMMIT])
def test_whoever_was_interrupted_begins_again(world: World, boundary: Boundary):
    with keys(OLD):
        all_ways(world)
    with keys(BOTH):
        with crash_at(boundary), pytest.raises(Crash):
            rotation.rotate(rotation.due()[0].pk)
        assert broken() == []
        said("rotate")
    with keys(NEW):
        assert verify().findings == ()


@pytest.mark.parametrize("wrong", [{"": "x"}, {"k": ""}, {"k" * 41: "x"}])
def test_an_id_or_secret_that_is_none_is_refused_without_showing_the_secret(wrong: dict[str, str]):
    from durableflows.conf import problems

    found = problems({"STATE_KEYS": wrong})

    assert len(found) == 1
    assert "need something in them" in found[0]
