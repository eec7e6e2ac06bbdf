"""More time, more budget: before a limit ends the run, while it ends, and after it; what happened is not done again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from durableflows import (
    Budget,
    InvalidState,
    NotAllowed,
    TooLate,
    Transient,
    UnknownOutcome,
    api,
)
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import children, sweeps
from durableflows.testing import World, open_request
from tests.support.flows import Provider, pay_effect, pay_workflow, raise_without_acting
from tests.support.look import fresh, how_often, state_of
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.play import assert_chain
from tests.support.waits import WAYS, waiting

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def sound() -> bool:
    return [one.text for one in examine() if one.severity is not Severity.ATTENTION] == []


def extend(run: WorkflowRun, **more: object) -> WorkflowRun:
    return api.extend(run.pk, reason="it needs longer", **more)  # type: ignore[arg-type]


def end_now(world: World, run: WorkflowRun) -> None:
    """Its deadline passes, and a ticker comes by."""
    WorkflowRun.objects.filter(pk=run.pk).update(deadline_at=world.clock.now())
    sweeps.end_overdue_runs(world.clock.now())


def test_a_live_run_gets_more_time_from_its_old_deadline_and_more_of_its_budget(world: World):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2, iterations=3)), {})
    before = run.deadline_at

    extend(run, deadline=2 * DAY, budget={"tool_calls": 5})

    now = fresh(run)
    assert now.deadline_at == before + 2 * DAY
    assert now.budget == {"tool_calls": 7, "iterations": 3}
    event = RunEvent.objects.get(run=run, kind="run.extended")
    assert event.data["budget"] == {"tool_calls": 7}
    assert now.state == RunState.PENDING
    assert_chain(now)


def test_a_moment_is_taken_as_it_is(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    until = datetime(2030, 1, 31, 12, tzinfo=UTC)

    assert extend(run, deadline=until).deadline_at == until


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "say how much more"),
        ({"deadline": timedelta(0)}, "longer than nothing"),
        ({"deadline": timedelta(days=-1)}, "longer than nothing"),
        ({"deadline": timedelta.max}, "no date"),
        ({"deadline": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"deadline": "tomorrow"}, "timedelta"),
        ({"deadline": datetime(2026, 1, 6, tzinfo=UTC)}, "not later"),
        ({"budget": {"tool_call": 5}}, "did you mean 'tool_calls'"),
        ({"budget": {"attempts": 5}}, "no limit of attempts"),
        ({"budget": {"tool_calls": 0}}, "more than nothing"),
        ({"budget": {"tool_calls": -1}}, "more than nothing"),
        ({"budget": {"tool_calls": 1.5}}, "whole number"),
        ({"budget": {"tool_calls": True}}, "whole number"),
        ({"budget": {"tool_calls": 10**12}}, "at most"),
        ({"budget": ["tool_calls"]}, "mapping"),
    ],
)
def test_what_is_no_extension_is_refused(world: World, more: dict[str, object], text: str):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2)), {})
    before = fresh(run)

    with pytest.raises(InvalidState, match=text):
        extend(run, **more)

    assert (fresh(run).deadline_at, fresh(run).row_version) == (before.deadline_at, before.row_version)


def test_a_run_that_its_deadline_ended_goes_on_where_it_stood(world: World):
    depot = Depot(handing=[Transient("closed")])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    world.clock.advance(days=11)
    world.run_until_idle()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED
    assert "extend" in api.explain(run.pk).safe

    extended = extend(run, deadline=3 * DAY)
    assert extended.deadline_at == world.clock.now() + 3 * DAY
    assert state_of(run) is RunState.RUNNING
    assert sound()
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(depot.carrier.sends) == 1
    assert depot.ran == ["pack", "pay", "hand_over", "hand_over", "tell"]
    assert how_often(run, "hand_over") == 1
    assert_chain(fresh(run))
    assert sound()


@pytest.mark.parametrize(
    ("limits", "more"),
    [
        (Budget(attempts=2), {"attempts": 10}),
        (Budget(iterations=1), {"iterations": 2}),
        (Budget(tool_calls=1), {"tool_calls": 1}),
    ],
    ids=["attempts", "iterations", "tool calls"],
)
def test_a_run_that_a_budget_ended_goes_on_where_it_stood(world: World, limits: Budget, more: dict[str, int]):
    depot = Depot()
    run = api.start(parcel_workflow(depot, limits=limits), {"rounds": 3})
    world.run_through()
    assert state_of(run) is RunState.EXHAUSTED_BUDGET
    assert sound()

    extend(run, budget=more)
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert depot.ran == ["pack"] * 4 + ["pay", "hand_over"] + ["tell"] * (2 if "tool_calls" in more else 1)
    assert how_often(run, "pack") == 4
    assert len(depot.carrier.sends) == len(depot.mailer.sends) == 1
    assert sound()


def test_iterations_are_exact_over_an_extension(world: World):
    """P7: each extension allows as many more visits as it says, the one that was refused included."""
    depot = Depot()
    run = api.start(parcel_workflow(depot, limits=Budget(iterations=2)), {"rounds": 9})
    world.run_until_idle()
    assert depot.ran == ["pack"] * 3

    for visits in (4, 5):
        extend(run, budget={"iterations": 1})
        world.run_until_idle()
        assert state_of(run) is RunState.EXHAUSTED_BUDGET
        assert depot.ran == ["pack"] * visits
    extend(run, budget={"iterations": 5})
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED


@pytest.mark.parametrize("more", [{"budget": {"tool_calls": 5}}, {"budget": {"tool_calls": 5}, "deadline": DAY}])
def test_more_of_another_limit_does_not_let_in_the_visit_that_was_refused(world: World, more: dict[str, object]):
    """P7: it was counted and is READY, so nothing would ask again."""
    depot = Depot()
    run = api.start(parcel_workflow(depot, limits=Budget(iterations=1, tool_calls=5)), {"rounds": 9})
    world.run_until_idle()
    assert state_of(run) is RunState.EXHAUSTED_BUDGET

    with pytest.raises(InvalidState, match="1 more iterations at least"):
        extend(run, **more)
    world.run_until_idle()

    assert depot.ran == ["pack"] * 2


def test_too_little_is_said_before_the_run_would_end_again(world: World):
    run = api.start(parcel_workflow(Depot(), limits=Budget(iterations=1)), {"rounds": 9})
    world.run_until_idle()

    with pytest.raises(InvalidState, match="the budget of 1 iterations is used up: give it more of that"):
        extend(run, deadline=DAY)
    world.clock.advance(days=20)
    with pytest.raises(InvalidState, match="deadline has passed"):
        extend(run, budget={"iterations": 5})

    extend(run, budget={"iterations": 20}, deadline=DAY)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED


def test_an_end_that_waits_for_an_effect_is_taken_back(world: World):
    """The deadline passed while a payment was in doubt: extended, it is settled and the run goes on."""
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider, pay_effect(provider, resend_when_absent=True)), {"amount": 5})
    world.run_until_idle()
    end_now(world, run)
    assert state_of(run) is RunState.ENDING
    assert "extend" in api.explain(run.pk).safe

    extend(run, deadline=DAY)
    assert state_of(run) is RunState.NEEDS_RECONCILIATION
    world.run_through()

    assert state_of(run) is RunState.SUCCEEDED
    assert len(provider.acts) == 1


def test_who_was_asked_is_asked_anew(world: World, admin_user):
    depot = Depot()
    run = api.start(parcel_workflow(depot), {"ask": True})
    world.run_until_idle()
    old = open_request(run.pk)
    world.clock.advance(days=11)
    world.run_until_idle()
    assert ApprovalRequest.objects.get(pk=old.pk).state == "CLOSED"

    extend(run, deadline=DAY)
    world.run_until_idle()

    new = open_request(run.pk)
    assert new.pk != old.pk
    assert how_often(run, "sign_off") == 1
    with pytest.raises(TooLate):
        api.answer(old.pk, "approve", by=admin_user, facts_digest=old.facts_digest)
    api.answer(new.pk, "approve", by=admin_user, facts_digest=new.facts_digest)
    world.run_until_idle()
    assert state_of(run) is RunState.SUCCEEDED


@pytest.mark.parametrize("way", [way for way in WAYS if way != "child"])
def test_each_kind_of_wait_stands_as_it_stood(world: World, way: str):
    run = WorkflowRun.objects.get(pk=waiting(world, way))
    before = [
        (row.name, row.item_key, row.state, row.waits_on, row.waits_for)
        for row in StepRun.objects.filter(run=run, ended_at__isnull=True).order_by("id")
    ]
    end_now(world, run)
    world.run_until_idle()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED

    extend(run, deadline=60 * DAY)

    after = [
        (row.name, row.item_key, row.state, row.waits_on, row.waits_for)
        for row in StepRun.objects.filter(run=run, ended_at__isnull=True).order_by("id")
    ]
    due = {"RETRY_SCHEDULED": "READY"}  # its retry is brought forward
    assert after == [(name, item, due.get(state, state), on, what) for name, item, state, on, what in before]
    assert sound()
    if way in ("signal", "signal in time"):
        api.signal(run.pk, "begin")
    world.run_through()
    ends = {"branches": RunState.PARKED, "turn": RunState.PARKED}  # its steps never work
    assert state_of(run) is ends.get(way, RunState.SUCCEEDED)


def test_a_child_of_an_ended_run_is_not_started_twice(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    end_now(world, run)
    world.run_until_idle()
    child = WorkflowRun.objects.get(parent=run)
    assert state_of(child) is RunState.CANCELLED

    extend(run, deadline=DAY)
    world.run_until_idle()

    assert WorkflowRun.objects.filter(parent=run).count() == 1
    assert state_of(run) is RunState.FAILED


def test_a_crossing_that_looked_before_the_extension_does_not_cancel_the_child(world: World):
    """A carrier sees that nobody waits; then the run goes on, and its step waits again; then the carrier acts."""
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    end_now(world, run)
    waits = WorkflowRun.objects.get(parent=run).parent_step_id
    assert waits is not None
    world.lose_messages()

    with once_it_has_read("durableflows_workflowrun", lambda: extend(run, deadline=DAY)):
        assert not children.carry(waits)

    child = WorkflowRun.objects.get(parent=run)
    assert (child.cancel_asked_at, state_of(child)) == (None, RunState.WAITING)
    assert not children.carry(waits)
    assert sound()


@contextmanager
def once_it_has_read(table: str, act: Callable[[], object]) -> Iterator[None]:
    """Let something else be committed right after the first look at a table alone, before what follows from it."""
    is_done = False

    def wrap(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal is_done
        result = execute(sql, params, many, context)
        if not is_done and f'FROM "{table}"' in sql:
            is_done = True
            act()
        return result

    with connection.execute_wrapper(wrap):
        yield
    assert is_done, "it never looked there"


def test_a_child_is_extended_no_further_than_its_parent_and_only_while_that_waits(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    child = WorkflowRun.objects.get(parent=run)

    with pytest.raises(InvalidState, match="extend that"):
        extend(child, deadline=DAY)
    extend(run, deadline=2 * DAY)
    extend(child, deadline=DAY)

    end_now(world, child)
    world.run_until_idle()
    assert state_of(child) is RunState.DEADLINE_EXCEEDED
    with pytest.raises(TooLate, match="has gone on without it"):
        extend(child, deadline=timedelta(hours=1))


def test_other_ends_are_final(world: World):
    done = api.start(parcel_workflow(Depot()), {})
    world.run_until_idle()
    cancelled = api.start("send", {})
    api.cancel(cancelled.pk, reason="x")

    for run in (done, cancelled):
        with pytest.raises(TooLate, match="matter no more"):
            extend(run, deadline=DAY)


def test_a_run_that_was_abandoned_while_a_limit_ended_it_does_not_go_on(world: World, admin_user):
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    end_now(world, run)
    api.abandon(run.pk, reason="the provider is gone", heir=admin_user)

    with pytest.raises(TooLate, match="matter no more"):
        extend(run, deadline=DAY)
    assert "extend" not in api.explain(run.pk).safe
    assert "matter no more" in api.preview("extend", run.pk, deadline=DAY).refused


def test_an_end_that_somebody_asked_for_as_well_is_final(world: World):
    """P6: the deadline came first, the cancel while it was ending."""
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))])
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.run_until_idle()
    end_now(world, run)
    api.cancel(run.pk, reason="not wanted")

    with pytest.raises(TooLate, match="its limits matter no more"):
        extend(run, deadline=DAY)
    world.clock.advance(minutes=5)
    world.run_through()
    assert SideEffect.objects.get(run=run).state == EffectState.ABSENT
    assert (state_of(run), fresh(run).error_text) == (RunState.CANCELLED, "not wanted")
    with pytest.raises(TooLate, match="its limits matter no more"):
        extend(run, deadline=DAY)


def test_a_failed_run_only_gets_the_limits(world: World):
    depot = Depot(handing=[lost_address()])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()

    extend(run, deadline=DAY)
    world.run_until_idle()

    assert state_of(run) is RunState.FAILED
    assert StepRun.objects.get(run=run, name="hand_over").state == StepState.FAILED_PERMANENT


def test_the_owner_alone_may_not_extend(world: World, django_user_model):
    owner = django_user_model.objects.create_user("owner")
    run = api.start(parcel_workflow(Depot()), {}, by=owner)

    with pytest.raises(NotAllowed):
        api.extend(run.pk, by=owner, reason="x", deadline=DAY)


def test_explain_tells_the_extension(world: World, admin_user):
    run = api.start(parcel_workflow(Depot(), limits=Budget(tool_calls=2)), {})
    api.extend(run.pk, by=admin_user, reason="a big order", deadline=DAY, budget={"tool_calls": 5})

    told = [line.text for line in api.explain(run.pk).lines]

    assert any(text.startswith("Extended by admin (until ") and "tool_calls 7): a big order" in text for text in told)


def test_what_was_not_done_is_rechecked_before_it_is_sent_after_the_extension(world: World):
    """P9: the end freed what the run had reserved; nothing is sent on what was true before it."""
    provider = Provider(faults=[raise_without_acting(UnknownOutcome("cut"))])
    is_free = True
    pay = pay_effect(provider, resend_when_absent=True)
    run = api.start(pay_workflow(provider, pay, recheck=lambda run: is_free or "it is taken"), {"amount": 5})
    world.run_until_idle()
    end_now(world, run)
    world.clock.advance(minutes=5)
    world.run_until_idle()
    assert state_of(run) is RunState.DEADLINE_EXCEEDED
    assert SideEffect.objects.get(run=run).state == EffectState.ABSENT

    is_free = False
    extend(run, deadline=DAY)
    world.run_through()

    assert len(provider.sends) == 1
    assert StepRun.objects.get(run=run, name="turned_down").state == StepState.SUCCEEDED


def test_a_run_of_before_that_was_kept_does_not_go_on(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "timer"))
    end_now(world, run)
    StepRun.objects.filter(run=run).update(stood=None)

    with pytest.raises(TooLate, match="start a new one"):
        extend(run, deadline=DAY)
    assert state_of(run) is RunState.DEADLINE_EXCEEDED


def test_what_is_safe_leaves_out_the_end_of_a_child(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    child = WorkflowRun.objects.get(parent=run)
    end_now(world, child)

    assert "extend" not in api.explain(child.pk).safe
