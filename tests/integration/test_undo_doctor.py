"""What the doctor, the preview and the explanation say of what is undone; late receipts, heirs and verdicts."""

from typing import Any

import pytest

from durableflows import Permanent, Transient, UnknownOutcome, api, doctor
from durableflows.core.outcomes import Answer, AnswerKind
from durableflows.core.states import RunState
from durableflows.ledger import Reserved
from durableflows.ledger_answers import record
from durableflows.management import plans
from durableflows.models import EffectSend, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import Fault, act_then_raise, raise_without_acting
from tests.support.look import fresh, state_of
from tests.support.play import stage
from tests.support.rooms import broken, cancel
from tests.support.trips import Agency, books, start, trip_workflow

pytestmark = pytest.mark.django_db(transaction=True)

LOST = UnknownOutcome("read timed out")


def codes(run: WorkflowRun) -> set[str]:
    return {one.code for one in doctor.examine(run.pk)}


def undone(world: World, *faults: Fault) -> WorkflowRun:
    """A run that was undone; the faults are of the hotel's cancellation."""
    agency = Agency()
    agency.unhotels.faults = [*faults]
    run = start(agency)
    world.run_through()
    return fresh(run)


@pytest.fixture
def heir(django_user_model) -> Any:
    return django_user_model.objects.create_superuser("anna", password="x")


def test_what_an_end_left_standing_needs_a_look(world: World):
    run = undone(world, raise_without_acting(Permanent("past the date")))

    assert "not-undone" in codes(run)
    assert "undo-astray" not in codes(run)


def test_an_effect_that_says_otherwise_than_its_undo_is_found(world: World):
    run = undone(world)
    assert "undo-astray" not in codes(run)

    SideEffect.objects.filter(run=run, effect="hotels.book").update(state="CONFIRMED")
    assert "undo-astray" in codes(run)

    SideEffect.objects.filter(run=run, effect="hotels.book").update(state="UNDONE")
    SideEffect.objects.filter(run=run, effect="hotels.cancel").update(state="REJECTED")
    assert "undo-astray" in codes(run)


def test_what_was_undone_twice_is_found(world: World):
    run = undone(world)
    flight = SideEffect.objects.get(run=run, effect="flights.book")

    SideEffect.objects.filter(run=run, undoes__isnull=False).update(undoes=flight)

    assert "undone-twice" in codes(run)


def test_the_preview_says_what_would_be_undone_and_what_stays(world: World):
    agency = Agency()
    agency.fails("confirm", ZeroDivisionError("ours"))
    run = start(agency)
    world.run_until_idle()

    for verb in ("cancel", "compensate"):
        seen = api.preview(verb, run.pk)
        assert seen.refused == ""
        assert seen.undoes == ("hotels.book of sleep_over", "flights.book of fly")
        assert seen.stays == ("post.send of write",)
        assert seen.confirmed == ()
    assert "compensate" in api.explain(run.pk).safe


def test_the_explanation_says_what_was_undone_and_what_stays(world: World):
    run = undone(world, raise_without_acting(Permanent("past the date")))

    story = api.explain(run.pk)

    assert "not undone: hotels.book; not reversible: post.send" in story.sentence
    assert "flights.book: undone" in story.certain
    texts = [line.text for line in story.lines]
    assert "flights.book of fly is undone" in texts
    assert "hotels.book of sleep_over could not be undone: past the date" in texts
    assert "compensate" in story.safe


def test_an_explanation_while_it_is_undone_names_what_is_undone_now(world: World):
    agency = Agency()
    agency.fails("confirm", ZeroDivisionError("ours"))
    run = start(agency)
    world.run_until_idle()
    api.compensate(run.pk, reason="wanted back")

    story = api.explain(run.pk)

    assert "What it did is undone first, now hotels.book: sleep_over.undo waits for a worker" in story.sentence
    assert "compensate" not in story.safe


def late_receipt(run: WorkflowRun, effect: str, agency: Agency) -> None:
    """The worker that sent it comes back with the receipt."""
    row = SideEffect.objects.get(run=run, effect=effect)
    send = EffectSend.objects.get(effect=row, kind="send")
    receipt = agency.hotels.act(row.key, 2).model_dump(mode="json")
    record(run.pk, row.step_id, row.pk, send.pk, Answer(AnswerKind.RECEIPT, receipt=receipt))


def absent(world: World, agency: Agency) -> WorkflowRun:
    """A run whose hotel was looked up and not found, that was then cancelled."""
    agency.hotels.faults = [raise_without_acting(LOST)]
    agency.hotels.keyed = False
    run = start(agency)
    world.deliver(*world.messages.popleft())
    world.deliver(*world.messages.popleft())
    cancel(run)
    world.clock.advance(seconds=31)
    return run


def test_a_receipt_that_comes_while_the_run_is_undone_is_undone_too(world: World):
    """It was looked up and not found, and had happened after all."""
    agency = Agency()
    run = absent(world, agency)
    agency.unflights.faults = [raise_without_acting(Transient("busy"))]
    for _second in range(60):  # the lookup's pause has a part of chance
        world.run_until_idle()
        if fresh(run).ending_phase == "undo":
            break
        world.clock.advance(seconds=1)
    assert [books(run)[name] for name in ("flights.book", "hotels.book")] == ["UNDOING", "ABSENT"]

    late_receipt(run, "hotels.book", agency)
    world.run_through()

    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "UNDONE")
    assert [name for name, *_ in agency.undone] == ["flights.cancel", "flights.cancel", "hotels.cancel"]
    assert broken() == []


def test_a_receipt_that_comes_after_the_end_is_loud_and_can_be_undone(world: World):
    agency = Agency()
    run = absent(world, agency)
    world.run_through()
    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "ABSENT")

    late_receipt(run, "hotels.book", agency)

    assert "it did happen" in fresh(run).alert
    assert {"not-undone", "contradiction"} <= codes(run)
    api.compensate(run.pk, reason="they have booked it after all")
    world.run_through()
    assert (state_of(run), books(run)["hotels.book"]) == (RunState.COMPENSATED, "UNDONE")
    assert [name for name, *_ in agency.undone] == ["flights.cancel", "hotels.cancel"]
    assert "not-undone" not in codes(run)
    assert broken() == []


def test_an_undo_that_nobody_can_look_up_is_settled_by_a_person(world: World, heir):
    agency = Agency()
    agency.unhotels.faults = [act_then_raise(LOST)]
    run = start(agency, key_window=None, lookup=None)
    world.run_through()
    assert fresh(run).state == RunState.COMPENSATING
    row = SideEffect.objects.get(run=run, effect="hotels.cancel")

    api.resolve_effect(
        row.pk, "happened", by=heir, reason="I called them", row_version=row.row_version, receipt={"id": "pay_1"}
    )
    assert books(run)["hotels.book"] == "UNDONE"
    world.run_through()

    assert state_of(run) is RunState.COMPENSATED
    assert len(agency.unhotels.sends) == 1
    assert broken() == []


def test_an_heir_settles_what_was_being_undone(world: World, heir):
    agency = Agency()
    agency.unhotels.faults = [act_then_raise(LOST)]
    run = start(agency, key_window=None, lookup=None)
    world.run_through()

    api.abandon(run.pk, by=heir, reason="they are gone", heir=heir)

    assert books(run)["hotels.book"] == "UNDOING"
    assert books(run)["flights.book"] == "CONFIRMED"
    row = SideEffect.objects.get(run=run, effect="hotels.cancel")
    api.resolve_effect(
        row.pk, "happened", by=heir, reason="I called them", row_version=row.row_version, receipt={"id": "pay_1"}
    )
    assert books(run)["hotels.book"] == "UNDONE"
    assert state_of(run) is RunState.ABANDONED
    assert broken() == []


def test_an_heir_says_that_an_undo_did_not_happen(world: World, heir):
    agency = Agency()
    agency.unhotels.faults = [raise_without_acting(LOST)]
    run = start(agency, key_window=None, lookup=None)
    world.run_through()
    api.abandon(run.pk, by=heir, reason="they are gone", heir=heir)
    row = SideEffect.objects.get(run=run, effect="hotels.cancel")
    world.clock.advance(seconds=31)

    api.resolve_effect(row.pk, "did_not_happen", by=heir, reason="I called them", row_version=row.row_version)

    assert books(run)["hotels.book"] == "UNDO_FAILED"
    assert broken() == []


def test_what_is_undone_is_done_anew_under_another_key(world: World):
    """P3: nothing takes it for done."""
    played = stage(world)
    hand = played.hand("A").claim().reserve()
    hand.record(hand.act())
    row = played.row()
    SideEffect.objects.filter(pk=row.pk).update(state="UNDONE")

    again = hand.ask()

    assert isinstance(again, Reserved)
    assert again.call.key != row.key
    assert SideEffect.objects.get(key=again.call.key).replaces_id == row.pk


def test_the_plan_says_what_undoes_what(world: World):
    definition = trip_workflow(Agency()).definition

    lines = plans.as_lines(definition)

    assert any("before it would end as FAILED or CANCELLED" in line for line in lines)
    assert lines.count("    undone by hotels.cancel") == 1
    assert "effect_0 -. undone by .->" in plans.as_mermaid(definition)
