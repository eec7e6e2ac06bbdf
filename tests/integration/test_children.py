"""Runs that start other runs: one child a wait, its end handed back once, cancelled with its parent."""

from datetime import timedelta

import pytest

from durableflows import (
    Permanent,
    Run,
    StepReturn,
    UnknownOutcome,
    Workflow,
    WorkflowState,
    api,
    child,
    claims,
    dispatch,
    each,
    step,
    succeed,
    wait_for,
)
from durableflows.core.states import RunState, StepState
from durableflows.models import StepRun, WorkflowRun
from durableflows.services import children, sweeps
from durableflows.testing import World
from tests.support.flows import Provider, act_then_raise, pay_effect
from tests.support.look import fresh, how_often, state_of

pytestmark = pytest.mark.django_db(transaction=True)


class Packing(WorkflowState):
    item: str = "box"


class Order(WorkflowState):
    item: str = "box"
    items: list[str] = []
    packed: list[str] = []
    failed: str = ""


def pack() -> type[Workflow[Packing]]:
    """Waits for "packed", then ends well, or fails for an item that is "lost"."""

    class Pack(Workflow[Packing]):
        name, deadline = "pack", timedelta(days=20)

        @step(start=True, to="wrap")
        def fetch(self, run: Run[Packing]) -> StepReturn:
            if run.state.item == "lost":
                raise Permanent("nobody can find it")
            return wait_for("packed", then=self.wrap) if run.state.item == "slow" else self.wrap

        @step(end=True)
        def wrap(self, run: Run[Packing]) -> StepReturn:
            return succeed(f"parcel with {run.state.item}")

    return Pack


def order(*, with_way: bool = True) -> type[Workflow[Order]]:
    pack()

    class Ordering(Workflow[Order]):
        name, deadline = "ordering", timedelta(days=10)

        @step(start=True, to=("ship", "give_up"))
        def begin(self, run: Run[Order]) -> StepReturn:
            way = self.give_up if with_way else None
            return child("pack", {"item": run.state.item}, then=self.ship, on_failure=way)

        @step(end=True)
        def ship(self, run: Run[Order]) -> None:
            assert run.child is not None
            run.state.packed = [*run.state.packed, str(run.child.result)]

        @step(end=True)
        def give_up(self, run: Run[Order]) -> None:
            assert run.child is not None
            run.state.failed = run.child.error

    return Ordering


def child_of(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(parent=run)


def test_a_run_goes_on_with_the_result_of_its_child(world: World, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    run = api.start(order(), {"item": "book"}, by=owner, tenant="north", labels={"team": "a"})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["packed"] == ["parcel with book"]
    packed = child_of(run)
    assert (packed.owner, packed.tenant, packed.labels) == (owner, "north", {"team": "a"})
    assert packed.deadline_at == fresh(run).deadline_at


def test_a_failed_child_leads_where_it_was_declared(world: World):
    run = api.start(order(), {"item": "lost"})
    world.run_until_idle()

    assert state_of(child_of(run)) is RunState.FAILED
    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["failed"] == "pack failed: nobody can find it"


def test_a_failed_child_without_a_way_fails_its_parent(world: World):
    run = api.start(order(with_way=False), {"item": "lost"})
    world.run_until_idle()

    assert state_of(run) is RunState.FAILED
    assert "pack failed" in fresh(run).error_text


def test_a_child_is_cancelled_with_its_parent(world: World):
    run = api.start(order(), {"item": "slow"})
    world.run_until_idle()
    assert state_of(child_of(run)) is RunState.WAITING

    api.cancel(run.pk, reason="customer changed his mind")
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert state_of(child_of(run)) is RunState.CANCELLED
    assert "ordering run" in fresh(child_of(run)).cancel_reason


def paying_and_packing() -> type[Workflow[Order]]:
    """A payment whose answer is lost, for a person to find out; and at the same time a child."""
    pack()
    unanswered = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("cut"))])
    pay_it = pay_effect(unanswered, key_window=None, with_lookup=False)

    class Both(Workflow[Order]):
        name, deadline = "both", timedelta(days=10)

        @step(start=True, to=("pay", "call"))
        def begin(self, run: Run[Order]) -> StepReturn:
            return self.pay, self.call

        @step(end=True, effects=(pay_it,))
        def pay(self, run: Run[Order]) -> None:
            run.effect(pay_it, amount=5)

        @step(to="ship")
        def call(self, run: Run[Order]) -> StepReturn:
            return child("pack", {"item": "slow"}, then=self.ship)

        @step(end=True)
        def ship(self, run: Run[Order]) -> None: ...

    return Both


def test_a_child_does_not_go_on_while_its_cancelled_parent_waits_to_end(world: World):
    """P6: the parent may wait for days for somebody to find out what became of an effect of another branch."""
    run = api.start(paying_and_packing(), {})
    world.run_until_idle()
    api.cancel(run.pk, reason="not wanted")
    world.run_until_idle()

    assert state_of(run) is RunState.ENDING
    assert state_of(child_of(run)) is RunState.CANCELLED


@pytest.mark.parametrize("where", ["child", "items"])
def test_what_looks_like_a_key_is_not_given_to_a_child_or_an_item(world: World, where: str):
    """P14, and P10: the child could never be started."""
    pack()
    key = "sk_live_" + "0123456789abcdef"

    class Leaking(Workflow[Order]):
        name, deadline = "leaking", timedelta(days=10)

        @step(start=True, to=("one", "done"))
        def begin(self, run: Run[Order]) -> StepReturn:
            return (
                child("pack", {"item": key}, then=self.one)
                if where == "child"
                else each(self.one, [{"key": key}], then=self.done)
            )

        @step(to="done")
        def one(self, run: Run[Order]) -> None: ...

        @step(join=True, end=True)
        def done(self, run: Run[Order]) -> None: ...

    run = api.start(Leaking, {})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "looks like a key" in fresh(run).parked_detail
    assert key not in str(list(StepRun.objects.filter(run=run).values_list("input", "error_text")))


def test_a_cancelled_child_is_a_failed_one(world: World):
    run = api.start(order(), {"item": "slow"})
    world.run_until_idle()

    api.cancel(child_of(run).pk, reason="no paper")
    world.run_until_idle()

    assert "cancelled" in fresh(run).data["failed"]


def test_everything_is_carried_when_every_message_is_lost(world: World):
    """P1: the sweep alone brings a child and its end over."""
    run = api.start(order(), {"item": "book"})
    for _ in range(12):
        world.lose_messages()
        world.clock.advance(minutes=5)
        world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert WorkflowRun.objects.filter(parent=run).count() == 1


def test_the_sweep_alone_carries_a_child_when_no_message_about_it_arrives(world: World):
    """P1, P10: messages of steps arrive here; those that a parent and its child send each other do not."""
    run = api.start(order(), {"item": "book"})
    for _ in range(6):
        _deliver_steps(world)
        sweeps.sweep(may_free_stale=False)

    assert state_of(run) is RunState.SUCCEEDED


def test_a_crossing_that_is_carried_often_happens_once(world: World):
    run = api.start(order(), {"item": "slow"})
    world.run_until_idle()
    waiting = StepRun.objects.get(run=run, name="ship")
    for _ in range(3):
        children.carry(waiting.pk)
    assert WorkflowRun.objects.filter(parent=run).count() == 1

    api.signal(child_of(run).pk, "packed")
    world.run_until_idle()
    for _ in range(3):
        children.carry(waiting.pk)
    world.run_until_idle()

    assert fresh(run).data["packed"] == ["parcel with slow"]
    assert how_often(run, "ship") == 1


def test_a_child_is_not_started_when_the_run_ended_first(world: World):
    run = api.start(order(), {"item": "book"})
    world.deliver(*world.messages.popleft())
    world.lose_messages()

    api.cancel(run.pk, reason="at once")
    world.run_until_idle()

    assert state_of(run) is RunState.CANCELLED
    assert not WorkflowRun.objects.filter(parent=run).exists()


def test_a_child_is_not_started_while_its_cancelled_parent_waits_to_end(world: World):
    """P6: its start was due, and its message comes after the cancel."""
    run = api.start(paying_and_packing(), {})
    _deliver_steps(world)
    api.cancel(run.pk, reason="not wanted")
    assert state_of(run) is RunState.ENDING

    assert not children.carry(StepRun.objects.get(run=run, name="ship").pk)

    assert not WorkflowRun.objects.filter(parent=run).exists()


def test_a_ticker_that_comes_late_with_the_end_of_a_child_leaves_the_attempt_alone(world: World):
    """P2: another one has handed it over, and a worker is at the step already."""
    run = api.start(order(), {"item": "book"})
    _deliver_steps(world)
    ship = StepRun.objects.get(run=run, name="ship")
    children.carry(ship.pk)
    _deliver_steps(world)
    children.carry(ship.pk)
    assert claims.claim(run.pk, ship.pk, task_id="A", pid=1)

    assert not children._hand_back(run.pk, ship.pk, child_of(run).pk)

    assert StepRun.objects.get(pk=ship.pk).state == StepState.RUNNING


def test_a_child_for_each_item(world: World):
    pack()

    class Many(Workflow[Order]):
        name, deadline = "many", timedelta(days=10)

        @step(start=True, to=("begin", "gather"))
        def split(self, run: Run[Order]) -> StepReturn:
            return each(self.begin, run.state.items, key=str, then=self.gather, failures="collect")

        @step(to="packed")
        def begin(self, run: Run[Order]) -> StepReturn:
            return child("pack", {"item": str(run.item)}, then=self.packed)

        @step(to="gather")
        def packed(self, run: Run[Order]) -> None:
            assert run.child is not None
            run.give_result([run.item, run.child.result])

        @step(join=True, end=True)
        def gather(self, run: Run[Order]) -> None:
            run.state.packed = [str(one.value) for one in run.results(self.packed)]

    run = api.start(Many, {"items": ["a", "b"]})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert fresh(run).data["packed"] == ["['a', 'parcel with a']", "['b', 'parcel with b']"]


def test_children_of_children_end_somewhere(world: World):
    class Mirror(Workflow[Packing]):
        name, deadline = "mirror", timedelta(days=1)

        @step(start=True, to="back")
        def look(self, run: Run[Packing]) -> StepReturn:
            return child("mirror", {}, then=self.back)

        @step(end=True)
        def back(self, run: Run[Packing]) -> None: ...

    run = api.start(Mirror, {})
    world.run_until_idle(limit=2000)

    assert state_of(run) is RunState.FAILED
    assert WorkflowRun.objects.count() == children.DEEPEST + 1


def test_a_child_of_an_unknown_workflow_waits_for_a_person(world: World):
    class Hopeful(Workflow[Order]):
        name, deadline = "hopeful", timedelta(days=1)

        @step(start=True, to="done")
        def begin(self, run: Run[Order]) -> StepReturn:
            return child("paking", {}, then=self.done)

        @step(end=True)
        def done(self, run: Run[Order]) -> None: ...

    run = api.start(Hopeful, {})
    world.run_until_idle()

    assert state_of(run) is RunState.PARKED
    assert "paking" in fresh(run).parked_detail


def _deliver_steps(world: World) -> None:
    """Let messages of steps arrive, and lose those that a parent and its child send each other."""
    while world.messages:
        name, arguments = world.messages.popleft()
        if name != dispatch.CROSSING_TASK:
            world.deliver(name, arguments)
