"""R38: what a gateway's errors quote, keys, headers, cards, variables, is not stored, shown or sent anywhere."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.test import Client
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.integrations.logging import LoggingIntegration

from durableflows import InvalidState, Run, Workflow, WorkflowState, api, step, watching
from durableflows.core.states import RunState
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.integration.test_sentry import ISSUES, SENT, Captured
from tests.integration.test_traces import TRACES
from tests.support import attics
from tests.support.leaks import (
    HOST,
    PATH,
    PLACES,
    SECRETS,
    STATUS,
    VAULT,
    Everywhere,
    GatewayError,
    call_gateway,
    crawled,
    found_in,
    leaky_workflow,
    logged,
    quoting,
    refused_with,
    said,
    tables,
)
from tests.support.refunds import person
from tests.support.told_people import FAULTS, raising
from tests.support.tracing import tracer_provider

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

MAILS = "durableflows.notifiers.MailNotifier"
KEEPER = "tests.support.told_people.Keeper"


def read_secret(name: str) -> str:
    return VAULT.get(name, "")


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


@pytest.fixture(params=[[ISSUES, TRACES], []], ids=["watched", "alone"])
def everywhere(
    request: pytest.FixtureRequest, settings: LazySettings, tmp_path: Path, spans: InMemorySpanExporter
) -> Iterator[Everywhere]:
    """As a project sets it up, with everything on that leaks: with our watchers, and with Sentry's own parts alone."""
    settings.STORAGES = attics.settings_with(tmp_path, settings.STORAGES)
    settings.DURABLEFLOWS = {
        "WATCHERS": request.param,
        "SECRETS": "tests.integration.test_no_secret_anywhere.read_secret",
        "NOTIFIERS": [MAILS, KEEPER],
        "BASE_URL": "https://desk.example.com",
    }
    watching._load.cache_clear()
    SENT.clear()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=Captured,
        include_local_variables=True,
        default_integrations=False,
        integrations=[CeleryIntegration(), LoggingIntegration()],
    )
    with logged() as pages:
        yield Everywhere(logs=pages)
    FAULTS.clear()
    sentry_sdk.init()
    watching._load.cache_clear()


def look(found: Everywhere, world: World, spans: InMemorySpanExporter, mails: list[EmailMessage]) -> None:
    """Everything that is kept, shown or sent."""
    for where, text in tables():
        found.add(where, text)
    found.add("Sentry", json.dumps(SENT, default=str))
    found.add("spans", "".join(span.to_json() for span in spans.get_finished_spans()))
    found.add("arguments of tasks", json.dumps(world.sent, default=str))
    for mail in mails:
        found.add("mails", f"{mail.subject} {mail.body} {mail.extra_headers}")


def look_at_pages_and_commands(found: Everywhere) -> None:
    boss = Client()
    boss.force_login(User.objects.create_superuser("root"))
    pages = [f"/durableflows/runs/{run.pk}/{part}" for run in WorkflowRun.objects.all() for part in ("", "ledger/")]
    starts = [f"/durableflows/{page}" for page in ("inbox/", "runs/?show=failing", "health/", "metrics")]
    exports = [f"/durableflows/inbox/export/{what}.csv" for what in ("decisions", "requests", "looks")]
    for where, text in crawled(boss, *starts, *exports, *pages, "/admin/durableflows/"):
        found.add(where, text)
    for run in WorkflowRun.objects.filter(business_key__in=["body", "asked", "unknown"]):
        for verb in ("show", "explain"):
            found.add(f"command {verb}", said(verb, str(run.pk)) + said(verb, str(run.pk), "--json"))
    for words in (["list"], ["doctor"], ["health"], ["metrics"], ["verify"], ["provider"], ["export-decisions"]):
        found.add(f"command {words[0]}", said(*words) + said(*words, "--json"))
    found.add("exports", said("export-decisions", "--what", "requests"))


def broken_sweep(now: Any) -> int:
    call_gateway()
    return 0


def test_no_secret_is_found_in_anything_that_is_stored_shown_or_sent(
    world: World,
    everywhere: Everywhere,
    spans: InMemorySpanExporter,
    mailoutbox: list[EmailMessage],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    settings: LazySettings,
):
    """R38: tables, logs, Sentry's envelopes, spans, tasks, admin, console and inbox, mails, exports and archives."""
    boss = person("boss", "answer_approval", "operate_run")
    boss.email = "boss@example.com"
    boss.save()
    FAULTS[:] = [raising(quoting(GatewayError))]
    workflow = leaky_workflow()
    runs = {place: api.start(workflow, {"place": place}, key=place) for place in PLACES}
    world.run_until_idle()
    asked = ApprovalRequest.objects.get(run=runs["asked"], state="OPEN")
    api.answer(asked.pk, "approve", by=boss, facts_digest=asked.facts_digest, comment=str(quoting(GatewayError)))
    api.cancel(runs["person"].pk, by=boss, reason=str(quoting(GatewayError)))
    for _ in range(3):  # tries again, looks up, gives notices again
        world.clock.advance(minutes=10)
        world.run_until_idle()
    monkeypatch.setitem(sweeps.SWEEPS, "timers", broken_sweep)
    sweeps.sweep()

    if settings.DURABLEFLOWS["WATCHERS"]:  # rows are the same either way, and so are pages
        look_at_pages_and_commands(everywhere)
    world.clock.advance(days=401)
    everywhere.add("command cleanup", said("cleanup", "--older-than", "400d", "--archive", attics.ALIAS, "--json"))
    for path in attics.objects(tmp_path):
        everywhere.add("archives", path.read_text("utf-8"))
    look(everywhere, world, spans, mailoutbox)

    assert everywhere.leaks() == {}
    assert all(
        everywhere.texts[where] for where in (*everywhere.logs, "Sentry", "arguments of tasks", "archives", "mails")
    )
    if settings.DURABLEFLOWS["WATCHERS"]:
        kinds = ("run", "run-ledger", "run-people", "run-state", "run-history", "action", "inbox", "export", "health")
        assert {f"page durableflows:{kind}" for kind in kinds} <= set(everywhere.texts)
        assert "page admin:durableflows_sideeffect_change" in everywhere.texts
        assert everywhere.texts["spans"]


def test_errors_stay_useful(world: World, everywhere: Everywhere):
    """R38: host, path, status and class are there where the secrets were."""
    run = api.start(leaky_workflow(), {"place": "permanent"})
    parked = api.start("leak", {"place": "body"})
    world.run_until_idle()

    run.refresh_from_db()
    parked.refresh_from_db()
    assert (run.state, parked.state) == (RunState.FAILED, RunState.PARKED)
    for text in (run.error_text, parked.parked_detail, said("explain", str(run.pk)), json.dumps(SENT, default=str)):
        assert all(word in text for word in (HOST, PATH, STATUS)), text
    assert "GatewayError" in said("show", str(parked.pk), "--json")
    assert "api_key=[redacted]" in run.error_text


class Careless(WorkflowState):
    """Its field is a text, whatever it is called."""

    password: str = ""
    login: dict[str, str] = {}


def careless() -> type[Workflow[Careless]]:
    class Log(Workflow[Careless]):
        name, version = "careless", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def go(self, run: Run[Careless]) -> None:
            run.state.password = SECRETS["password"]

    return Log


@pytest.mark.parametrize(
    ("declare", "data"),
    [
        (careless, {"password": SECRETS["password"]}),
        (careless, {"login": {"api_key": SECRETS["password"]}}),
        (leaky_workflow, {"place": "body", "password": SECRETS["password"]}),
        (leaky_workflow, {"place": "body", "passphrase": SECRETS["password"]}),
    ],
)
def test_a_secret_in_a_runs_input_is_refused_without_being_shown(
    world: World, everywhere: Everywhere, spans: InMemorySpanExporter, declare: Any, data: dict[str, Any]
):
    """R38: what is declared secret is held as a reference, and what is called so is not taken as a text."""
    with pytest.raises(InvalidState) as caught:
        api.start(declare(), data)

    look(everywhere, world, spans, [])
    assert found_in(refused_with(caught.value)) == []
    assert everywhere.leaks() == {}
    assert not WorkflowRun.objects.exists()


def test_a_secret_that_a_step_puts_into_the_state_is_refused_too(
    world: World, everywhere: Everywhere, spans: InMemorySpanExporter
):
    """R38."""
    run = api.start(careless(), {})
    world.run_until_idle()

    look(everywhere, world, spans, [])
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.PARKED
    assert everywhere.leaks() == {}
    assert RunEvent.objects.filter(run=run).exists()
    assert not SideEffect.objects.exists()
