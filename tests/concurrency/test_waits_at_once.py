"""Branches, signals, timers and children that meet at the same instant: nothing is lost, nothing happens twice."""

from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from durableflows import Run, StepReturn, Workflow, WorkflowState, api, child, each, step, succeed, wait_for
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import Signal, StepRun, WorkflowRun
from durableflows.services import children, sweeps
from durableflows.testing import World
from tests.support.look import fresh, how_often, state_of, steps_of
from tests.support.rivals import at_once

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 6


class Counted(WorkflowState):
    wanted: int = 1
    heard: list[int] = []
    names: list[str] = []
    way: str = "signal"


def meeting() -> type[Workflow[Counted]]:
    """Waits for signals one by one, or splits into branches, or starts a child."""

    class Meeting(Workflow[Counted]):
        name, deadline = "meeting", timedelta(days=30)

        @step(start=True, to=("listen", "left", "right", "work", "join", "after"))
        def begin(self, run: Run[Counted]) -> StepReturn:
            ways: dict[str, StepReturn] = {
                "signal": self.listen,
                "branches": (self.left, self.right),
                "items": each(self.work, run.state.names, key=str, limit=2, then=self.join),
                "child": child("meeting", {"way": "signal"}, then=self.after),
            }
            return ways[run.state.way]

        @step(to=("heard", "late"))
        def listen(self, run: Run[Counted]) -> StepReturn:
            return wait_for("go", then=self.heard, timeout=timedelta(hours=1), on_timeout=self.late)

        @step(to="listen", end=True)
        def heard(self, run: Run[Counted]) -> StepReturn:
            assert run.signal is not None
            run.state.heard = [*run.state.heard, int(str(run.signal.payload))]
            return self.listen if len(run.state.heard) < run.state.wanted else succeed()

        @step(end=True)
        def late(self, run: Run[Counted]) -> None: ...

        @step(to="join")
        def left(self, run: Run[Counted]) -> None: ...

        @step(to="join")
        def right(self, run: Run[Counted]) -> None: ...

        @step(to="join")
        def work(self, run: Run[Counted]) -> None:
            under_way = StepRun.objects.filter(run__pk=run.id, name="work", state__in=["READY", "RUNNING"]).count()
            assert under_way <= 2, f"{under_way} items at a time"

        @step(join=True, end=True)
        def join(self, run: Run[Counted]) -> None: ...

        @step(end=True)
        def after(self, run: Run[Counted]) -> None: ...

    return Meeting


def sound() -> bool:
    return not [finding for finding in examine() if finding.severity is Severity.BROKEN]


def test_a_signal_and_the_wait_for_it_cannot_miss_each_other(world: World):
    """R21: the signal comes in the instant in which the step settles that begins to wait."""
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {})
        world.deliver(*world.messages.popleft())
        begin_to_wait = partial(world.deliver, *world.messages.popleft())

        at_once(begin_to_wait, partial(api.signal, run.pk, "go", 1))
        world.run_until_idle()

        assert fresh(run).data["heard"] == [1]
        assert state_of(run) is RunState.SUCCEEDED


def test_eight_senders_of_one_signal_are_one(world: World):
    run = api.start(meeting(), {"wanted": 2})
    world.run_until_idle()

    sent = at_once(*[partial(api.signal, run.pk, "go", 7, dedup_key="evt_7") for _ in range(8)])
    world.run_until_idle()

    assert len({signal.pk for signal in sent if isinstance(signal, Signal)}) == 1
    assert fresh(run).data["heard"] == [7]


def test_eight_signals_at_once_are_all_used_once(world: World):
    run = api.start(meeting(), {"wanted": 8})
    world.run_until_idle()

    at_once(*[partial(api.signal, run.pk, "go", number) for number in range(8)])
    world.run_until_idle()

    assert sorted(fresh(run).data["heard"]) == list(range(8))
    assert state_of(run) is RunState.SUCCEEDED


def test_a_signal_and_its_timeout_lead_one_way(world: World):
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {})
        world.run_until_idle()
        world.clock.advance(hours=2)
        now = world.clock.now()

        at_once(partial(api.signal, run.pk, "go", 1), partial(sweeps.end_waits, now))
        world.run_until_idle()

        late, heard = how_often(run, "late"), fresh(run).data["heard"]
        assert (late, heard) in [(0, [1]), (1, [])]
        assert fresh(run).ended_at is not None
    assert sound()


def test_branches_that_end_at_the_same_instant_begin_their_join_once(world: World):
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {"way": "branches"})
        world.deliver(*world.messages.popleft())
        both = [partial(world.deliver, *world.messages.popleft()) for _ in range(2)]

        at_once(*both)
        world.run_until_idle()

        assert how_often(run, "join") == 1
        assert state_of(run) is RunState.SUCCEEDED


def test_items_that_end_at_the_same_instant_keep_the_limit(world: World):
    run = api.start(meeting(), {"way": "items", "names": list("abcdefgh")})
    world.deliver(*world.messages.popleft())
    while len(world.messages) > 1:
        at_once(*[partial(world.deliver, *world.messages.popleft()) for _ in range(2)])
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert how_often(run, "work") == 8
    assert {state for name, _, state in steps_of(run) if name == "work"} == {StepState.SUCCEEDED}


def waiting_step(run: WorkflowRun) -> UUID:
    return StepRun.objects.get(run=run, name="after").pk


def test_a_child_is_started_once_by_eight_tickers(world: World):
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {"way": "child"})
        world.deliver(*world.messages.popleft())
        world.lose_messages()

        carried = at_once(*[partial(children.carry, waiting_step(run)) for _ in range(8)])

        assert not [error for error in carried if isinstance(error, BaseException)]
        assert WorkflowRun.objects.filter(parent=run).count() == 1
        world.lose_messages()


def test_a_ticker_that_looked_before_the_child_was_there_starts_no_second_and_says_nothing(world: World):
    """R09: it comes to the run's lock when the first has committed."""
    run = api.start(meeting(), {"way": "child"})
    world.deliver(*world.messages.popleft())
    looked = StepRun.objects.select_related("run").get(pk=waiting_step(run))
    assert children.carry(looked.pk)

    assert not children._carry(looked, None)

    assert WorkflowRun.objects.filter(parent=run).count() == 1


def test_a_child_is_handed_back_once_by_eight_tickers(world: World):
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {"way": "child"})
        world.run_until_idle()
        api.signal(WorkflowRun.objects.get(parent=run).pk, "go", 1)
        while not WorkflowRun.objects.get(parent=run).ended_at:
            world.deliver(*world.messages.popleft())
        world.lose_messages()

        at_once(*[partial(children.carry, waiting_step(run)) for _ in range(8)])
        world.run_until_idle()

        assert how_often(run, "after") == 1
        assert state_of(run) is RunState.SUCCEEDED


def test_a_child_that_is_started_while_its_parent_is_cancelled_does_not_live_on(world: World):
    flow = meeting()
    for _ in range(ROUNDS):
        run = api.start(flow, {"way": "child"})
        world.deliver(*world.messages.popleft())
        world.lose_messages()
        waiting = waiting_step(run)

        at_once(partial(children.carry, waiting), partial(api.cancel, run.pk, reason="no more"))
        world.run_until_idle()

        assert state_of(run) is RunState.CANCELLED
        assert not WorkflowRun.objects.filter(parent=run, ended_at__isnull=True).exists()
    assert sound()
