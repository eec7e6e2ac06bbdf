"""A request is a token for one run, one visit of one step and one state: it opens nothing else."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from durableflows import (
    AlreadyDecided,
    EffectCall,
    Facts,
    FactsChanged,
    NotFoundError,
    Run,
    Workflow,
    WorkflowState,
    api,
    approval,
    effect,
    step,
)
from durableflows.core.states import ApprovalState, RunState, StepState
from durableflows.models import ApprovalDecision, ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.testing import World, open_request
from tests.support.asking import change_data
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = ("external message", "deletion", "money", "production change", "access grant")


class Wish(WorkflowState):
    """What is to be done, and to whom."""

    kind: str
    target: str = "Ada"
    rounds: int = 0


class Done(BaseModel, frozen=True):
    """A receipt."""

    id: str


DONE: list[str] = []


@effect(name="world.change", provider="world", receipt=Done, key_window=timedelta(hours=24), settle_seconds=30)
def change(call: EffectCall, *, kind: str, target: str) -> Done:
    DONE.append(f"{kind} for {target}")
    return Done(id="1")


def show(run: Run[Wish]) -> Facts:
    return Facts(binding={"kind": run.state.kind, "target": run.state.target})


def declare() -> None:
    """prepare -> sign_off -> act, or prepare again."""

    class AskFirst(Workflow[Wish]):
        name, deadline = "ask_first", timedelta(days=30)

        @step(start=True, to="sign_off")
        def prepare(self, run: Run[Wish]) -> None:
            run.state.rounds += 1

        sign_off = approval(
            title="{kind} for {target}",
            shows=show,
            permission="durableflows.answer_approval",
            approved="act",
            rejected="prepare",
        )

        @step(end=True, effects=(change,))
        def act(self, run: Run[Wish]) -> None:
            run.effect(change, kind=run.state.kind, target=run.state.target)


@pytest.fixture(autouse=True)
def nothing_is_done() -> None:
    DONE.clear()


@pytest.fixture
def boss(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("boss")


def asked(world: World, kind: str = "money", target: str = "Ada") -> WorkflowRun:
    run = api.start("ask_first", {"kind": kind, "target": target})
    world.run_until_idle()
    return run


def answer(request: ApprovalRequest, boss: User, verdict: str = "approve", digest: str = "") -> None:
    api.answer(request.pk, verdict, by=boss, facts_digest=digest or request.facts_digest)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_irreversible_is_done_before_somebody_has_said_so(world: World, boss: User, kind: str):
    """S3.36: the step before it asks, and only a yes leads to it."""
    declare()
    run = asked(world, kind)
    world.clock.advance(days=1)
    world.run_until_idle()
    answer(open_request(run.pk), boss, "reject")
    world.run_until_idle()
    assert DONE == []
    assert not SideEffect.objects.exists()

    answer(open_request(run.pk), boss)
    world.run_until_idle()

    assert [f"{kind} for Ada"] == DONE
    assert state_of(run) is RunState.SUCCEEDED


def test_a_step_that_asks_stores_its_checkpoint_and_gives_a_token(world: World):
    """S3.31: run, step and state version are in the request, and whoever asks for the run is told that it waits."""
    declare()
    run = asked(world)

    request = open_request(run.pk)
    waiting = api.get(run.pk)
    step_row = StepRun.objects.get(run=run, name="sign_off")
    assert waiting.state == RunState.WAITING_HUMAN
    assert step_row.state == StepState.WAITING_HUMAN
    assert (request.run_id, request.step_id, request.run_version) == (run.pk, step_row.pk, waiting.checkpoint_sequence)
    assert waiting.checkpoint_sequence == 1
    assert waiting.data["rounds"] == 1
    assert len(request.facts_digest) == 64


def test_a_token_opens_no_other_run_no_other_visit_and_no_other_state(world: World, boss: User):
    """S3.37."""
    declare()
    run, other = asked(world, target="Ada"), asked(world, target="Bo")
    first = open_request(run.pk)

    with pytest.raises(FactsChanged):  # shown for one run, answered for another
        answer(open_request(other.pk), boss, digest=first.facts_digest)
    with pytest.raises(NotFoundError):  # the id of a run or a step is none of a request
        api.answer(run.pk, "approve", by=boss, facts_digest=first.facts_digest)
    answer(first, boss, "reject")
    world.run_until_idle()
    second = open_request(run.pk)
    assert (second.step.visit, second.run_version) == (2, fresh(run).checkpoint_sequence)
    assert second.run_version > first.run_version
    with pytest.raises(AlreadyDecided, match="already rejected by boss"):  # the first visit's, at the second
        answer(first, boss)
    stale = second.facts_digest
    change_data(run.pk, target="Eve")
    with pytest.raises(FactsChanged, match="target"):  # another state than was shown
        answer(second, boss, digest=stale)

    assert DONE == []
    assert state_of(run) is RunState.WAITING_HUMAN
    assert ApprovalDecision.objects.filter(voided_at=None, verdict="approve").count() == 0
    second.refresh_from_db()
    answer(second, boss)
    world.run_until_idle()
    assert DONE == ["money for Eve"]
    assert ApprovalRequest.objects.filter(run=other, state=ApprovalState.OPEN).exists()
