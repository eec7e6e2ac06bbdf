"""A wait and the news of it commit together: nobody answers too early, and what comes early is kept and used (R21)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import api, signals
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState, StepState
from durableflows.models import ApprovalRequest, RunEvent, Signal, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow
from tests.support.look import fresh, how_often, state_of
from tests.support.rivals import Rival, gate_at
from tests.support.waits import waiting_workflow

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@contextmanager
def news(kind: str, act: Callable[[], object] = lambda: None) -> Iterator[list[dict[str, Any]]]:
    """All that leaves the engine about this kind of event, as it leaves; `act` is done at that very moment."""
    heard: list[dict[str, Any]] = []

    def hear(**told: Any) -> None:
        if told["kind"] == kind:
            heard.append(told)
            act()

    signals.run_event.connect(hear)
    try:
        yield heard
    finally:
        signals.run_event.disconnect(hear)


def about_to_ask(world: World) -> WorkflowRun:
    """A run whose next message makes it ask a person."""
    run = api.start(pay_workflow(Provider()), {"amount": 5, "ask": True})
    world.deliver(*world.messages.popleft())
    return run


def test_before_the_wait_is_committed_there_is_nothing_to_answer_and_nobody_has_been_told(world: World):
    """R21: impossible by construction."""
    about_to_ask(world)
    seen: list[object] = []

    with news("approval.asked") as told:
        with gate_at(Boundary.SETTLE_BEFORE_COMMIT) as gate:
            asking = Rival(partial(world.deliver, *world.messages.popleft())).begin()
            gate.wait()
            seen = [ApprovalRequest.objects.count(), list(told), len(world.messages)]
        asking.outcome()
        assert len(told) == ApprovalRequest.objects.count() == 1

    assert seen == [0, [], 0]
    assert StepRun.objects.get(name="sign_off").state == StepState.WAITING_HUMAN


def test_an_answer_in_the_moment_in_which_the_news_of_the_question_leaves_is_used_once(
    world: World, django_user_model: type[User]
):
    """R21: after the commit, before any worker or ticker has seen it."""
    boss = django_user_model.objects.create_superuser("boss")
    run = about_to_ask(world)

    def answer() -> None:
        request = ApprovalRequest.objects.get()
        api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)

    with news("approval.asked", answer) as told:
        world.run_until_idle()

    assert len(told) == 1
    assert state_of(run) is RunState.SUCCEEDED
    assert how_often(run, "pay") == how_often(run, "done") == 1
    assert RunEvent.objects.filter(run=run, kind="approval.answered").count() == 1


def test_a_signal_that_comes_while_the_wait_is_being_committed_is_kept_and_used_once(world: World):
    """R21: its sender stands at the run's lock, and goes on after the commit."""
    run = api.start(waiting_workflow(), {"way": "signal"})

    with gate_at(Boundary.SETTLE_BEFORE_COMMIT) as gate:
        settling = Rival(partial(world.deliver, *world.messages.popleft())).begin()
        gate.wait()
        sending = Rival(partial(api.signal, run.pk, "begin", {"early": True})).begin()
        sending.wait_until_blocked()
    settling.outcome()
    assert isinstance(sending.outcome(), Signal)
    world.run_until_idle()

    assert_used_once(run)


@pytest.mark.parametrize("kind", ["run.started", "step.claimed", "step.succeeded"])
def test_a_signal_in_the_moment_in_which_the_news_of_a_step_leaves_is_used_once(world: World, kind: str):
    """R21: long before the wait, while the step is at work that will wait, and milliseconds after its commit."""
    with news(kind, lambda: api.signal(fresh_one().pk, "begin", dedup_key="once")):
        run = api.start(waiting_workflow(), {"way": "signal"})
        world.run_until_idle()

    assert_used_once(run)


def fresh_one() -> WorkflowRun:
    return WorkflowRun.objects.get()


def assert_used_once(run: WorkflowRun) -> None:
    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).ended_at is not None
    assert how_often(run, "go_on") == 1
    assert Signal.objects.filter(run=run, used_by__name="go_on").count() == Signal.objects.count() == 1
