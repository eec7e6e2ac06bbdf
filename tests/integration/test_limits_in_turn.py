"""Each limit of a run is reached by work that crashes before its checkpoints, and then raised by an operator (R35)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import Budget, Run, StepReturn, Workflow, WorkflowState, api, boundaries, doctor, step, succeed
from durableflows.core.states import ParkedReason, RunState
from durableflows.models import RunEvent, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import Boundary, Crash, World
from tests.support.flows import Provider, pay_effect
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)

TURNS = 12


class Turns(WorkflowState):
    """How many turns are settled."""

    turns: int = 0


@dataclass
class Outside:
    """Who is called: a provider with keys, and a model."""

    provider: Provider = field(default_factory=Provider)
    models: list[int] = field(default_factory=list)

    def calls(self) -> tuple[int, int]:
        return len(self.provider.sends), len(self.models)


def working(outside: Outside, limits: Budget) -> type[Workflow[Turns]]:
    """turn -> turn -> ... each pays once and asks a model once."""
    pay_it = pay_effect(outside.provider)

    class Working(Workflow[Turns]):
        name, deadline, budget = "working", timedelta(days=30), limits

        @step(start=True, to="turn", end=True, effects=(pay_it,))
        def turn(self, run: Run[Turns]) -> StepReturn:
            run.effect(pay_it, amount=5)
            with run.model_call("small", estimate_usd=Decimal("0.10")) as call:
                outside.models.append(run.state.turns)
                call.cost_usd = Decimal("0.10")
            run.state.turns += 1
            return self.turn if run.state.turns < TURNS else succeed(run.state.turns)

    return Working


@contextmanager
def crashing(times_a_settlement: int) -> Iterator[None]:
    """Each settlement is reached so often in vain."""
    reached = 0

    def hook(crossed: Boundary) -> None:
        nonlocal reached
        if crossed is Boundary.SETTLE_BEFORE_COMMIT:
            reached += 1
            if reached % (times_a_settlement + 1):
                raise Crash(str(crossed))

    boundaries.install(hook)
    try:
        yield
    finally:
        boundaries.install(None)


def drive(world: World, run: WorkflowRun, boss: User) -> None:
    """Let workers come again and again, and an operator let it go on whenever it has killed three of them."""
    for _ in range(100):
        try:
            world.run_until_idle()
        except Crash:
            world.clock.advance(minutes=3)
            continue
        if fresh(run).parked_reason != ParkedReason.NEEDS_PERSON:
            return
        api.retry(run.pk, by=boss, reason="once more")
    raise AssertionError("the crash loop never ended")


LIMITS: dict[str, tuple[Budget, int, str, dict[str, Any], tuple[int, int]]] = {
    # name -> limits, crashes a settlement, what is said, what is given more, calls at the limit
    "attempts": (Budget(attempts=5), 99, "5 attempts is used up", {"attempts": 40}, (1, 5)),
    "tool calls": (Budget(tool_calls=10), 1, "10 calls is used up (10 were made)", {"tool_calls": 10}, (10, 20)),
    "cost": (Budget(cost_usd=Decimal("1.00")), 1, "1.00 USD", {"cost_usd": Decimal("5.00")}, (6, 10)),
}


@pytest.fixture
def boss(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("boss")


@pytest.mark.parametrize("name", LIMITS)
def test_a_crash_loop_reaches_each_limit_and_a_raised_limit_lets_it_go_on(world: World, boss: User, name: str):
    """R35: counted before the work begins; its own visible end, with the numbers; nothing more is called outside."""
    limits, crashes, says, more, calls = LIMITS[name]
    outside = Outside()
    run = api.start(working(outside, limits), {})
    with crashing(crashes):
        drive(world, run, boss)

    ended = fresh(run)
    assert ended.state == RunState.EXHAUSTED_BUDGET
    assert says in ended.error_text
    assert says in api.explain(run.pk).sentence
    assert outside.calls() == calls
    world.clock.advance(days=1)
    world.run_until_idle()
    assert outside.calls() == calls
    settled = ended.data["turns"]

    api.extend(run.pk, by=boss, reason="it is worth it", budget=more)
    assert fresh(run).data["turns"] == settled
    drive(world, run, boss)

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).result == TURNS
    assert sorted(set(outside.models)) == list(range(TURNS))
    assert len(set(outside.provider.acts)) == len(outside.provider.acts) == TURNS
    event = RunEvent.objects.get(run=run, kind="run.extended")
    assert (event.actor_name, event.data["reason"]) == ("boss", "it is worth it")
    assert list(event.data["budget"]) == list(more)
    assert not [one for one in doctor.examine(run.pk) if one.severity is doctor.Severity.BROKEN]


def test_an_idle_run_ends_and_goes_on_with_more_idle_time(world: World, boss: User):
    """R35: 30 minutes in which no worker came."""
    outside = Outside()
    run = api.start(working(outside, Budget(idle=timedelta(minutes=30))), {})
    while world.messages:  # two steps are done, and then the workers are gone
        world.deliver(*world.messages.popleft())
        if fresh(run).data["turns"] == 2:
            world.lose_messages()
    for _ in range(30):
        assert state_of(run) is RunState.RUNNING
        world.clock.advance(minutes=1)
        end_idle(world)
    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert "nothing has happened since" in fresh(run).error_text
    assert outside.calls() == (2, 2)

    api.extend(run.pk, by=boss, reason="the workers are back", budget={"idle": timedelta(minutes=30)})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert outside.calls() == (TURNS, TURNS)
    assert RunEvent.objects.get(run=run, kind="run.extended").actor_name == "boss"


def end_idle(world: World) -> None:
    """A ticker comes by, whose messages are lost as well."""
    sweeps.sweep(may_free_stale=False)
    world.lose_messages()
