"""`manage.py durableflows VERB`: what it prints, what it changes, and an honest exit code each time."""

import io
import json
import os
import subprocess
import sys
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from durableflows import NeedsHuman, Transient, UnknownOutcome, api, ticker
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.management import graph, verbs
from durableflows.models import RunEvent, SideEffect, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World, virtual
from tests.contract.source import ROOT
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.waits import waiting

pytestmark = pytest.mark.django_db

NOWHERE = str(uuid4())


@pytest.fixture
def world(db):
    with registry.isolated(), virtual() as world:
        yield world


def started(world: World, *faults: Any, **effect: Any) -> WorkflowRun:
    provider = Provider(faults=list(faults))
    run = api.start(pay_workflow(provider, pay_effect(provider, **effect)), {"amount": 5}, key=str(uuid4()))
    world.run_until_idle()
    return run


def in_doubt(world: World) -> SideEffect:
    run = started(world, act_then_raise(UnknownOutcome("lost")), key_window=None, with_lookup=False)
    world.clock.advance(minutes=5)
    return SideEffect.objects.get(run=run)


def said(*arguments: str, code: int = 0) -> str:
    """What a verb prints on standard output; the exit code must be this one."""
    out, ended, message = io.StringIO(), 0, ""
    try:
        call_command("durableflows", *arguments, stdout=out)
    except CommandError as error:
        ended, message = error.returncode, str(error)
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == code, out.getvalue() + message
    return out.getvalue() + message


def data(*arguments: str, code: int = 0) -> Any:
    text = said(*arguments, "--json", code=code)
    return json.JSONDecoder().raw_decode(text)[0]


def state_of(run: WorkflowRun) -> str:
    return str(WorkflowRun.objects.get(pk=run.pk).state)


def test_list_shows_the_newest_first_and_filters(world: World):
    old = started(world)
    world.clock.advance(minutes=1)
    with registry.isolated():
        new = started(world, raise_without_acting(NeedsHuman("expired")))

    assert [row["id"] for row in data("list")] == [str(new.pk), str(old.pk)]
    assert [row["id"] for row in data("list", "--state", "PARKED")] == [str(new.pk)]
    assert [row["id"] for row in data("list", "--limit", "1")] == [str(new.pk)]
    assert len(data("list", "--workflow", "pay")) == 2
    assert data("list", "--workflow", "other") == []
    assert said("list", "--workflow", "other") == "no runs\n"
    assert str(old.pk) in said("list")


def test_show_prints_the_rows_with_what_a_verdict_needs(world: World):
    effect = in_doubt(world)

    shown = data("show", str(effect.run_id))
    text = said("show", str(effect.run_id))

    assert shown["state"] == "NEEDS_RECONCILIATION"
    assert [(row["id"], row["row_version"]) for row in shown["effects"]] == [(str(effect.pk), effect.row_version)]
    assert [row["step"] for row in shown["steps"]] == ["assess", "pay"]
    assert [row["sequence"] for row in shown["events"]] == list(range(1, len(shown["events"]) + 1))
    assert str(effect.pk) in text
    assert "steps:" in text


def test_explain_says_it_in_words(world: World):
    run = started(world, raise_without_acting(NeedsHuman("the key expired")))

    story = data("explain", str(run.pk))
    text = said("explain", str(run.pk))

    assert story["sentence"] == "Needs attention, needs a person: pay: the key expired"
    assert story["safe"] == ["cancel", "retry"]
    assert text.startswith(story["sentence"])
    assert "safe now: cancel, retry" in text


def test_a_run_is_found_by_its_business_key(world: World, django_user_model):
    provider = Provider()
    workflow = pay_workflow(provider, pay_effect(provider))
    run = api.start(workflow, {"amount": 5}, key="R-17")
    world.run_until_idle()

    assert data("show", "R-17")["steps"] == data("show", str(run.pk))["steps"]
    assert "done" in said("explain", "R-17").lower()
    assert "neither a run's id nor the business key" in said("explain", "R-18", code=1)
    stranger = django_user_model.objects.create_user("stranger")
    assert "neither a run's id" in said("retry", "R-17", "--by", stranger.username, "--reason", "x", code=1)
    other = api.start(workflow, {"amount": 5}, key="R-17", tenant="north")
    refused = said("explain", "R-17", code=1)
    assert all(str(pk) in refused for pk in (run.pk, other.pk))


def test_hostile_text_does_not_reach_the_terminal(world: World):
    run = started(world, raise_without_acting(NeedsHuman("\x1b[2J\x07evil\nline")))

    for verb in (("show", str(run.pk)), ("explain", str(run.pk)), ("doctor",), ("list",)):
        text = said(*verb)
        assert "\x1b" not in text
        assert "\x07" not in text


def test_cancel_ends_and_keeps_who_and_why(world: World, django_user_model):
    django_user_model.objects.create_superuser("anna")
    run = started(world, raise_without_acting(Transient("503")))

    assert "cancelled" in said("cancel", str(run.pk), "--reason", "not wanted", "--by", "anna")

    assert state_of(run) == RunState.CANCELLED
    event = RunEvent.objects.get(run=run, kind="run.cancel_asked")
    assert (event.actor_name, event.data) == ("anna", {"reason": "not wanted"})
    assert "too_late" in said("cancel", str(run.pk), "--reason", "again", code=1)


def test_cancel_in_doubt_says_that_it_is_only_asked(world: World):
    effect = in_doubt(world)

    assert "cancel asked" in said("cancel", str(effect.run_id), "--reason", "not wanted")


def test_without_a_user_the_server_log_in_is_kept(world: World):
    run = started(world, raise_without_acting(NeedsHuman("expired")))

    assert "goes on" in said("retry", str(run.pk), "--reason", "new key")

    reason = RunEvent.objects.get(run=run, kind="run.retried").data["reason"]
    assert reason.startswith("new key (command line")
    assert "too_late" in said("retry", str(run.pk), "--reason", "again", code=1)


def test_a_person_without_the_right_is_refused(world: World, django_user_model):
    django_user_model.objects.create_user("bob")
    run = started(world, raise_without_acting(NeedsHuman("expired")))

    assert said("retry", str(run.pk), "--reason", "x", "--by", "bob", code=1).startswith(("not_allowed", "not_found"))
    assert "no active user" in said("retry", str(run.pk), "--reason", "x", "--by", "nobody", code=1)
    assert state_of(run) == RunState.PARKED


def test_resolve_settles_an_effect_that_was_seen(world: World):
    effect = in_doubt(world)
    common = ("resolve", str(effect.pk), "--verdict", "happened", "--reason", "seen")

    stale = said(*common, "--row-version", "0", "--receipt", '{"id": "re_1"}', code=1)
    bare = said(*common, "--row-version", str(effect.row_version), code=1)
    given = data(*common, "--row-version", str(effect.row_version), "--receipt", '{"id": "re_1"}')

    assert "too_late" in stale
    assert "needs the receipt" in bare
    assert (given["state"], given["receipt"]) == ("CONFIRMED", {"id": "re_1"})
    world.run_until_idle()
    assert SideEffect.objects.get(pk=effect.pk).state == "CONFIRMED"


def test_sweep_does_what_is_due(world: World):
    run = started(world, raise_without_acting(Transient("503")))
    world.clock.advance(minutes=10)

    assert data("sweep")["moved"]["due retries"] == 1
    world.run_until_idle()
    assert state_of(run) == RunState.SUCCEEDED


def test_a_sweep_that_fails_is_an_exit_code(world: World, monkeypatch: pytest.MonkeyPatch):
    def fail(now: object) -> int:
        raise RuntimeError("no disk")

    monkeypatch.setitem(sweeps.SWEEPS, "due retries", fail)

    found = data("sweep", code=1)

    assert found["failed"] == {"due retries": "RuntimeError: no disk"}
    assert "unsent steps" in found["moved"]


def test_ticker_runs_until_it_is_stopped(world: World, monkeypatch: pytest.MonkeyPatch):
    calls: list[bool] = []
    monkeypatch.setattr(ticker, "run_forever", lambda: calls.append(True))

    said("ticker")

    assert calls == [True]


def test_doctor_tells_broken_from_due(world: World):
    assert "nothing is broken" in said("doctor", "--strict")
    run = started(world, raise_without_acting(NeedsHuman("expired")))

    assert "[parked]" in said("doctor")
    assert "[parked]" in said("doctor", "--strict", code=1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE durableflows_workflowrun SET data_digest = '' WHERE id = %s", [run.pk])

    found = data("doctor", code=1)
    assert (found[0]["severity"], found[0]["code"], found[0]["run"]) == ("broken", "state-digest", str(run.pk))
    assert found[0]["cure"]
    assert data("doctor", str(run.pk), code=1)[0]["code"] == "state-digest"


def test_graph_prints_the_page(world: World):
    assert said("graph").strip() == graph.page().strip()
    assert set(data("graph")) == {machine.title for machine in graph.MACHINES}


@pytest.mark.parametrize("wrong", [NOWHERE, "17", "x" * 500, "\x1b[2J", "' OR 1=1 --"])
@pytest.mark.parametrize(
    "verb", [("show",), ("explain",), ("cancel", "--reason", "x"), ("retry", "--reason", "x"), ("doctor",)]
)
def test_an_unknown_id_is_a_message(world: World, verb: tuple[str, ...], wrong: str):
    text = said(verb[0], wrong, *verb[1:], code=1)

    assert text.startswith("not_found: ")
    assert "\x1b" not in text
    assert data(verb[0], wrong, *verb[1:], code=1)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--workflow", "\udcff"),
        ("cleanup", "--older-than", "1d", "--workflow", "\udcff"),
        ("cancel", NOWHERE, "--reason", "x", "--by", "\udcff"),
        ("provider", "\udcff"),
    ],
)
def test_bytes_that_are_no_text_are_a_message(world: World, words: tuple[str, ...]):
    """Python hands such an argument over as lone surrogates, and no query takes them."""
    assert "is no text" in said(*words, code=1)
    assert data(*words, code=1)["error"]["code"] == "invalid_state"


def test_an_unknown_effect_is_a_message(world: World):
    for wrong in (NOWHERE, "17"):
        text = said("resolve", wrong, "--verdict", "happened", "--reason", "x", "--row-version", "1", code=1)
        assert text.startswith("not_found: ")


@pytest.mark.parametrize("reason", ["", "  ", "a\x00b", "\u200b"])
def test_a_verb_that_changes_needs_a_reason(world: World, reason: str):
    run = started(world, raise_without_acting(NeedsHuman("expired")))

    assert "needs words" in said("cancel", str(run.pk), "--reason", reason, code=1)


def test_an_absent_database_is_a_message(world: World, monkeypatch: pytest.MonkeyPatch):
    def refuse(options: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setitem(verbs.VERBS, "list", refuse)

    assert said("list", code=1).startswith("database: ")
    assert data("list", code=1)["error"]["code"] == "database"


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["fly"],
        ["list", "--limit", "0"],
        ["list", "--limit", "-1"],
        ["list", "--limit", "9" * 5000],
        ["list", "--state", "NOWHERE"],
        ["show"],
        ["verify", "--since", "999999w"],
        ["cleanup", "--older-than", "999999d"],
        ["extend", NOWHERE, "--reason", "x", "--deadline", "0001-01-01T00:00:00+23:00"],
        ["extend", NOWHERE, "--reason", "x", "--deadline", "9999-12-31T23:59:59-23:00"],
        ["cancel", NOWHERE],
        ["resolve", NOWHERE, "--verdict", "maybe", "--reason", "x", "--row-version", "1"],
        ["resolve", NOWHERE, "--verdict", "happened", "--reason", "x", "--row-version", "-1"],
        ["resolve", NOWHERE, "--verdict", "happened", "--reason", "x", "--row-version", "1", "--receipt", "{"],
        ["resolve", NOWHERE, "--verdict", "happened", "--reason", "x", "--row-version", "1", "--receipt", "{}"],
        ["resolve", NOWHERE, "--verdict", "happened", "--reason", "x", "--row-version", "1", "--receipt", '""'],
        ["resolve", NOWHERE, "--verdict", "happened", "--reason", "x", "--row-version", "1", "--receipt", '{"a": NaN}'],
    ],
)
def test_bad_usage_is_refused_before_anything_happens(wrong: list[str]):
    with pytest.raises(CommandError, match="Error: "):
        call_command("durableflows", *wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code"), [(["fly"], 2), (["show", NOWHERE], 1), (["graph"], 0)])
def test_the_process_ends_with_the_code(arguments: list[str], code: int):
    environment = os.environ | {"DATABASE_URL": "sqlite://:memory:", "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "manage.py", "durableflows", *arguments]

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_show_prints_the_state_as_edit_wants_it(world: World):
    line = next(line for line in said("show", str(started(world).pk)).splitlines() if line.startswith("data: "))

    assert json.loads(line.removeprefix("data: "))["amount"] == 5


def test_show_names_items_and_children(world: World):
    child = data("show", str(waiting(world, "child")))["children"]
    assert [(one["workflow"], one["state"]) for one in child] == [("waiting", "WAITING")]

    with registry.isolated():
        items = data("show", str(waiting(world, "turn")))["steps"]
    assert [one["item"] for one in items if one["step"] == "slow"] == ["a", "b"]


def test_a_workflow_that_nobody_knows_is_not_migrated_in_silence(world: World):
    started(world)

    assert "unknown_workflow" in said("migrate", "--workflow", "tset", "--reason", "deploy", code=1)


def test_a_signal_is_sent_from_the_command_line(world: World):
    run_id = str(waiting(world, "signal"))

    mistyped = said("signal", run_id, "other")
    assert "kept until a step waits for it; now the run waits for the signal begin" in mistyped
    assert "a step goes on with it" in said("signal", run_id, "begin", "--payload", '{"amount": 5}', "--key", "k")
    assert "key_conflict" in said("signal", run_id, "begin", "--payload", "6", "--key", "k", code=1)
    assert "not JSON" in said("signal", run_id, "begin", "--payload", "{", code=1)
    world.run_until_idle()
    assert "too_late" in said("signal", run_id, "begin", code=1)


def test_a_reader_that_has_enough_gets_no_traceback():
    """As `durableflows matrix | head -1` does."""
    command = [sys.executable, "manage.py", "durableflows", "graph", "--json"]
    environment = {**os.environ, "DATABASE_URL": "sqlite://:memory:"}
    running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.close()

    _, complaints = running.communicate(timeout=60)

    assert b"BrokenPipe" not in complaints, complaints
