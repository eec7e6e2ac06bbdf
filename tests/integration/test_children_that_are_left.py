"""A child whose parent is cancelled begins and sends nothing, before its own cancel has been carried over (P6)."""

from datetime import timedelta

import pytest

from durableflows import Run, StepReturn, Workflow, api, child, step
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from durableflows.testing import World
from tests.support.flows import Provider
from tests.support.look import fresh, state_of, steps_of
from tests.support.rooms import Stay, at, broken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("late", [False, True], ids=["before its claim", "between its claim and its send"])
def test_a_child_whose_parent_has_been_cancelled_sends_nothing(world: World, late: bool):
    bank = Provider()
    pay = at(bank, "pay")
    freed: list[str] = []

    class Paying(Workflow[Stay]):
        name, deadline = "paying", timedelta(days=1)

        @step(start=True, end=True, effects=(pay,))
        def only(self, run: Run[Stay]) -> None:
            if late and not freed:
                cancel_and_clean_up()
            run.effect(pay, amount=1)

    class Parent(Workflow[Stay]):
        name, deadline = "parent", timedelta(days=2)
        on_cancel = "free"

        @step(start=True, to="done")
        def begin(self, run: Run[Stay]) -> StepReturn:
            return child("paying", {}, then=self.done)

        @step(end=True)
        def done(self, run: Run[Stay]) -> None: ...

        @step(end=True)
        def free(self, run: Run[Stay]) -> None:
            freed.append("room")

    def cancel_and_clean_up() -> None:
        """And the message that would carry the cancel over is lost."""
        api.cancel(parent.pk, reason="changed my mind")
        for name, ids in [message for message in world.messages if message[0] == "parent.free"]:
            world.deliver(name, ids)
        world.lose_messages()
        assert (state_of(parent), freed) == (RunState.CANCELLED, ["room"])

    parent = api.start(Parent, {})
    world.deliver(*world.messages.popleft())
    world.deliver(*world.messages.popleft())
    paying = WorkflowRun.objects.get(parent=parent)
    name, ids = world.messages.popleft()
    if not late:
        cancel_and_clean_up()

    world.deliver(name, ids)

    assert bank.sends == []
    world.run_until_idle()
    assert (state_of(paying), bank.sends) == (RunState.CANCELLED, [])
    assert (fresh(paying).alert, broken()) == ("", [])
    assert len(steps_of(paying)) == 1
