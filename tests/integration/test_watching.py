"""Who follows runs is told everything once, after it is settled, and can neither break nor hold up a step."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.conf import LazySettings

from durableflows import Transient, UnknownOutcome, api, watching
from durableflows.checks import check_settings
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.testing import World
from durableflows.watching import Asked, Attempt, Call, Fact, Watcher
from tests.contract.source import ROOT
from tests.support.flows import Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting

pytestmark = pytest.mark.django_db(transaction=True)

HERE = __name__
SEEN: list[tuple[str, ...]] = []


class Seeing(Watcher):
    """Writes down what it is told, and how the step stood in the rows then."""

    def begin(self, attempt: Attempt) -> None:
        SEEN.append(("begin", attempt.step.name, str(attempt.claim.lease.attempt)))

    def end(self, attempt: Attempt) -> None:
        stored = StepRun.objects.get(pk=attempt.claim.lease.step_id)
        outcome = attempt.decision.outcome if attempt.decision is not None else "none"
        SEEN.append(("end", attempt.step.name, outcome, str(stored.state)))

    def answered(self, attempt: Attempt | None, about: Asked, call: Call) -> None:
        SEEN.append((call.kind, about.step, call.answer, SideEffect.objects.get(key=call.key).state))

    def told(self, fact: Fact) -> None:
        SEEN.append(("told", fact.kind))


class Failing(Watcher):
    """Fails at everything; never gives a trace."""

    error: Exception = RuntimeError("the exporter is broken")

    def _fail(self, *_: object) -> None:
        raise self.error

    begin = end = call = answered = told = swept = start = _fail  # type: ignore[assignment]


class Hurried(Failing):
    """The step's time is over while the watcher has its turn; for the body, after it."""

    error = SoftTimeLimitExceeded()

    def begin(self, attempt: Attempt) -> None: ...  # type: ignore[override]


class TooSlow(Watcher):
    """Takes all the time of the first attempt at a payment."""

    def begin(self, attempt: Attempt) -> None:
        if attempt.step.name == "pay" and attempt.claim.lease.attempt == 1:
            raise SoftTimeLimitExceeded


class Untyped:
    """No watcher."""


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    watching._failed.clear()
    yield
    SEEN.clear()


def use(settings: LazySettings, *names: str) -> None:
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "WATCHERS": [f"{HERE}.{name}" for name in names]}


def test_an_attempt_is_told_when_it_begins_at_each_answer_and_once_it_is_settled(world: World, settings: LazySettings):
    """S3.21: each with what the rows say by then."""
    use(settings, "Seeing")
    provider = Provider(faults=[raise_without_acting(Transient("busy"))])
    api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    seen = [one for one in SEEN if one[0] != "told"]

    first, answer, after, *_ = seen
    pays = [one for one in seen if one[1] == "pay"]
    assert first[0] == "begin"
    assert pays[0] == ("begin", "pay", "1")
    assert pays[1] == ("send", "pay", "not done", EffectState.PLANNED)
    assert pays[2] == ("end", "pay", "transient", "RETRY_SCHEDULED")
    assert pays[3] == ("begin", "pay", "2")
    assert pays[4] == ("send", "pay", "receipt", EffectState.CONFIRMED)
    assert pays[5][0] == "end"
    assert pays[5][3] == "SUCCEEDED"
    assert answer, after


def test_a_lookup_is_a_call_without_an_attempt(world: World, settings: LazySettings):
    use(settings, "Seeing")
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    api.start(pay_workflow(provider, pay_effect(provider, key_window=None)), {"amount": 5})
    world.run_through()

    assert ("lookup", "pay", "found", EffectState.CONFIRMED) in SEEN


def test_facts_outside_of_attempts_are_told_to_everybody(world: World, settings: LazySettings):
    use(settings, "Seeing")
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    api.cancel(run.pk, by=None, reason="not wanted")

    assert {kind for what, kind, *_ in SEEN if what == "told"} >= {"run.started", "run.cancel_asked", "run.ended"}


def test_a_body_does_not_begin_when_its_time_was_over_before_it(world: World, settings: LazySettings):
    """Celery says once that the time is over; a body that began then would go on until its process is ended."""
    use(settings, "TooSlow")
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    tries = StepAttempt.objects.filter(step__run=run, step__name="pay").order_by("number")
    assert [one.outcome for one in tries] == ["transient", "done"]
    assert "did not end within" in tries[0].error_text
    assert SideEffect.objects.get(run=run).send_count == 1


@pytest.mark.parametrize("name", ["Failing", "Hurried"])
def test_a_watcher_that_fails_is_said_once_and_the_run_goes_on(
    world: World, settings: LazySettings, caplog: pytest.LogCaptureFixture, name: str
):
    use(settings, name, "Seeing")
    provider = Provider()
    with caplog.at_level(logging.WARNING, "durableflows.watching"):
        run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
        world.run_through()

    said = [line.getMessage() for line in caplog.records if line.name == "durableflows.watching"]
    assert len(said) == len(set(said)) >= 5
    assert StepAttempt.objects.filter(step__run=run).count() == len([one for one in SEEN if one[0] == "begin"])
    assert api.get(run.pk).state == RunState.SUCCEEDED
    assert len(provider.acts) == 1
    assert StepAttempt.objects.exclude(trace_id="").count() == 0


def test_without_watchers_neither_library_is_imported_and_nothing_is_kept(world: World):
    provider = Provider()
    run = api.start(pay_workflow(provider, pay_effect(provider)), {"amount": 5})
    world.run_through()

    assert WorkflowRun.objects.get(pk=run.pk).trace_context == {}
    code = (
        "import django, sys; django.setup()\n"
        "import durableflows.runner, durableflows.ticker, durableflows.celery, durableflows.views.monitor\n"
        "from durableflows import watching\n"
        "print(watching.watchers(), [name for name in ('opentelemetry', 'sentry_sdk') if name in sys.modules])"
    )
    environment = {"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": "sqlite://:memory:", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "() []"


@pytest.mark.parametrize("path", [f"{HERE}.Missing", f"{HERE}.Untyped", "no_such_library.Traces"])
def test_a_watcher_that_cannot_be_used_is_a_warning_and_is_left_out(
    settings: LazySettings, caplog: pytest.LogCaptureFixture, path: str
):
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "WATCHERS": [path, f"{HERE}.Seeing"]}

    assert [one.id for one in check_settings(None)] == ["durableflows.W016"]
    assert [type(one).__name__ for one in watching.watchers()] == ["Seeing"]
    assert path in caplog.text
