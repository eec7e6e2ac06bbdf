"""Of all that can decide a request at the same instant, one does; the others are told, and nothing happens twice."""

import threading
from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from durableflows import AlreadyDecided, TooLate, api, clock
from durableflows.core.states import ApprovalState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepRun, WorkflowRun
from durableflows.services import expiry, sweeps
from durableflows.testing import World
from tests.support.deciding import ask, clocks_by_thread
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 50


@pytest.fixture
def bosses(django_user_model) -> list[Any]:
    return [django_user_model.objects.create_superuser(f"boss{number}") for number in range(3)]


def answering(request: ApprovalRequest, verdict: str, by: Any) -> Any:
    return lambda: api.answer(request.pk, verdict, by=by, facts_digest=request.facts_digest)


def test_approve_and_expire_at_the_same_instant(world: World, bosses: list[Any], monkeypatch: pytest.MonkeyPatch):
    """R10 (a): 50 rounds; one wins, the other is refused, and one step follows."""
    provider = Provider()
    pay_workflow(provider)
    winners: Counter[str] = Counter()
    with clocks_by_thread(monkeypatch) as times:
        for _ in range(ROUNDS):
            request = ask(world, is_last_rung=True)
            ends = request.expires_at

            def approve(request: ApprovalRequest = request, ends: datetime = ends) -> object:
                times[threading.get_ident()] = ends - timedelta(microseconds=1)
                return answering(request, "approve", bosses[0])()

            def expire(request: ApprovalRequest = request, ends: datetime = ends) -> object:
                times[threading.get_ident()] = ends
                return expiry.expire(request.pk)

            approved, expired = at_once(approve, expire)
            times.clear()

            request.refresh_from_db()
            winners[str(request.state)] += 1
            if request.state == ApprovalState.APPROVED:
                assert isinstance(approved, ApprovalRequest)
                assert expired is False
            else:
                assert request.state == ApprovalState.EXPIRED
                assert isinstance(approved, TooLate)
                assert expired is True
            followers = StepRun.objects.filter(run=request.run_id).exclude(name__in=["assess", "sign_off"])
            wanted = "pay" if request.state == ApprovalState.APPROVED else "turned_down"
            assert [step.name for step in followers] == [wanted]
            assert RunEvent.objects.filter(run=request.run_id, kind="approval.closed").count() == 1
            assert request.decisions.count() == (request.state == ApprovalState.APPROVED)
    world.run_until_idle(limit=1000)

    assert sum(winners.values()) == ROUNDS
    assert len(provider.acts) == winners["APPROVED"]
    assert not [found for found in examine() if found.severity is Severity.BROKEN]


@pytest.mark.parametrize("door", ["request", "run"])
def test_a_late_approval_is_refused_though_no_sweep_has_been(world: World, bosses: list[Any], door: str):
    """R10 (b): one second after the deadline; the sweep is off."""
    provider = Provider()
    pay_workflow(provider)
    request = ask(world)
    if door == "run":
        WorkflowRun.objects.update(deadline_at=world.clock.now() + timedelta(hours=1))
        world.clock.advance(hours=1, seconds=1)
    else:
        world.clock.move_to(request.expires_at + timedelta(seconds=1))

    with pytest.raises(TooLate, match=r"expired|deadline"):
        answering(request, "approve", bosses[0])()

    assert not ApprovalDecision.objects.exists()
    assert StepRun.objects.get(name="sign_off").state == StepState.WAITING_HUMAN
    world.run_until_idle()
    assert provider.sends == []


def test_an_expiry_that_comes_too_early_or_after_the_answer_changes_nothing(world: World, bosses: list[Any]):
    """P9, R10: a ticker picked the request when it was due, and comes to it when it is not, or not any more."""
    provider = Provider()
    pay_workflow(provider)
    request = ask(world)

    assert not expiry.expire(request.pk)
    answering(request, "approve", bosses[0])()
    world.clock.move_to(request.expires_at + timedelta(seconds=1))
    assert not expiry.expire(request.pk)

    after = ApprovalRequest.objects.get(pk=request.pk)
    assert (after.state, after.permission, after.ladder_position) == (ApprovalState.APPROVED, request.permission, 0)


def test_the_last_moment_before_the_deadline_counts(world: World, bosses: list[Any]):
    """R10 (b): the other side of the same second."""
    provider = Provider()
    pay_workflow(provider)
    request = ask(world)
    world.clock.move_to(request.expires_at - timedelta(microseconds=1))

    answering(request, "approve", bosses[0])()
    world.run_until_idle()

    assert len(provider.acts) == 1


def test_a_deadline_that_passes_before_the_question_is_asked(world: World):
    """R10 (c): the approval step is still in the queue; nobody is asked any more."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5, "ask": True})
    world.deliver(*world.messages.popleft())
    assert StepRun.objects.get(name="sign_off").state == StepState.READY
    run.refresh_from_db()
    world.clock.move_to(run.deadline_at)

    world.deliver(*world.messages.popleft())

    run.refresh_from_db()
    assert run.state == RunState.DEADLINE_EXCEEDED
    assert not ApprovalRequest.objects.exists()
    world.run_until_idle()
    assert provider.sends == []


def test_two_approve_one_rejects_and_one_clicks_twice(world: World, bosses: list[Any]):
    """S3.14, S3.38, R22: four connections at the same instant; one decides, one resume, one effect, one event."""
    provider = Provider()
    pay_workflow(provider)
    for _ in range(10):
        request = ask(world)
        acts = len(provider.acts)
        sent = len(world.sent)

        results = at_once(
            answering(request, "approve", bosses[0]),
            answering(request, "approve", bosses[0]),
            answering(request, "approve", bosses[1]),
            answering(request, "reject", bosses[2]),
        )

        request.refresh_from_db()
        decision = request.decisions.get()
        for result, by in zip(results, [bosses[0], bosses[0], bosses[1], bosses[2]], strict=True):
            if by == decision.actor:
                assert isinstance(result, ApprovalRequest), "the same answer again is friendly"
            else:
                assert isinstance(result, AlreadyDecided)
                assert decision.actor_name in str(result)
                assert f"{decision.at:%Y-%m-%d %H:%M}" in str(result)
        assert len(world.sent) == sent + 1
        kinds = Counter(RunEvent.objects.filter(run=request.run_id).values_list("kind", flat=True))
        assert kinds["approval.answered"] == kinds["approval.closed"] == 1
        world.run_until_idle()
        assert len(provider.acts) == acts + (decision.verdict == "approve")
        assert WorkflowRun.objects.get(pk=request.run_id).state == RunState.SUCCEEDED


def test_an_answer_and_a_cancel_at_the_same_instant(world: World, bosses: list[Any]):
    """R22, R34: in either order nothing is paid after the cancel, and the request is closed once."""
    provider = Provider()
    pay_workflow(provider)
    for _ in range(10):
        request = ask(world)

        answered, cancelled = at_once(
            answering(request, "approve", bosses[0]), partial(api.cancel, request.run_id, reason="stop")
        )
        world.run_until_idle()

        assert isinstance(cancelled, WorkflowRun)
        assert isinstance(answered, ApprovalRequest | TooLate)
        assert WorkflowRun.objects.get(pk=request.run_id).state == RunState.CANCELLED
        assert RunEvent.objects.filter(run=request.run_id, kind="approval.closed").count() == 1
    assert provider.sends == []


def test_escalation_and_an_answer_at_the_same_instant(world: World, bosses: list[Any]):
    """R10, R22: two sweeps and an answer; the ladder is climbed one rung, or the answer is refused."""
    provider = Provider()
    pay_workflow(provider)
    for _ in range(10):
        request = ask(world)
        world.clock.move_to(request.expires_at)

        answered, *_ = at_once(
            answering(request, "approve", bosses[0]),
            lambda: sweeps.expire_requests(clock.now()),
            lambda: sweeps.expire_requests(clock.now()),
        )

        request.refresh_from_db()
        assert isinstance(answered, TooLate)
        assert request.state == ApprovalState.OPEN
        world.run_until_idle()
        request.refresh_from_db()
        assert request.ladder_position == 1
        assert RunEvent.objects.filter(run=request.run_id, kind="approval.escalated").count() == 1
