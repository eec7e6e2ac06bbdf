"""Several people at the same instant, at each of the doors and at different ones: one decides (R10, R22, R23, R26)."""

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import api
from durableflows.boundaries import Boundary
from durableflows.core import registry
from durableflows.core.states import ApprovalState, ParkedReason, RunState
from durableflows.models import ApprovalDecision, ApprovalRequest, RequestView, RunEvent, StepRun, WorkflowRun
from durableflows.services import expiry
from durableflows.testing import World, crash_at, open_request
from durableflows.testing.crashes import Crash
from tests.support.deciding import ask, clocks_by_thread
from tests.support.doors import DOORS, WEB, Outcome, Reply, Visit
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import at_once
from tests.worker_app.waits import Rounds

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

TURNS = 10
WISHES = ["cheaper", "sooner", "in blue"]
ROUNDS = registry.get(Rounds.name, Rounds.version)
Enter = Callable[[User], Visit]


@pytest.fixture
def bosses(django_user_model: type[User]) -> list[User]:
    return [django_user_model.objects.create_superuser(f"boss{number}") for number in range(3)]


@pytest.fixture
def provider() -> Provider:
    provider = Provider()
    pay_workflow(provider)
    return provider


@pytest.fixture(params=DOORS)
def enter(request: pytest.FixtureRequest) -> Enter:
    door: Enter = DOORS[request.param]
    return door


def test_approve_and_expire_at_the_same_instant(
    world: World, provider: Provider, bosses: list[User], enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10 (a): one wins, the other is told, and one step follows."""
    boss, winners = enter(bosses[0]), Counter[str]()
    with clocks_by_thread(monkeypatch) as times:
        for _ in range(TURNS):
            request = ask(world, is_last_rung=True)
            ends = request.expires_at

            def approve(request: ApprovalRequest = request, at: Any = ends - timedelta(microseconds=1)) -> object:
                times[threading.get_ident()] = at
                return boss.answer(request).outcome

            def expire(request: ApprovalRequest = request, at: Any = ends) -> object:
                times[threading.get_ident()] = at
                return expiry.expire(request.pk)

            approved, expired = at_once(approve, expire)
            times.clear()

            request.refresh_from_db()
            winners[str(request.state)] += 1
            is_approved = request.state == ApprovalState.APPROVED
            assert (approved, expired) == ((Outcome.TAKEN, False) if is_approved else (Outcome.LATE, True))
            assert RunEvent.objects.filter(run=request.run_id, kind="approval.closed").count() == 1
            assert request.decisions.count() == is_approved
    world.run_until_idle(limit=1000)

    assert set(winners) <= {"APPROVED", "EXPIRED"}
    assert len(provider.acts) == winners["APPROVED"]


def test_two_approve_one_rejects_and_one_clicks_twice(
    world: World, provider: Provider, bosses: list[User], enter: Enter
) -> None:
    """R22: four connections; one decision, one resume, one effect, one event."""
    first, twin, second, third = enter(bosses[0]), enter(bosses[0]), enter(bosses[1]), enter(bosses[2])
    for _ in range(TURNS // 2):
        request, acts, sent = ask(world), len(provider.acts), len(world.sent)

        replies = at_once(
            partial(first.answer, request),
            partial(twin.answer, request),
            partial(second.answer, request),
            partial(third.answer, request, "reject"),
        )

        decision = request.decisions.get()
        for reply, by in zip(replies, [bosses[0], bosses[0], bosses[1], bosses[2]], strict=True):
            assert isinstance(reply, Reply), reply
            if by == decision.actor:
                assert reply.outcome in (Outcome.TAKEN, Outcome.AGAIN)
            else:
                assert reply.outcome is Outcome.LATE
                assert f"by {decision.actor_name} at {decision.at:%Y-%m-%d %H:%M}" in reply.text
        assert len(world.sent) == sent + 1
        kinds = Counter(RunEvent.objects.filter(run=request.run_id).values_list("kind", flat=True))
        assert kinds["approval.answered"] == kinds["approval.closed"] == 1
        world.run_until_idle()
        assert len(provider.acts) == acts + (decision.verdict == "approve")


def test_people_at_all_doors_at_the_same_instant(world: World, provider: Provider, django_user_model: Any) -> None:
    """R22: each by another door, half of them against it."""
    visits = [
        (door(django_user_model.objects.create_superuser(f"{verdict} by {name}")), verdict)
        for name, door in DOORS.items()
        for verdict in ("approve", "reject")
    ]
    for _ in range(3):
        request = ask(world)

        replies = at_once(*(partial(visit.answer, request, verdict) for visit, verdict in visits))

        found = Counter(str(getattr(reply, "outcome", reply)) for reply in replies)
        assert found == {"taken": 1, "late": len(visits) - 1}
        assert RunEvent.objects.filter(run=request.run_id, kind="approval.answered").count() == 1
        world.run_until_idle()


def test_two_looks_at_once_are_one_look(world: World, provider: Provider, bosses: list[User]) -> None:
    request = ask(world)
    for door in WEB.values():
        one, twin = door(bosses[0]), door(bosses[0])

        at_once(*(partial(visit.look, request) for visit in (one, twin, one, twin)))

    assert RequestView.objects.count() == len(WEB)


def test_an_approval_whose_giver_loses_the_right_before_the_run_wakes_does_nothing(
    world: World, provider: Provider, bosses: list[User], enter: Enter
) -> None:
    """R26: the run goes to a person, with the reason."""
    request = ask(world)
    assert enter(bosses[0]).answer(request).outcome is Outcome.TAKEN
    User.objects.filter(pk=bosses[0].pk).update(is_superuser=False)

    world.run_until_idle()

    run = WorkflowRun.objects.get(pk=request.run_id)
    assert run.parked_reason == ParkedReason.NEEDS_PERSON
    assert "boss0" in run.parked_detail
    assert provider.sends == []


def test_what_came_before_the_wait_happens_once_through_three_rounds(
    world: World, bosses: list[User], enter: Enter, tmp_path: Path
) -> None:
    """R23: a crash, late duplicates, three rounds of wishes, all answered at this door."""
    registry.register(ROUNDS)
    boss = enter(bosses[0])
    run_id = api.start(Rounds, {"folder": str(tmp_path)}).pk
    with crash_at(Boundary.SETTLE_BEFORE_COMMIT), pytest.raises(Crash):
        world.run_until_idle()
    world.run_through()
    for wish in WISHES:
        asked = open_request(run_id)
        assert boss.answer(asked, "reject", comment=wish).outcome is Outcome.TAKEN
        assert boss.answer(asked, "reject", comment=wish).outcome is Outcome.AGAIN
        repeat_messages(world, run_id)
        world.run_until_idle()
    assert boss.answer(open_request(run_id), comment="fine").outcome is Outcome.TAKEN
    world.run_until_idle()

    run = WorkflowRun.objects.get(pk=run_id)
    assert run.state == RunState.SUCCEEDED
    assert isinstance(run.result, dict)
    assert run.result["wishes"] == WISHES
    for name in ("rounds.letter", "rounds.quote"):
        assert len((tmp_path / name).read_text().splitlines()) == 1
    comments = ApprovalDecision.objects.filter(request__run=run_id).order_by("at").values_list("comment", flat=True)
    assert list(comments) == [*WISHES, "fine"]


def repeat_messages(world: World, run_id: Any) -> None:
    """Each message that there was comes once more."""
    for step in StepRun.objects.filter(run=run_id):
        world.deliver(f"rounds.{step.name}", (str(step.run_id), str(step.pk)))
