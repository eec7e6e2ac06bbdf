"""A person deals with one thing that a run says aloud; the others stay loud until they are dealt with too (P10)."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from durableflows import (
    EffectCall,
    Permanent,
    Run,
    StepReturn,
    UnknownOutcome,
    Workflow,
    alerts,
    api,
    effect,
    ledger_answers,
    step,
)
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import RunState
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_run, lock_step
from durableflows.testing import World
from tests.support.flows import PayReceipt, PayState, Provider, act_then_raise, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.trips import Agency, start

pytestmark = pytest.mark.django_db(transaction=True)


def lost_at(name: str) -> EffectDefinition[PayReceipt]:
    """An effect whose answer is lost at a provider that nobody can ask."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("read timed out"))] * 2)

    @effect(name=name, provider=name, receipt=PayReceipt, left_to_person=True)
    def act(call: EffectCall, *, amount: int) -> PayReceipt:
        return provider.send(call, amount)

    return act


def two_in_doubt(world: World, right: str = "right") -> WorkflowRun:
    left_it = lost_at("left")
    right_it = left_it if right == "left" else lost_at(right)

    class Both(Workflow[PayState]):
        name, deadline = "both", timedelta(days=9)

        @step(start=True, to=("one", "two"))
        def split(self, run: Run[PayState]) -> StepReturn:
            return self.one, self.two

        @step(to="meet", effects=(left_it,))
        def one(self, run: Run[PayState]) -> None:
            run.effect(left_it, amount=1)

        @step(to="meet", effects=(right_it,))
        def two(self, run: Run[PayState]) -> None:
            run.effect(right_it, amount=1)

        @step(join=True, end=True)
        def meet(self, run: Run[PayState]) -> None: ...

    run = api.start(Both, {"amount": 1})
    world.run_through()
    world.clock.advance(hours=1)
    assert StepRun.objects.filter(run=run, needs_person=True).count() == 2
    return run


def resolve(name: str, verdict: str, **more: dict[str, str]) -> None:
    row = SideEffect.objects.get(effect=name)
    api.resolve_effect(row.pk, verdict, reason="in the books", row_version=row.row_version, **more)


def test_two_branches_that_ask_are_both_said_and_the_second_stays_when_the_first_is_answered(world: World):
    run = two_in_doubt(world)
    assert "whether left happened" in fresh(run).alert
    assert "whether right happened" in fresh(run).alert

    resolve("left", "happened", receipt={"id": "x"})
    world.run_through()

    assert "whether left happened" not in fresh(run).alert
    assert "whether right happened" in fresh(run).alert

    resolve("right", "happened", receipt={"id": "y"})
    world.run_through()

    assert (state_of(run), fresh(run).alert) == (RunState.SUCCEEDED, "")


def test_two_branches_that_ask_the_same_stay_loud_until_both_know(world: World):
    """What one of them is told by a late answer says nothing of the other."""
    run = two_in_doubt(world, right="left")

    asking = StepRun.objects.filter(run=run, needs_person=True).order_by("id")

    for step_row, is_loud in zip(asking, (True, False), strict=True):
        with transaction.atomic():
            run_locked = lock_run(run.pk)
            ledger_answers.wake(run_locked, lock_step(step_row.pk), world.clock.now())
            run_locked.store("alert", "alert_at")

        assert ("whether left happened" in fresh(run).alert) is is_loud


def test_what_contradicts_itself_silences_nobody_who_waits_for_a_person(world: World):
    run = two_in_doubt(world)
    row = SideEffect.objects.get(effect="left")

    with transaction.atomic():
        run_locked, step_locked = lock_run(run.pk), lock_step(row.step_id)
        ledger_answers.contradict(run_locked, step_locked, row, "a second receipt", world.clock.now())

    assert "left: a second receipt" in fresh(run).alert
    assert "whether right happened" in fresh(run).alert


@pytest.mark.parametrize(
    ("said", "text", "left"),
    [
        ("not undone: a, b", "not undone: a", "not undone: a, b"),
        ("x; y; z", "y", "x; z"),
        ("x", "x", ""),
        ("", "x", ""),
    ],
)
def test_what_is_said_no_more_is_not_taken_out_of_what_else_is_said(said: str, text: str, left: str):
    run = WorkflowRun(alert=said)

    alerts.drop(run, text)

    assert run.alert == left


def test_what_is_a_part_of_something_else_that_is_said_is_said_too():
    run = WorkflowRun(alert="not undone: a, b")

    for _ in range(2):
        alerts.add(run, "not undone: a", timezone.now())

    assert run.alert == "not undone: a, b; not undone: a"


def test_what_is_not_undone_stays_loud_when_something_else_is_decided(world: World):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(Permanent("past the date"))]
    agency.post.faults = [raise_without_acting(Permanent("no such address"))]
    run = start(agency)
    world.run_through()
    assert state_of(run) is RunState.COMPENSATION_FAILED

    resolve("post.send", "did_not_happen")

    assert fresh(run).alert == "not undone: hotels.book of sleep_over"


def test_what_one_heir_is_told_stays_until_all_of_it_is_settled(world: World, admin_user: object):
    run = two_in_doubt(world)
    api.abandon(run.pk, reason="given up", heir=admin_user)
    world.clock.advance(hours=1)
    world.run_until_idle()

    resolve("left", "happened", receipt={"id": "x"})
    assert fresh(run).alert == "right is UNKNOWN: admin has inherited it"

    resolve("right", "did_not_happen")
    assert fresh(run).alert == ""
