"""`faulttest` plays a user's workflow through its faults, says what it met, and leaves nothing behind."""

import socket
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import TestCase, TransactionTestCase
from pydantic import BaseModel

from durableflows import (
    EffectCall,
    InvalidState,
    Run,
    StepReturn,
    Workflow,
    WorkflowState,
    child,
    each,
    effect,
    sleep,
    step,
    wait_for,
)
from durableflows.boundaries import Boundary
from durableflows.core import registry
from durableflows.core.definition import EffectDefinition
from durableflows.models import RunEvent, SideEffect, WorkflowRun
from durableflows.testing import Report, Schedule, faulttest
from durableflows.testing.drive import stage
from durableflows.testing.faults import EVENT, PLACES, Fault, Telling, parse
from durableflows.testing.promises import Standing
from durableflows.testing.scenarios import of
from durableflows.testing.schedules import Survey, plan
from durableflows.testing.shrink import shrink
from tests.support.flows import PayReceipt, Provider, pay_effect, pay_workflow, read_event, told

NEITHER: dict[str, Any] = {"key_window": None, "with_lookup": False}


def played(line: str = "", *, schedules: int = 1, ask: bool = False, **provider: Any) -> Report:
    books = Provider()
    with registry.isolated():
        workflow = pay_workflow(books, pay_effect(books, **provider))
        pending = {"test.pay": lambda call, amount: PayReceipt(id="pay_1", status="pending")}
        report = faulttest(
            workflow, {"amount": 5, "ask": ask}, schedules=schedules, replay=line, pending=pending, failures=1
        )
    assert not books.sends, "the real effect was called"
    return report


def standing_of(line: str, **given: Any) -> str:
    report = played(line, **given)
    assert report.holds, report
    return str(next(standing for standing, times in report.standings.items() if times))


# What happens to a run


@pytest.mark.django_db
def test_what_no_schedule_plays_is_said():
    """A report that is silent about it would read as if all had held."""
    books = Provider()
    with registry.isolated():
        workflow = pay_workflow(books, pay_effect(books, event=read_event))
        bare = faulttest(workflow, {"amount": 5}, schedules=1)
    pending, events = bare.left_out

    assert pending == "test.pay: an answer that says accepted and not done yet (give pending=)"
    assert events == "test.pay: events about it (give events=)"
    assert f"Not played:\n  {pending}\n  {events}" in bare.text
    assert bare.data["left_out"] == [pending, events]
    assert played().left_out == []


@pytest.mark.django_db
@pytest.mark.parametrize("provider", [{}, {"key_window": None}, NEITHER], ids=["keys", "lookup only", "neither"])
def test_promises_hold_whatever_the_provider_can_do(provider: dict[str, Any]):
    report = played(schedules=50, ask=True, **provider)

    assert report.holds, report
    assert report.played == 50


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "provider", "standing"),
    [
        ("-", {}, "ok"),
        ("answer-lost@test.pay#1", {}, "ok"),
        ("answer-lost@test.pay#1", {"key_window": None}, "ok"),
        ("answer-lost@test.pay#1", NEITHER, "waits"),
        ("index-late@test.pay#1", {"key_window": None, "resend_when_absent": True}, "ok"),
        ("slow@test.pay#1", {"key_window": None, "resend_when_absent": True}, "ok"),
        ("request-lost@test.pay#1", {"key_window": None}, "waits"),
        ("pending@test.pay#1", {}, "ok"),
        ("rejected@test.pay#1", {}, "ok"),
        ("lose@message#1 lose@message#2 late@message#3", {}, "ok"),
        ("crash@effect-after-answer#1", NEITHER, "waits"),
        ("kill@effect-after-receipt#1 double@message#2", NEITHER, "ok"),
        ("stall@effect-after-reserve#1", {}, "ok"),
        ("cancel@effect-before-reserve#1 crash@cancel-after-commit#1", {}, "ok"),
    ],
)
def test_a_fault_ends_as_it_should(line: str, provider: dict[str, Any], standing: str):
    assert standing_of(line, **provider) == standing


@pytest.mark.django_db
@pytest.mark.parametrize("verdict", ["approve", "reject", "expire"])
def test_people_answer_as_the_schedule_says(verdict: str):
    report = played(f"{verdict}@person#1 crash@answer-before-commit#1", ask=True)

    assert report.holds, report
    assert report.standings[Standing.OK] == 1


# Ways to go on


class TourState(WorkflowState):
    parcels: list[str] = ["a", "b"]


class TourReceipt(BaseModel):
    id: str


def tour(send: EffectDefinition[TourReceipt]) -> type[Workflow[TourState]]:
    class Leg(Workflow[TourState]):
        """A child."""

        name, version, deadline = "leg", 1, timedelta(days=1)

        @step(start=True, end=True, effects=(send,))
        def go(self, run: Run[TourState]) -> None:
            run.effect(send, parcel="leg")

    class Tour(Workflow[TourState]):
        """Every way to go on."""

        name, version, deadline = "tour", 1, timedelta(days=30)

        @step(start=True, to=("ship", "gather"))
        def begin(self, run: Run[TourState]) -> StepReturn:
            return each(self.ship, run.state.parcels, then=self.gather)

        @step(to="gather", effects=(send,))
        def ship(self, run: Run[TourState]) -> None:
            run.effect(send, parcel=str(run.item))

        @step(join=True, to="rest")
        def gather(self, run: Run[TourState]) -> StepReturn:
            return sleep(timedelta(days=1), then=self.rest)

        @step(to="hear")
        def rest(self, run: Run[TourState]) -> StepReturn:
            return wait_for("paid", then=self.hear)

        @step(to="finish")
        def hear(self, run: Run[TourState]) -> StepReturn:
            return child(Leg, TourState(), then=self.finish)

        @step(end=True)
        def finish(self, run: Run[TourState]) -> None: ...

    return Tour


@pytest.mark.django_db
def test_branches_timers_signals_and_children_are_played_too():
    @effect(name="tour.send", provider="carrier", receipt=TourReceipt, key_window=timedelta(hours=24))
    def send(call: EffectCall, *, parcel: str) -> TourReceipt:
        raise AssertionError("nothing leaves")

    with registry.isolated():
        scenario = of(tour(send), TourState(), signals={"paid": {"amount": 5}})
        with stage(scenario) as played:
            calm = played.play(Schedule())
        report = faulttest("tour", scenario, schedules=24, seed=3)

    assert calm.standing is Standing.OK, calm.story
    assert {Boundary.TIMER_AFTER_COMMIT, Boundary.SIGNAL_AFTER_COMMIT, Boundary.CROSSING_AFTER_COMMIT} <= set(
        calm.crossed
    )
    assert report.holds, report


# Nothing is left, nothing leaves


class FaulttestInATestCase(TestCase):
    """Inside the transaction that Django opens around a test."""

    def test_it_plays(self) -> None:
        assert played("kill@settle-before-send#1 lose@message#2").holds
        assert not WorkflowRun.objects.exists()


class FaulttestInATransactionTestCase(TransactionTestCase):
    """With real commits around it."""

    def test_it_plays(self) -> None:
        assert played("kill@settle-before-send#1 lose@message#2").holds
        assert not WorkflowRun.objects.exists()
        assert not RunEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_effects_are_themselves_again_afterwards():
    books = Provider()
    pay = pay_effect(books)
    before = (pay.function, pay.lookup)
    with registry.isolated():
        faulttest(pay_workflow(books, pay), {"amount": 5}, schedules=2)

    assert (pay.function, pay.lookup) == before
    assert not SideEffect.objects.exists()


@pytest.mark.django_db
def test_a_step_that_reaches_outside_is_stopped():
    def call_home(run: Run[Any]) -> None:
        mail.send_mail("hello", "there", "from@example.test", ["to@example.test"])
        socket.create_connection(("127.0.0.1", 9), timeout=1)

    books = Provider()
    with registry.isolated():
        workflow = pay_workflow(books, body=call_home)
        with pytest.raises(InvalidState, match=r"opened a connection to \('127.0.0.1', 9\) outside its effects"):
            faulttest(workflow, {"amount": 5}, schedules=1)

    assert not mail.outbox


@pytest.mark.django_db
def test_a_database_that_no_test_made_is_refused(monkeypatch: pytest.MonkeyPatch):
    from django.db import connection

    monkeypatch.setitem(connection.settings_dict, "NAME", "production")

    with pytest.raises(InvalidState, match="'production', which is not one that a test made"):
        played()


@pytest.mark.django_db
def test_what_the_scenario_asserts_is_a_promise_too():
    def never(run: WorkflowRun) -> None:
        raise AssertionError("it should have been blue")

    books = Provider()
    with registry.isolated():
        report = faulttest(pay_workflow(books), {"amount": 5}, schedules=3, failures=1, check=never)

    assert [broken.text for broken in report.failures[0].broken] == ["it should have been blue"]
    assert 'again: manage.py durableflows faulttest pay --replay "-"' in str(report)


SURVEY = Survey(dict.fromkeys(Boundary, 1), 4, 1, ("test.pay",), ("test.pay",))

# Events of providers


def pay_event(call: EffectCall, *, receipt: PayReceipt, amount: int) -> dict[str, object]:
    return told(receipt.status, key=call.key, ref=receipt.id, amount=amount)


def events_told() -> dict[str, Any]:
    """A provider that says "pending" where a schedule wants it, and tells on its own."""
    pending = {"test.pay": lambda call, **_: PayReceipt(id="pay_1", status="pending")}
    receipts = {"test.pay": lambda call, **_: PayReceipt(id="pay_1")}
    return {"receipts": receipts, "pending": pending, "events": {"test.pay": pay_event}}


EVENTS = [one for one in plan(replace(SURVEY, events=1), 4_000, seed=1) if any(f.place == EVENT for f in one.faults)]


@pytest.mark.django_db
@pytest.mark.parametrize("with_lookup", [True, False], ids=["lookup", "events alone"])
def test_events_that_come_early_late_and_twice_break_no_promise(with_lookup: bool):
    """R17, R20, R21: with crashes of whoever takes them, lost answers, and messages that are lost or doubled."""
    books, outcomes = Provider(), []
    with registry.isolated():
        pay_it = pay_effect(books, event=read_event, with_lookup=with_lookup)
        with stage(of(pay_workflow(books, pay_it), {"amount": 5}, **events_told())) as played:
            outcomes = [played.play(one) for one in EVENTS[:: len(EVENTS) // 60]]

    assert [(str(one.schedule), one.broken) for one in outcomes if one.broken] == []
    assert {str(how) for how in Telling} <= set().union(*(one.posted for one in outcomes))


@pytest.mark.django_db
@pytest.mark.parametrize("boundary", [one for one in Boundary if "EVENT" in one.name])
def test_whoever_takes_an_event_may_die_at_each_boundary(boundary: Boundary):
    """It is sent again, or a sweep judges it; the run does not wait for its lookup."""
    books, place = Provider(), PLACES[boundary]
    with registry.isolated():
        flow = pay_workflow(books, pay_effect(books, event=read_event))
        with stage(of(flow, {"amount": 5}, **events_told())) as played:
            outcome = played.play(parse(f"pending@test.pay#1 told@event#2 crash@{place}#1"))

    assert (outcome.standing, outcome.struck) == (Standing.OK, {place}), outcome.story


@pytest.mark.django_db
def test_an_event_makes_a_lookup_and_a_second_send_needless():
    books = Provider()
    with registry.isolated():
        flow = pay_workflow(books, pay_effect(books, event=read_event))
        with stage(of(flow, {"amount": 5}, **events_told())) as played:
            outcome = played.play(parse("answer-lost@test.pay#1 told-early@event#1"))

    assert outcome.standing is Standing.OK, outcome.story
    assert outcome.events == 1
    assert ("test.pay", 2) not in outcome.met


# Schedules


def test_the_same_seed_gives_the_same_schedules():
    assert plan(SURVEY, 300, seed=7) == plan(SURVEY, 300, seed=7)
    assert plan(SURVEY, 300, seed=7) != plan(SURVEY, 300, seed=8)


def test_every_boundary_meets_every_behaviour_and_every_message_fault():
    wanted = plan(SURVEY, 5_000, seed=1)

    met = {tuple(fault.place if fault.place != "message" else fault.what for fault in one.faults) for one in wanted}
    assert {("settle-before-commit", "test.pay", post) for post in ("lose", "double", "late")} <= met
    behaviours = {
        one.faults[1].what for one in wanted if [f.place for f in one.faults] == ["settle-before-commit", "test.pay"]
    }
    assert behaviours == set(SURVEY.behaviours("test.pay"))
    assert len(wanted) == 5_000


@pytest.mark.parametrize("one", plan(SURVEY, 60, seed=3), ids=str)
def test_a_schedule_is_read_as_it_was_printed(one: Schedule):
    assert parse(str(one)) == one


@pytest.mark.parametrize(
    "line",
    ["crash", "crash@", "crash@nowhere-at-all#0", "explode@claim-after-commit#1", "lose@person#1", "crash@message#x"],
)
def test_what_cannot_be_read_is_named(line: str):
    with pytest.raises(InvalidState, match=r"crash|explode|lose"):
        parse(line)


def test_a_failing_schedule_is_shrunk_to_what_it_takes():
    wanted = parse("lose@message#3 crash@claim-after-commit#3 double@message#1 answer-lost@test.pay#2")

    def fails(one: Schedule) -> bool:
        return any(fault.what == "crash" for fault in one.faults)

    assert shrink(wanted, fails) == Schedule((Fault("crash", "claim-after-commit", 1),))


@pytest.mark.django_db
def test_a_schedule_tells_the_same_story_again():
    books = Provider()
    with registry.isolated():
        scenario = of(pay_workflow(books), {"amount": 5, "ask": True})
        line = parse("5xx@test.pay#1 refused@test.pay#2 stall@effect-after-answer#3 late@message#2 lose@message#4")
        with stage(scenario) as played:
            stories = [played.play(line).story for _ in range(2)]

    assert stories[0] == stories[1]
    assert len(stories[0]) > 8
