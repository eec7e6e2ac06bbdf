"""The doctor and the explanation of runs that wait for time, signals, children and branches (P10)."""

from datetime import timedelta

import pytest

from durableflows import api, doctor
from durableflows.core.states import RunState
from durableflows.doctor import Severity
from durableflows.models import StepRun, WorkflowRun
from durableflows.testing import World
from tests.support.waits import WAYS, waiting

pytestmark = pytest.mark.django_db(transaction=True)


def bad() -> list[tuple[str, str]]:
    return [(one.code, one.text) for one in doctor.examine() if one.severity is not Severity.ATTENTION]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_waits_is_sound_and_goes_on_after_its_time(world: World, way: str):
    run_id = waiting(world, way)

    assert bad() == []
    world.clock.advance(days=30, seconds=1)
    world.run_until_idle(limit=400)

    ended = WorkflowRun.objects.get(pk=run_id).ended_at is not None
    assert ended, "the deadline ends what nothing else does"
    assert bad() == []


@pytest.mark.parametrize(
    ("way", "name", "change"),
    [
        ("timer", "go_on", {"wake_at": None}),
        ("turn", "slow", {"each_step": "other"}),
    ],
)
def test_a_wait_that_would_never_end_is_broken(world: World, way: str, name: str, change: dict[str, object]):
    run_id = waiting(world, way)

    StepRun.objects.filter(run=run_id, name=name, state="WAITING").update(**change)

    assert [(one.code, one.run_id) for one in doctor.examine() if one.severity is Severity.BROKEN] == [
        ("no-next-thing", run_id)
    ]


def test_a_join_that_nobody_comes_to_is_broken(world: World):
    run_id = waiting(world, "branches")

    StepRun.objects.filter(run=run_id, name="slow").update(state="SUCCEEDED", wake_at=None)

    assert "no-next-thing" in {one.code for one in doctor.examine() if one.run_id == run_id}


@pytest.mark.parametrize("way", ["timer", "signal in time"])
def test_a_timer_that_nobody_sweeps_is_due(world: World, way: str):
    waiting(world, way)

    world.clock.advance(days=2, minutes=1)

    assert [code for code, _ in bad()] == ["timer-overdue"]


def test_a_child_that_nobody_carries_over_is_due(world: World):
    run_id = waiting(world, "child")
    begun = WorkflowRun.objects.get(parent=run_id)
    api.cancel(begun.pk, reason="stop")
    world.lose_messages()

    world.clock.advance(minutes=1)

    assert ("crossing-overdue", run_id) in [(one.code, one.run_id) for one in doctor.examine()]
    world.run_until_idle()
    assert WorkflowRun.objects.get(pk=run_id).state == RunState.FAILED
    assert bad() == []


@pytest.mark.parametrize(
    ("way", "sentence", "coming"),
    [
        ("timer", "Waiting for a time, on Wed 7 Jan 09:00: go_on goes on", "go_on goes on"),
        ("signal", "Waiting for the signal begin; then go_on goes on", "the deadline ends the run"),
        (
            "signal in time",
            "Waiting for the signal begin, on Wed 7 Jan 09:00: without it late goes on",
            "without it late goes on",
        ),
        (
            "child",
            "Waiting for the run of waiting that it has started; then go_on goes on",
            "the deadline ends the run",
        ),
        ("turn", "slow for a did not work", "slow for a is tried again"),
    ],
)
def test_a_wait_is_explained(world: World, way: str, sentence: str, coming: str):
    run_id = waiting(world, way)

    told = api.explain(run_id)

    assert told.sentence.startswith(sentence)
    assert told.next == coming
    assert told.next_at is not None


def test_what_was_waited_for_is_told(world: World):
    run_id = waiting(world, "signal")
    api.signal(run_id, "begin", dedup_key="k")
    world.run_until_idle()

    texts = [line.text for line in api.explain(run_id).lines]

    assert "go_on waits for the signal begin" in texts
    assert "The signal begin came, for go_on" in texts
    assert "go_on goes on: the signal begin is here" in texts


def test_items_are_told_once_for_all(world: World):
    run_id = waiting(world, "turn")

    assert "slow begins for 2 items, 1 at a time" in [line.text for line in api.explain(run_id).lines]


def test_names_of_items_are_shown_as_harmless_text(world: World):
    """R28: a key of an item comes from outside."""
    run_id = waiting(world, "turn")
    StepRun.objects.filter(run=run_id, item_key="a").update(item_key="\u202egnp\x1b[31m")

    told = api.explain(run_id)

    assert "\u202e" not in told.sentence + told.next
    assert "\x1b" not in told.sentence + told.next


def test_a_deadline_ends_whatever_waits(world: World):
    runs = [waiting(world, "signal")]

    world.clock.advance(seconds=timedelta(days=30, seconds=1).total_seconds())
    world.run_until_idle()

    assert [WorkflowRun.objects.get(pk=pk).state for pk in runs] == [RunState.DEADLINE_EXCEEDED]
