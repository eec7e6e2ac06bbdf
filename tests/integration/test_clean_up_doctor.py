"""The doctor finds what must not be beside a clean-up, and one that is late or was not done."""

from datetime import timedelta

import pytest
from django.db import connection

from durableflows import Permanent, Transient, api, doctor
from durableflows.doctor import Severity
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.rooms import Hotel, stay_workflow

pytestmark = pytest.mark.django_db


def cleaning_up(world: World, hotel: Hotel) -> WorkflowRun:
    """A run that has booked, could not pay yet, was cancelled, and has not freed the room."""
    hotel.fails("pay", Transient("busy"))
    run = api.start(stay_workflow(hotel), {})
    world.run_until_idle()
    api.cancel(run.pk, reason="changed my mind")
    return run


def found(code: str) -> list[tuple[object, Severity]]:
    return [(one.run_id, one.severity) for one in doctor.examine() if one.code == code]


def edit(text: str, run: WorkflowRun) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(text, {"run": run.pk})


@pytest.mark.parametrize("stage", ["ready", "failed", "settled"])
def test_a_sound_clean_up_has_nothing_broken_or_due(world: World, stage: str):
    hotel = Hotel()
    if stage == "failed":
        hotel.fails("free", Permanent("no"))
    cleaning_up(world, hotel)
    if stage != "ready":
        world.run_until_idle()

    assert [one for one in doctor.examine() if one.severity is not Severity.ATTENTION] == []


def test_a_step_of_the_main_path_that_is_open_beside_a_clean_up_is_found(world: World):
    run = cleaning_up(world, Hotel())
    StepRun.objects.filter(run=run, name="free").update(of_cleanup=False)

    assert found("cleanup-beside-main-path") == [(run.pk, Severity.BROKEN)]


def test_a_step_of_a_clean_up_that_has_not_begun_is_found(world: World):
    run = api.start(stay_workflow(Hotel()), {})
    StepRun.objects.filter(run=run).update(of_cleanup=True)

    assert found("cleanup-beside-main-path") == [(run.pk, Severity.BROKEN)]


def test_what_was_sent_after_the_main_path_had_been_closed_is_found(world: World):
    run = cleaning_up(world, Hotel())
    sends = SideEffect.objects.get(run=run).sends
    assert found("sent-after-main-path") == []

    sends.update(started_at=world.clock.now() + timedelta(seconds=1))

    assert found("sent-after-main-path") == [(run.pk, Severity.BROKEN)]


def test_a_clean_up_whose_time_is_over_is_due(world: World):
    run = cleaning_up(world, Hotel())
    world.clock.advance(hours=1, minutes=1)

    assert found("cleanup-overdue") == [(run.pk, Severity.DUE)]


def test_a_clean_up_that_was_not_done_needs_attention(world: World):
    hotel = Hotel()
    hotel.fails("free", Permanent("no"))
    run = cleaning_up(world, hotel)
    world.run_until_idle()

    assert found("cleanup-not-done") == [(run.pk, Severity.ATTENTION)]


def test_a_clean_up_without_an_end_is_refused_by_the_database(world: World):
    run = cleaning_up(world, Hotel())

    with pytest.raises(Exception, match="durableflows_run_cleanup"):
        edit("UPDATE durableflows_workflowrun SET cleanup_until = NULL WHERE id = %(run)s", run)
