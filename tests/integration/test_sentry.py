"""What Sentry is sent: one issue for each (workflow, step, error class), loud where somebody must look, silent else."""

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sentry_sdk
from billiard.exceptions import WorkerLostError
from celery import signals
from django.conf import LazySettings
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from durableflows import (
    NeedsHuman,
    Permanent,
    Run,
    Transient,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    api,
    step,
    watching,
)
from durableflows.core.keys import new_token
from durableflows.core.states import ParkedReason, RunState
from durableflows.leases import Place
from durableflows.models import WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from durableflows.ticker import sweep_in_turn
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting
from tests.support.refunds import person

pytestmark = pytest.mark.django_db(transaction=True)

ISSUES = "durableflows.watchers.sentry.Issues"
SENT: list[dict[str, Any]] = []
CUSTOMER = "ada@example.com"


class Captured(Transport):
    """Keeps what would be sent."""

    def capture_envelope(self, envelope: Envelope) -> None:
        SENT.extend(json.loads(item.payload.get_bytes()) for item in envelope.items)


@pytest.fixture(autouse=True)
def reported(settings: LazySettings) -> Iterator[None]:
    """As a project sets it up: with everything on that leaks, and Sentry's own integrations."""
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "WATCHERS": [ISSUES]}
    watching._load.cache_clear()
    SENT.clear()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=Captured,
        include_local_variables=True,
        default_integrations=False,
        integrations=[CeleryIntegration(), LoggingIntegration()],
    )
    yield
    sentry_sdk.init()
    watching._load.cache_clear()


def events() -> list[dict[str, Any]]:
    return [one for one in SENT if one.get("type") != "check_in"]


def check_ins() -> list[dict[str, Any]]:
    return [one for one in SENT if one.get("type") == "check_in"]


class OrderState(WorkflowState):
    """Whose order it is."""

    customer: str


def broken(error: Exception, says: str = "") -> type[Workflow[OrderState]]:
    class Order(Workflow[OrderState]):
        """pack, which fails."""

        name, version = "order", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def pack(self, run: Run[OrderState]) -> None:
            """Fail with the customer at hand."""
            customer = {"address": run.state.customer}
            if says:
                logging.getLogger("shop").error(says)
            assert customer
            raise error

    return Order


def parked(workflow: type[Workflow[OrderState]], world: World) -> WorkflowRun:
    run = api.start(workflow, {"customer": CUSTOMER}, by=person(f"user{WorkflowRun.objects.count()}"))
    world.run_through()
    return WorkflowRun.objects.get(pk=run.pk)


def test_an_error_in_our_code_is_one_event_with_its_frames_and_without_variables_or_facts(world: World):
    run = parked(broken(KeyError(f"no parcel for {CUSTOMER}, card 4242 4242 4242 4242")), world)

    (event,) = events()
    assert run.parked_reason == ParkedReason.OUR_CODE
    assert event["fingerprint"] == ["durableflows", "order", "pack", "KeyError"]
    assert event["tags"]["durableflows.run"] == str(run.pk)
    assert event["transaction"] == "order.pack"
    raised = event["exception"]["values"][-1]
    assert raised["type"] == "KeyError"
    assert "no parcel for" in raised["value"]
    assert raised["stacktrace"]["frames"][-1]["function"] == "pack"
    assert "vars" not in json.dumps(event)
    assert CUSTOMER not in json.dumps(event)
    assert "4242 4242" not in json.dumps(event)


def test_the_same_error_of_many_runs_is_one_issue(world: World):
    workflow = broken(ZeroDivisionError("by zero"))
    parked(workflow, world), parked(workflow, world)

    prints = [event["fingerprint"] for event in events()]
    assert len(prints) == 2
    assert prints[0] == prints[1]


def test_retries_are_breadcrumbs_of_the_event_that_says_they_are_used_up(world: World):
    run = parked(broken(Transient(f"{CUSTOMER} is busy")), world)

    (event,) = events()
    said = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
    tries = int(event["tags"]["durableflows.attempt"])
    assert run.parked_reason == ParkedReason.NEEDS_PERSON
    assert tries > 1
    assert said == [f"attempt {number}: transient" for number in range(1, tries)]
    assert CUSTOMER not in json.dumps(event)


@pytest.mark.parametrize("error", [Permanent("the card has expired"), NeedsHuman("look at it")], ids=repr)
def test_a_declared_failure_is_silent_and_who_needs_a_person_is_loud(world: World, error: Exception):
    run = parked(broken(error), world)

    assert (run.state == RunState.FAILED) == isinstance(error, Permanent)
    assert len(events()) == isinstance(error, NeedsHuman)


def test_tries_that_are_left_waits_pauses_and_cancels_are_silent(world: World):
    provider = Provider(faults=[raise_without_acting(Transient("busy"))])
    workflow = pay_workflow(provider, pay_effect(provider))
    boss = person("boss", "operate_run", "answer_approval")
    asking = api.start(workflow, {"amount": 5, "ask": True}, by=person("requester"))
    world.run_through()
    api.pause(asking.pk, by=boss, reason="later")
    api.resume(asking.pk, by=boss, reason="now")
    api.cancel(asking.pk, by=boss, reason="not wanted")
    api.start(workflow, {"amount": 5})
    world.run_through()

    assert events() == []


def test_what_a_sweep_finds_out_is_loud_too(world: World):
    """In doubt, and nobody can be asked but a person: no attempt is under way then."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome(f"{CUSTOMER} cut us off"))])
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None, with_lookup=False)), {"amount": 5})
    world.run_through()

    (event,) = events()
    assert event["fingerprint"] == ["durableflows", "pay", "pay", "step.needs_person"]
    assert event["tags"]["durableflows.run"] == str(run.pk)
    assert CUSTOMER not in json.dumps(event)


def test_what_the_body_logs_itself_is_reported_once_with_the_step_s_tags_and_no_variables(world: World):
    run = parked(broken(NeedsHuman("look at it"), says="the printer is out of paper"), world)

    own = [event for event in events() if (event.get("logentry") or {}).get("message") == "the printer is out of paper"]
    assert len(events()) == 2
    assert own[0]["tags"]["durableflows.run"] == str(run.pk)
    assert '"vars"' not in json.dumps(own)


@pytest.mark.parametrize(("task", "reports"), [("order.pack", 0), ("durableflows.lookup", 0), ("shop.newsletter", 1)])
def test_lines_of_celery_about_a_lost_worker_are_reported_for_other_tasks_alone(world: World, task: str, reports: int):
    broken(KeyError("x"))
    watching.watchers()
    sender = type("Task", (), {"name": task})
    log = logging.getLogger("celery.worker.request")
    try:
        raise WorkerLostError("signal 9")
    except WorkerLostError as error:
        logging.getLogger("multiprocessing").error("Process %r pid:%r exited with %r", "w", 7, "signal 9")
        signals.task_failure.send(sender=sender, exception=error)
        log.exception("Task handler raised error: %r", error)
    log.error("Hard time limit (%ss) exceeded for %s[%s]", 3, task, "id")

    assert len(events()) == 2 * reports


def test_the_sweeper_checks_in_once_a_minute_and_says_when_it_failed(world: World) -> None:
    place = Place(new_token(), "ticker", 0, ())
    sweep_in_turn(place, may_free_stale=False)
    sweep_in_turn(place, may_free_stale=False)
    for _ in range(3):
        watching.swept(0.1, RuntimeError("the database is away"))
    watching.swept(0.1, None)

    assert [(one["monitor_slug"], one["status"]) for one in check_ins()] == [
        ("durableflows-sweep", "ok"),
        ("durableflows-sweep", "error"),
        ("durableflows-sweep", "ok"),
    ]
    assert check_ins()[0]["monitor_config"]["schedule"] == {"type": "interval", "value": 1, "unit": "minute"}


def test_the_sweeper_says_so_when_one_of_the_sweeps_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(now: object) -> int:
        raise RuntimeError("no such column")

    monkeypatch.setitem(sweeps.SWEEPS, "timers", broken)

    sweep_in_turn(Place(new_token(), "ticker", 0, ()), may_free_stale=False)

    assert [one["status"] for one in check_ins()] == ["error"]


def test_without_a_client_nothing_is_asked_or_sent(world: World):
    sentry_sdk.init()
    run = parked(broken(KeyError("x")), world)

    assert run.parked_reason == ParkedReason.OUR_CODE
    assert SENT == []


def test_a_transport_that_fails_breaks_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(Captured, "capture_envelope", fail)
    run = parked(broken(KeyError("x")), world)

    assert run.parked_reason == ParkedReason.OUR_CODE
