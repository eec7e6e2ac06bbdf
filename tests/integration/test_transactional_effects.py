"""Effects in the engine's own database: what they write, their row and their receipt commit together, or nothing."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model

from durableflows import NeedsHuman, Permanent, Transient, UnknownOutcome, api, compensate
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.errors import ConcurrentChange
from durableflows.models import SideEffect, StepAttempt, WorkflowRun
from durableflows.testing import Boundary, Crash, World, crash_at, faulttest
from tests.support.ledgers import Office, hire_workflow
from tests.support.look import fresh, state_of
from tests.support.play import assert_chain
from tests.support.rooms import broken
from tests.support.trips import books

pytestmark = pytest.mark.django_db(transaction=True)


def start(office: Office, **options: Any) -> WorkflowRun:
    return api.start(hire_workflow(office, **options), {})


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def test_what_it_writes_its_row_and_its_receipt_are_there_together(world: World):
    office = Office()
    run = start(office)

    world.run_until_idle()

    row = SideEffect.objects.get(run=run)
    assert state_of(run) is RunState.SUCCEEDED
    assert office.staff() == ["ada"]
    assert (row.state, row.receipt, row.send_count) == ("CONFIRMED", {"pk": fresh(run).data["pk"]}, 1)
    assert office.calls == [row.key]
    assert fresh(run).tool_calls_count == 1
    assert broken() == []
    assert_chain(fresh(run))


def test_a_death_before_the_commit_leaves_nothing_and_it_is_done_again(world: World):
    office = Office()
    run = start(office)

    with crash_at(Boundary.TOGETHER_BEFORE_COMMIT):
        with pytest.raises(Crash):
            world.run_until_idle()
        assert (office.staff(), SideEffect.objects.filter(run=run).count()) == ([], 0)
        world.lose_messages()
        world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert (office.staff(), len(office.calls), len(set(office.calls))) == (["ada"], 2, 1)
    assert broken() == []


def test_a_death_after_the_commit_leaves_the_receipt_and_nothing_is_done_again(world: World):
    office = Office()
    run = start(office)

    with crash_at(Boundary.EFFECT_AFTER_RECEIPT):
        with pytest.raises(Crash):
            world.run_until_idle()
        assert (office.staff(), books(run)) == (["ada"], {"staff.hire": "CONFIRMED"})
        world.lose_messages()
        world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert (office.staff(), len(office.calls)) == (["ada"], 1)
    assert broken() == []


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (Permanent("no"), RunState.FAILED),
        (NeedsHuman("who?"), RunState.PARKED),
        (ZeroDivisionError("ours"), RunState.PARKED),
    ],
    ids=["permanent", "needs a person", "an error in our code"],
)
def test_an_exception_rolls_all_back_and_is_never_in_doubt(world: World, error: Exception, ends: RunState):
    office = Office(during=[raising(error)])
    run = start(office)

    world.run_until_idle()

    assert state_of(run) is ends
    assert (office.staff(), books(run)) == ([], {})
    assert broken() == []


@pytest.mark.parametrize("error", [Transient("busy"), UnknownOutcome("lost")], ids=["transient", "unknown"])
def test_what_may_pass_is_tried_again_as_a_whole(world: World, error: Exception):
    """Nothing can be unknown: it was rolled back."""
    office = Office(during=[raising(error)])
    run = start(office)

    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert (office.staff(), books(run)) == (["ada"], {"staff.hire": "CONFIRMED"})
    assert StepAttempt.objects.filter(step__run=run, step__name="hire").count() == 2


def test_a_transaction_that_the_database_wants_again_is_done_again_in_the_same_attempt(world: World):
    office = Office(during=[raising(ConcurrentChange("lost a deadlock"))])
    run = start(office)

    world.run_until_idle()

    assert (office.staff(), len(office.calls)) == (["ada"], 2)
    assert StepAttempt.objects.filter(step__run=run, step__name="hire").count() == 1


def test_it_is_undone_in_a_transaction_too(world: World):
    office = Office(end=compensate("hired by mistake"))
    run = start(office)

    world.run_until_idle()

    assert state_of(run) is RunState.COMPENSATED
    assert (office.staff(), books(run)) == ([], {"staff.hire": "UNDONE", "staff.dismiss": "CONFIRMED"})
    assert broken() == []


def test_a_budget_that_is_used_up_rolls_it_back(world: World):
    office = Office()
    run = start(office)
    WorkflowRun.objects.filter(pk=run.pk).update(budget={"tool_calls": 0})

    world.run_until_idle()

    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert (office.staff(), books(run)) == ([], {})


def test_simulations_play_it_on_real_rows():
    office = Office(end=compensate("hired by mistake"))

    def nobody_is_left(run: WorkflowRun) -> None:
        if run.state == RunState.COMPENSATED:
            assert not get_user_model().objects.filter(username="ada").exists()

    with registry.isolated():
        report = faulttest(hire_workflow(office), {}, schedules=30, failures=1, check=nobody_is_left)

    assert report.holds, report


def test_what_was_begun_outside_a_transaction_is_not_taken_for_done(world: World):
    """P3, P5: a release that makes an effect transactional finds what the one before it has begun."""
    office = Office()
    run = start(office)
    with crash_at(Boundary.EFFECT_AFTER_RECEIPT), pytest.raises(Crash):
        world.run_until_idle()
    SideEffect.objects.filter(run=run).update(state="PLANNED", receipt=None)

    world.lose_messages()
    world.run_through()

    assert state_of(run) is RunState.PARKED
    assert "begun outside a transaction" in fresh(run).parked_detail
    assert office.staff() == ["ada"]
