"""Each limit stops a run in its own visible end, exactly, whatever crashes or runs side by side (P7, R35)."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from durableflows import (
    Budget,
    InvalidDefinition,
    InvalidState,
    Retry,
    Run,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    api,
    doctor,
    each,
    step,
    wait_for,
)
from durableflows.core.states import RunState
from durableflows.models import ModelCall, StepRun
from durableflows.testing import Boundary, Crash, World, crash_at
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)

CENTS = Decimal("0.05")


class Empty(WorkflowState):
    names: list[str] = []


Body = Callable[[Run[Empty]], StepReturn]


def thinking(budget: Budget, body: Body, *, atomic: bool = False) -> type[Workflow[Empty]]:
    limits = budget

    class Thinking(Workflow[Empty]):
        name, deadline, budget = "thinking", timedelta(days=30), limits

        @step(start=True, to=("think", "gather", "heard"))
        def begin(self, run: Run[Empty]) -> StepReturn:
            if run.state.names == ["wait"]:
                return wait_for("go", then=self.heard)
            return each(self.think, run.state.names, key=str, then=self.gather)

        @step(to="gather", atomic=atomic, retry=Retry(attempts=50, base_seconds=60, cap_seconds=60))
        def think(self, run: Run[Empty]) -> StepReturn:
            return body(run)

        @step(join=True, end=True)
        def gather(self, run: Run[Empty]) -> None: ...

        @step(end=True)
        def heard(self, run: Run[Empty]) -> None: ...

    return Thinking


def ask(times: int = 1, *, cost: str | None = None) -> Body:
    def body(run: Run[Empty]) -> None:
        for _ in range(times):
            with run.model_call("small", estimate_usd=CENTS) as call:
                if cost is not None:
                    call.cost_usd = Decimal(cost)

    return body


def sound() -> bool:
    return not [finding for finding in doctor.examine() if finding.severity is doctor.Severity.BROKEN]


def test_model_calls_are_counted_and_end_the_run_at_their_limit(world: World):
    """S3.13, S2.1."""
    run = api.start(thinking(Budget(model_calls=3), ask(5)), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert fresh(run).model_calls_count == 3
    assert "3 model calls is used up" in fresh(run).error_text
    assert sound()


def test_the_real_cost_takes_the_place_of_the_estimate(world: World):
    run = api.start(thinking(Budget(cost_usd=Decimal("0.10")), ask(4, cost="0.01")), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).cost_usd == Decimal("0.04")
    assert sound()


def test_a_call_that_might_cost_too_much_is_not_made(world: World):
    run = api.start(thinking(Budget(cost_usd=Decimal("0.12")), ask(3)), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert fresh(run).cost_usd == Decimal("0.10")
    assert ModelCall.objects.count() == 2
    assert "0.12 USD" in fresh(run).error_text


def test_a_call_that_fails_counts_as_estimated(world: World):
    def fails(run: Run[Empty]) -> None:
        with run.model_call("small", estimate_usd=CENTS):
            raise Transient("overloaded")

    run = api.start(thinking(Budget(cost_usd=Decimal("0.12")), fails), {"names": ["a"]})
    world.run_through()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert [call.outcome for call in ModelCall.objects.all()] == ["failed", "failed"]
    assert sound()


def test_a_crash_loop_uses_the_budget_up(world: World):
    """R35: the worker dies in each call, before anything of it is settled."""

    def dies(run: Run[Empty]) -> None:
        with run.model_call("small", estimate_usd=CENTS):
            raise Crash("in the call")

    run = api.start(thinking(Budget(model_calls=2, attempts=20), dies), {"names": ["a"]})
    for _ in range(4):
        try:
            world.run_until_idle()
        except Crash:
            world.clock.advance(minutes=5)

    assert fresh(run).model_calls_count == 2
    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert {call.outcome for call in ModelCall.objects.all()} <= {"lost", "failed"}
    assert fresh(run).cost_usd == 2 * CENTS
    assert sound()


def test_branches_share_one_budget(world: World):
    run = api.start(thinking(Budget(model_calls=4), ask(1)), {"names": list("abcdefg")})
    world.run_until_idle()

    assert fresh(run).model_calls_count == 4
    assert state_of(run) is RunState.EXHAUSTED_BUDGET


@pytest.mark.parametrize("cost", [0.05, Decimal(-1), Decimal("NaN"), Decimal("0.0000001"), "0.05", Decimal(10**9)])
def test_a_cost_that_means_nothing_is_an_error_in_our_code(world: World, cost: object):
    def body(run: Run[Empty]) -> None:
        with pytest.raises(InvalidState, match="model_call"), run.model_call("small", estimate_usd=cost):  # type: ignore[arg-type]
            raise AssertionError("the block was entered")

    run = api.start(thinking(Budget(), body), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert not ModelCall.objects.exists()


def test_a_model_is_not_called_inside_a_transaction(world: World):
    def body(run: Run[Empty]) -> None:
        with pytest.raises(InvalidDefinition, match="is atomic"), run.model_call("small", estimate_usd=CENTS):
            raise AssertionError("the block was entered")

    run = api.start(thinking(Budget(), body, atomic=True), {"names": ["a"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


def test_a_cancelled_run_calls_no_model(world: World):
    entered: list[int] = []

    def body(run: Run[Empty]) -> None:
        api.cancel(run.id, reason="enough")
        with run.model_call("small", estimate_usd=CENTS):
            entered.append(1)

    run = api.start(thinking(Budget(), body), {"names": ["a"]})
    world.run_until_idle()

    assert entered == []
    assert state_of(run) is RunState.CANCELLED


def test_a_paused_run_calls_no_model_until_it_is_resumed(world: World):
    """P6: the pause leaves the worker its lease, so only the call's own look at the run can stop it."""
    entered: list[int] = []
    paused: list[object] = []

    def body(run: Run[Empty]) -> None:
        if not paused:
            paused.append(api.pause(run.id, reason="wait"))
        with run.model_call("small", estimate_usd=CENTS):
            entered.append(1)

    run = api.start(thinking(Budget(), body), {"names": ["a"]})
    world.run_until_idle()

    assert entered == []
    api.resume(run.pk, reason="go on")
    world.run_until_idle()
    assert entered == [1]


def test_attempts_of_a_crash_loop_end_the_run(world: World):
    """R35: the worker dies before each checkpoint; a third death would park the step, so the limit here is two."""
    run = api.start(thinking(Budget(attempts=2), ask(0)), {"names": ["a"]})
    with crash_at(Boundary.SETTLE_BEFORE_COMMIT, times=9):
        for _ in range(9):
            try:
                world.run_until_idle()
            except Crash:
                world.clock.advance(minutes=5)

    assert fresh(run).attempts_count == 2
    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert "2 attempts" in fresh(run).error_text


def test_an_idle_run_ends(world: World):
    """R35: 30 minutes without anything happening, with no worker to do it."""
    run = api.start(thinking(Budget(idle=timedelta(minutes=30)), ask(0)), {"names": ["a"]})
    world.lose_messages()
    world.clock.advance(minutes=29)
    assert not _swept_idle(world)

    world.clock.advance(minutes=1)
    assert _swept_idle(world)

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert "nothing has happened since" in fresh(run).error_text


def _swept_idle(world: World) -> int:
    from durableflows.services import sweeps

    return sweeps.end_idle_runs(world.clock.now())


def test_a_run_that_waits_for_a_signal_or_is_worked_on_is_not_idle(world: World):
    waiting = api.start(thinking(Budget(idle=timedelta(minutes=30)), ask(0)), {"names": ["wait"]})
    world.run_until_idle()
    world.clock.advance(hours=5)
    assert not _swept_idle(world)

    worked_on = api.start("thinking", {"names": ["a"]})
    StepRun.objects.filter(run=worked_on).update(
        state="RUNNING", lease_token=worked_on.pk, must_end_by=world.clock.now() + timedelta(days=1)
    )
    world.clock.advance(hours=5)

    assert not _swept_idle(world)
    assert state_of(waiting) is RunState.WAITING


def test_counters_that_were_changed_from_outside_are_found(world: World):
    run = api.start(thinking(Budget(), ask(1)), {"names": ["a"]})
    world.run_until_idle()
    assert sound()

    type(run).objects.filter(pk=run.pk).update(model_calls_count=0, cost_usd=9)

    assert [one.code for one in doctor.examine() if one.severity is doctor.Severity.BROKEN] == ["budget-count"] * 2
