"""The database's clock is set back by hours: orders stay what they were, and nobody is left alone for hours (P12)."""

from datetime import timedelta
from typing import Any

import pytest

from durableflows import Facts, NeverSent, Retry, Run, Workflow, WorkflowState, api, approval, step
from durableflows.core.breaker import BreakerState
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import ApprovalRequest
from durableflows.testing import World
from tests.support.flows import Provider, raise_without_acting
from tests.support.payers import breaker, limits, start_many, states
from tests.support.rooms import broken
from tests.support.trips import Agency, start

pytestmark = pytest.mark.django_db(transaction=True)

DOWN = raise_without_acting(NeverSent("connection refused"))
MANY = Retry(attempts=40, base_seconds=2, cap_seconds=60, within=timedelta(hours=20))


def pass_minutes(world: World, minutes: int) -> None:
    world.run_through(until=world.clock.now() + timedelta(minutes=minutes))


@pytest.mark.parametrize("hours", [-5, 5])
def test_what_was_confirmed_last_is_undone_first_whatever_the_clock_says(world: World, hours: int):
    agency = Agency()
    agency.during["fly"] = [lambda: world.clock.advance(hours=hours)]
    start(agency)

    world.run_through()

    assert [name for name, *_ in agency.undone] == ["hotels.cancel", "flights.cancel"]
    assert broken() == []


class Draft(WorkflowState):
    turn: int = 0


def draft_workflow(seen: list[tuple[bool, str]]) -> type[Workflow[Draft]]:
    def show(run: Run[Draft]) -> Facts:
        return Facts(binding={"turn": run.state.turn})

    class Write(Workflow[Draft]):
        name, deadline = "draft", timedelta(days=9)

        ask = approval(
            title="Send it?",
            shows=show,
            permission="durableflows.answer_approval",
            approved="send",
            rejected="write",
            start=True,
        )

        @step(to="ask")
        def write(self, run: Run[Draft]) -> None:
            run.state.turn += 1

        @step(end=True)
        def send(self, run: Run[Draft]) -> None:
            decided = run.decision(self.ask)
            seen.append((decided.approved, decided.comment))

    return Write


def test_the_decision_of_the_last_visit_counts_whatever_the_clock_says(world: World, admin_user: Any):
    """P9: asked twice, turned down and then approved."""
    seen: list[tuple[bool, str]] = []
    api.start(draft_workflow(seen), {})

    for verdict, comment in (("reject", "too long"), ("approve", "fine")):
        world.run_until_idle()
        asked = ApprovalRequest.objects.get(state=ApprovalState.OPEN)
        api.answer(asked.pk, verdict, by=admin_user, facts_digest=asked.facts_digest, comment=comment)
        world.clock.advance(hours=-3)
    world.run_until_idle()

    assert seen == [(True, "fine")]


def test_an_open_breaker_does_not_stay_open_for_as_long_as_the_clock_was_set_back(world: World):
    start_many(Provider(faults=[DOWN] * 5), 5, retry=MANY)
    world.run_until_idle()
    assert breaker().state == BreakerState.OPEN
    waits = api.start("pay", {"amount": 6})
    world.run_until_idle()

    world.clock.advance(hours=-3)
    pass_minutes(world, 10)

    assert states([waits.pk]) == {RunState.SUCCEEDED}
    assert breaker().state == BreakerState.CLOSED


def test_a_breaker_opens_after_the_clock_was_set_back(world: World):
    provider = Provider(faults=[DOWN] * 5)
    start_many(provider, 6, retry=MANY)
    world.run_through()
    assert breaker().state == BreakerState.CLOSED
    world.clock.advance(hours=-3)
    provider.faults = [DOWN] * 5

    for number in range(6):
        api.start("pay", {"amount": number + 1})
    world.run_until_idle()

    assert breaker().state == BreakerState.OPEN
    assert len(provider.faults) == 0


def test_sends_of_before_the_clock_was_set_back_take_no_place_of_a_rate(world: World):
    with limits(per_second=2):
        provider = Provider()
        start_many(provider, 4)
        world.run_through()
        world.clock.advance(hours=-3)

        runs = [api.start("pay", {"amount": number + 1}).pk for number in range(4)]
        pass_minutes(world, 5)

        assert states(runs) == {RunState.SUCCEEDED}
