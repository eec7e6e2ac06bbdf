"""`verify` proves what is stored of runs: it says what was changed, where, and the cure; of sound runs nothing."""

import io
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages
from django.db import connection
from django.test import override_settings

from durableflows import ArtifactRef, Run, StepReturn, Workflow, WorkflowState, api, journal, step, wait_for
from durableflows.core import registry
from durableflows.doctor import Severity, findings, verification, verify
from durableflows.models import (
    ApprovalDecision,
    ApprovalRequest,
    Artifact,
    PinnedContent,
    RunEvent,
    Signal,
    StepRun,
    WorkflowRun,
)
from durableflows.testing import World, open_request
from tests.integration.test_command import data, said
from tests.integration.test_references import storage  # noqa: F401 - a fixture
from tests.support.examined import asking, done, in_doubt, parked, ready, retrying
from tests.support.flows import Provider, pay_workflow
from tests.support.waits import WAYS, waiting

pytestmark = pytest.mark.django_db

Stage = Callable[[World], UUID]


class Heard(WorkflowState):
    """What the run keeps."""

    scan: ArtifactRef | None = None


def keeping(world: World) -> UUID:
    """A run that has been given a signal, has an artifact, and has pinned a prompt."""

    class Keeping(Workflow[Heard]):
        name, deadline = "keeping", timedelta(days=1)
        prompts = {"triage": "You sort mails"}

        @step(start=True, to="heard")
        def listen(self, run: Run[Heard]) -> StepReturn:
            return wait_for("paid", then=self.heard)

        @step(end=True)
        def heard(self, run: Run[Heard]) -> None:
            run.state.scan = run.artifact("scan.pdf", b"%PDF", content_type="application/pdf")

    run = api.start(Keeping, {})
    world.run_until_idle()
    api.signal(run.pk, "paid", {"amount": 5})
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run.pk).state == "SUCCEEDED"
    return run.pk


def child_ended(world: World) -> UUID:
    run_id = waiting(world, "child")
    child = WorkflowRun.objects.get(parent_id=run_id)
    api.signal(child.pk, "begin")
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run_id).state == "SUCCEEDED"
    return run_id


def found() -> list[tuple[str, UUID | None]]:
    return [(one.code, one.run_id) for one in verify().findings]


@pytest.mark.parametrize("stage", [ready, done, retrying, parked, in_doubt, asking, child_ended])
def test_nothing_is_found_in_sound_runs(world: World, stage: Stage):
    run_id = stage(world)

    assert verify().findings == ()
    assert verify(run_id).runs == 1


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_found_in_runs_that_wait(world: World, way: str):
    waiting(world, way)

    assert verify().findings == ()


def test_nothing_is_found_in_what_a_run_keeps(world: World, storage: Path):  # noqa: F811
    keeping(world)

    proof = verify()

    assert proof.findings == ()
    assert (proof.runs, proof.steps, proof.artifacts) == (1, 2, 1)
    assert proof.events == RunEvent.objects.count()


def of_signal(run_id: UUID) -> None:
    Signal.objects.filter(run=run_id).update(payload={"amount": 500})


def no_signal(run_id: UUID) -> None:
    Signal.objects.filter(run=run_id).delete()


def of_artifact(run_id: UUID) -> None:
    row = Artifact.objects.get(run=run_id)
    Path(storages["artifacts"].path(row.storage_name)).write_bytes(b"%PDX")


def no_artifact(run_id: UUID) -> None:
    storages["artifacts"].delete(Artifact.objects.get(run=run_id).storage_name)


def unreadable(run_id: UUID) -> None:
    Artifact.objects.filter(run=run_id).update(storage_name="../../etc/passwd")


def of_step(run_id: UUID) -> None:
    StepRun.objects.filter(run=run_id, name="heard").update(input={"signal": {"id": "x"}})


def no_input(run_id: UUID) -> None:
    StepRun.objects.filter(run=run_id, name="heard").update(input={})


def of_state(run_id: UUID) -> None:
    WorkflowRun.objects.filter(pk=run_id).update(data={"scan": None})


def of_event(run_id: UUID) -> None:
    RunEvent.objects.filter(run=run_id, sequence=2).update(actor_name="eve")


def of_event_and_its_digests(run_id: UUID) -> None:
    event = RunEvent.objects.get(run=run_id, sequence=2)
    event.actor_name = "eve"
    digest = journal.digest_of(event)
    RunEvent.objects.filter(pk=event.pk).update(actor_name="eve", digest=digest)
    RunEvent.objects.filter(run=run_id, sequence=3).update(previous_digest=digest)


def no_event(run_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM durableflows_runevent WHERE run_id = %s AND sequence = 1", [run_id])


def no_pin(run_id: UUID) -> None:
    PinnedContent.objects.all().delete()


@pytest.mark.parametrize(
    ("code", "change", "says"),
    [
        ("signal-changed", of_signal, "the payload of signal paid, which heard was given, was changed"),
        ("signal-changed", no_signal, "the signal that heard was given is gone"),
        ("artifact-changed", of_artifact, "artifact scan.pdf"),
        ("artifact-gone", no_artifact, "is gone from the storage"),
        ("artifact-unread", unreadable, "could not be opened: SuspiciousFileOperation"),
        ("step-input", of_step, "what heard is given does not match its digest: it was changed from outside"),
        ("step-input", no_input, "what heard is given"),
        ("state-digest", of_state, "the state does not match its digest"),
        ("event-chain", of_event, "event 2 (step.ready) was changed after it was written"),
        ("event-chain", of_event_and_its_digests, "event 3 (step.claimed) was changed after it was written"),
        ("event-chain", no_event, "event 1 is missing"),
        ("pinned-changed", no_pin, "which it has pinned, is gone"),
    ],
)
def test_each_change_is_found_where_it_was_made(
    world: World,
    storage: Path,  # noqa: F811
    code: str,
    change: Callable[[UUID], None],
    says: str,
):
    """S2.26, P13."""
    bystander = done(world)
    run_id = keeping(world)

    change(run_id)

    seen = verify().findings
    assert [(one.code, one.run_id) for one in seen] == [(code, run_id)]
    assert says in seen[0].text
    assert (seen[0].severity, bool(seen[0].cure)) == (Severity.BROKEN, True)
    assert verify(run_id).findings == seen
    assert verify(bystander).findings == ()


def approved(world: World) -> UUID:
    run_id = asking(world)
    request = open_request(run_id)
    boss = User.objects.create_superuser("boss")
    api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)
    world.run_until_idle()
    assert verify().findings == ()
    return run_id


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"actor_name": "eve"}, ["eve's approve", "boss's approve"]),
        ({"verdict": "reject"}, ["boss's reject", "boss's approve"]),
    ],
)
def test_an_answer_that_is_not_what_was_answered_is_found(world: World, change: dict[str, str], says: list[str]):
    """P9, P13: who decided what, the history knows."""
    run_id = approved(world)
    ApprovalDecision.objects.update(**change)

    seen = verify().findings

    assert [(one.code, one.run_id) for one in seen] == [("answer-changed", run_id)] * 2
    assert [one.text.split(" of ")[0] for one in seen] == says
    assert seen[0].text.endswith("is not in the history")


def test_an_answer_that_is_gone_is_found(world: World):
    run_id = approved(world)
    ApprovalDecision.objects.all().delete()

    assert found() == [("answer-changed", run_id)]


def test_an_answer_that_nobody_gave_is_found(world: World):
    run_id = asking(world)
    request, boss = open_request(run_id), User.objects.create_superuser("boss")
    ApprovalDecision.objects.create(
        request=request, actor=boss, actor_name="boss", verdict="approve", facts_digest="x", at=world.clock.now()
    )

    assert found() == [("answer-changed", run_id)]


def test_facts_that_are_not_those_that_were_asked_are_found(world: World):
    run_id = approved(world)
    ApprovalRequest.objects.update(binding={"amount": 1})

    assert found() == [("request-changed", run_id)]


def test_a_changed_prompt_is_found_once_for_all_who_pinned_it(world: World, storage: Path):  # noqa: F811
    keeping(world)
    PinnedContent.objects.update(content="You pay whatever is asked")

    assert found() == [("pinned-changed", None)]


def test_a_changed_end_of_a_child_is_found(world: World):
    run_id = child_ended(world)
    WorkflowRun.objects.filter(parent_id=run_id).update(result=500)

    assert found() == [("child-changed", run_id)]


@pytest.mark.parametrize(
    "fields",
    [
        ("data", "data_digest", "checkpoint_sequence"),
        ("data", "data_digest", "checkpoint_sequence", "event_sequence", "event_digest"),
    ],
    ids=["the checkpoint", "the whole row"],
)
def test_an_older_checkpoint_that_was_put_back_is_found(world: World, fields: tuple[str, ...]):
    """Its seal is valid: only the history knows that the run was further."""
    run_id = ready(world)
    older = WorkflowRun.objects.values(*fields).get(pk=run_id)
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run_id).checkpoint_sequence > older["checkpoint_sequence"]

    WorkflowRun.objects.filter(pk=run_id).update(**older)

    assert found() == [("rolled-back", run_id)]


def test_a_run_that_was_put_back_stays_a_finding_after_its_history_went_on(world: World):
    fields = ("data", "data_digest", "checkpoint_sequence", "event_sequence", "event_digest")
    run_id = api.start(pay_workflow(Provider(), body=lambda run: None), {"amount": 900, "ask": True}).pk
    older = WorkflowRun.objects.values(*fields).get(pk=run_id)
    world.run_until_idle()
    WorkflowRun.objects.filter(pk=run_id).update(**older)

    api.pause(run_id, reason="the history goes on where it ended")

    assert found() == [("rolled-back", run_id)]


def test_a_key_that_was_taken_away_is_no_change_and_says_so(world: World):
    run_id = ready(world)
    key_id = WorkflowRun.objects.get(pk=run_id).data_key_id

    with override_settings(DURABLEFLOWS={"STATE_KEYS": {"new": "secret"}}):
        seen = verify().findings

    assert [(one.code, one.run_id) for one in seen] == [("key-gone", run_id)] * 2
    assert [one.text for one in seen] == [
        f"{what} is sealed under key {key_id!r}, which STATE_KEYS no longer has"
        for what in ("the state", "what assess is given")
    ]


def test_a_changed_secret_key_proves_what_its_fallbacks_have_sealed(world: World, settings: Any):
    ready(world)
    old = settings.SECRET_KEY

    settings.SECRET_KEY = "another"
    assert {code for code, _ in found()} == {"key-gone"}
    settings.SECRET_KEY_FALLBACKS = [old]
    assert found() == []


def test_only_runs_in_which_something_has_happened_since(world: World):
    old = done(world)
    WorkflowRun.objects.filter(pk=old).update(data_digest="")
    world.clock.advance(days=3)
    ready(world)

    assert data("verify", "--since", "1d")["findings"] == []
    assert data("verify", "--since", "1d")["runs"] == 1
    assert data("verify", "--since", "4d", code=1)["runs"] == 2


def test_batches_are_all_looked_at_and_each_tells_how_far_it_is(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verification, "BATCH", 2)
    for _ in range(5):
        done(world)
    WorkflowRun.objects.update(data_digest="")
    told: list[tuple[int, int]] = []

    proof = verify(progress=lambda done, total: told.append((done, total)))

    assert (proof.runs, len(proof.findings)) == (5, 5)
    assert told == [(2, 5), (4, 5), (5, 5)]


def test_a_long_list_ends_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "FINDINGS_LISTED", 2)
    for _ in range(4):
        done(world)
    WorkflowRun.objects.update(data_digest="")

    assert [one.text for one in verify().findings][2:] == ["and more: only the first 2 are listed"]


def test_the_command_prints_what_where_and_the_cure(world: World):
    run_id = done(world)
    assert "1 runs" in said("verify")
    assert "all of it agrees" in said("verify", str(run_id))
    with registry.isolated():
        done(world)
    WorkflowRun.objects.update(data_digest="")

    text = said("verify", code=1)
    seen = data("verify", str(run_id), code=1)

    assert f"broken [state-digest] run {run_id}: the state does not match" in text
    assert text.count("broken [state-digest]") == 2
    assert text.count("compare with a backup") == 1  # the cure is one for both
    assert [(row["code"], row["run"], bool(row["cure"])) for row in seen["findings"]] == [
        ("state-digest", str(run_id), True)
    ]


class Terminal(io.StringIO):
    """Somebody sits in front of it."""

    def isatty(self) -> bool:
        return True


def test_progress_is_told_at_a_terminal_only(world: World, monkeypatch: pytest.MonkeyPatch):
    done(world)
    log, terminal = io.StringIO(), Terminal()

    monkeypatch.setattr(sys, "stderr", log)
    said("verify")
    monkeypatch.setattr(sys, "stderr", terminal)
    said("verify")

    assert log.getvalue() == ""
    assert terminal.getvalue() == "\r1 of 1 runs\n"
