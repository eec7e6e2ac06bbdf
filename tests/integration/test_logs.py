"""Each log line of a step says which run, workflow, step and attempt it is of, as text or as JSON."""

import io
import json
import logging
import logging.config
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from durableflows import CannotTell, EffectCall, Run, Transient, UnknownOutcome, Workflow, WorkflowState, api, step
from durableflows.logs import JsonFormatter, RunFilter
from durableflows.testing import World
from tests.contract.source import ROOT
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow

pytestmark = pytest.mark.django_db(transaction=True)

log = logging.getLogger("tests.shop")


class ChattyState(WorkflowState):
    """Nothing."""


def chatty() -> type[Workflow[ChattyState]]:
    class Chatty(Workflow[ChattyState]):
        """talk, in two tries."""

        name, version = "chatty", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def talk(self, run: Run[ChattyState]) -> None:
            """Say something, fail once."""
            log.warning("looking at %s", "the order")
            if lines_of("tests.shop") < 2:
                raise Transient("busy")

    return Chatty


class Asked(Provider):
    """Says so when it is asked."""

    def find(self, call: EffectCall) -> object:
        log.warning("asking")
        return super().find(call)


PAGE = io.StringIO()


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in PAGE.getvalue().splitlines()]


def lines_of(name: str) -> int:
    return len([line for line in lines() if line["logger"] == name])


@pytest.fixture(autouse=True)
def printed() -> Iterator[None]:
    """Everything that is logged, as JSON, on a page."""
    PAGE.seek(0)
    PAGE.truncate()
    handler = logging.StreamHandler(PAGE)
    handler.setFormatter(JsonFormatter())
    root, before = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield
    root.removeHandler(handler)
    root.setLevel(before)


def test_lines_of_a_step_have_its_ids_and_attempt_and_those_outside_have_none(world: World):
    run = api.start(chatty(), {})
    world.run_through()
    log.warning("outside")

    said = [line for line in lines() if line["logger"] == "tests.shop"]

    ids = [(line.get("run"), line.get("workflow"), line.get("step"), line.get("attempt")) for line in said]
    assert ids == [(str(run.pk), "chatty", "talk", 1), (str(run.pk), "chatty", "talk", 2), (None,) * 4]
    assert said[0]["message"] == "looking at the order"
    assert said[0]["level"] == "WARNING"
    facts = [line for line in lines() if line["logger"] == "durableflows.events"]
    assert {(line["run"], line["event"]) for line in facts} >= {
        (str(run.pk), "run.started"),
        (str(run.pk), "run.ended"),
    }


def test_lines_of_a_lookup_are_of_its_step(world: World):
    provider = Asked(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    provider.lookup_answers = [CannotTell("closed")]
    run = api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    world.run_through()

    said = [line for line in lines() if line["message"] == "asking"]
    assert said
    assert {(line["run"], line["workflow"], line["step"], line.get("attempt")) for line in said} == {
        (str(run.pk), "pay", "pay", None)
    }


def test_an_error_is_one_line_with_its_traceback():
    try:
        raise ValueError("no\nline breaks")
    except ValueError:
        log.exception("it failed")

    (line,) = lines()
    assert "ValueError: no" in str(line["error"])
    assert line["time"]


def test_text_lines_get_the_same_by_the_filter_and_keep_what_they_say_themselves():
    page = io.StringIO()
    handler = logging.StreamHandler(page)
    handler.setFormatter(logging.Formatter("%(where)s%(message)s|%(run)s"))
    handler.addFilter(RunFilter())
    log.addHandler(handler)
    try:
        log.warning("plain")
        log.warning("told", extra={"run": "r1"})
    finally:
        log.removeHandler(handler)

    assert page.getvalue().splitlines() == ["plain|", "told|r1"]


def test_django_can_load_them_before_its_apps_are_ready():
    """LOGGING is read first of all."""
    code = (
        "from django.conf import settings\n"
        "handler = {'class': 'logging.StreamHandler', 'formatter': 'json', 'filters': ['run']}\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth', 'durableflows'],\n"
        "  DATABASES={}, LOGGING={'version': 1, 'filters': {'run': {'()': 'durableflows.logs.RunFilter'}},\n"
        "  'formatters': {'json': {'()': 'durableflows.logs.JsonFormatter'}}, 'handlers': {'all': handler},\n"
        "  'root': {'handlers': ['all'], 'level': 'INFO'}})\n"
        "import django, logging; django.setup(); logging.getLogger('x').info('up')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert json.loads(done.stderr.splitlines()[-1])["message"] == "up"
