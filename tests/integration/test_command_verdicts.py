"""`show` and `resolve` lead who settles a lost answer: what to look for, and any receipt that the effect may give."""

from datetime import timedelta
from typing import cast

import pytest

from durableflows import EffectCall, InvalidState, Run, UnknownOutcome, Workflow, WorkflowState, api, effect, step
from durableflows.core import registry
from durableflows.core.states import RunState
from durableflows.models import SideEffect, WorkflowRun
from durableflows.testing import World
from tests.integration.test_command import data, in_doubt, said
from tests.support.look import fresh

pytestmark = pytest.mark.django_db(transaction=True)


class Stay(WorkflowState):
    """What the run remembers."""

    booking: str | list[str] = ""


def lost(world: World, receipt: type[object]) -> SideEffect:
    """An effect with this type of receipt, whose answer was lost."""

    @effect(name="rooms.book", provider="rooms", receipt=receipt, left_to_person=True)
    def book_room(call: EffectCall) -> object:
        raise UnknownOutcome("lost")

    class BookStay(Workflow[Stay]):
        """Book a stay."""

        name, deadline = "stay", timedelta(days=3)

        @step(start=True, end=True, effects=(book_room,))
        def book(self, run: Run[Stay]) -> None:
            run.state.booking = cast("str | list[str]", run.effect(book_room))

    run = api.start(BookStay, {})
    world.run_until_idle()
    return SideEffect.objects.get(run=run)


@pytest.fixture(autouse=True)
def alone():
    with registry.isolated():
        yield


@pytest.mark.parametrize(
    ("receipt", "given", "kept"), [(str, '"room 7"', "room 7"), (list[str], '["7", "8"]', ["7", "8"])]
)
def test_a_receipt_that_is_no_object_can_be_given_as_its_effect_gives_it(
    world: World, receipt: type[object], given: str, kept: object
):
    """Else "it did not happen" would be the only word left, and it would be done twice."""
    row = lost(world, receipt)
    common = (
        "resolve",
        str(row.pk),
        "--verdict",
        "happened",
        "--reason",
        "seen",
        "--row-version",
        str(row.row_version),
    )

    wrong = said(*common, "--receipt", '{"id": "room 7"}', code=1)
    right = data(*common, "--receipt", given)

    assert "receipt of effect rooms.book" in wrong
    assert (right["state"], right["receipt"]) == ("CONFIRMED", kept)
    world.run_until_idle()
    run = fresh(WorkflowRun.objects.get())
    assert (run.state, run.data["booking"]) == (RunState.SUCCEEDED, kept)


def test_what_has_no_json_form_is_no_receipt(world: World):
    row = in_doubt(world)

    with pytest.raises(InvalidState, match="JSON"):
        api.resolve_effect(row.pk, "happened", reason="x", row_version=row.row_version, receipt=object())  # type: ignore[arg-type]


def test_a_verdict_without_its_receipt_is_told_how_to_give_one(world: World):
    row = in_doubt(world)

    text = said("resolve", str(row.pk), "--verdict", "happened", "--reason", "x", "--row-version", "1", code=1)

    assert "--receipt" in text


def test_show_names_the_key_by_which_a_provider_can_be_asked(world: World):
    """The runbook's first step: nobody can look for a key that is cut short or not shown."""
    row = in_doubt(world)

    assert row.key in said("show", str(row.run_id))
