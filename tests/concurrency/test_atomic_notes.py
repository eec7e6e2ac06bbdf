"""User code of an `atomic=True` step runs before the engine takes its locks, also when it writes notes (P11)."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from durableflows import Permanent, Run, Workflow, WorkflowState, api, step
from durableflows.core.states import RunState
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.testing import World
from durableflows.transactions import atomic
from tests.support.rivals import Rival

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


class Nothing(WorkflowState):
    """No fields."""


def declare(after_noting: Callable[[Run[Nothing]], None]) -> type[Workflow[Nothing]]:
    class Booked(Workflow[Nothing]):
        """One step that commits with its checkpoint."""

        name, version, deadline = "booked", 1, timedelta(days=1)

        @step(start=True, end=True, atomic=True)
        def book(self, run: Run[Nothing]) -> None:
            run.note("one")
            after_noting(run)
            run.note("two")

    return Booked


def notes() -> list[str]:
    events = RunEvent.objects.filter(kind="run.note").order_by("sequence")
    return [str(data["text"]) for data in events.values_list("data", flat=True)]


def lock_at_once(run_id: UUID) -> bool:
    """Take the run's lock, and its step's, as any other door does; raises where somebody holds them."""
    with atomic():
        WorkflowRun.objects.select_for_update(nowait=True).get(pk=run_id)
        StepRun.objects.select_for_update(nowait=True).get(run_id=run_id)
    return True


def test_a_note_in_an_atomic_step_locks_nothing_while_user_code_runs(world: World):
    seen: list[object] = []
    declare(lambda run: seen.append(Rival(lambda: lock_at_once(UUID(run.id))).begin().outcome()))
    run = api.start("booked", {})
    world.run_until_idle()

    assert seen == [True]
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert notes() == ["one", "two"]


def test_notes_of_an_atomic_step_that_failed_are_rolled_back_with_it(world: World):
    def refuse(run: Run[Nothing]) -> None:
        raise Permanent("no")

    declare(refuse)
    run = api.start("booked", {})
    world.run_until_idle()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.FAILED
    assert notes() == []


def test_a_cancel_during_an_atomic_step_goes_through_and_its_notes_are_not_written(world: World):
    declare(lambda run: (Rival(lambda: api.cancel(run.id, reason="no")).begin().outcome(), None)[1])
    run = api.start("booked", {})
    world.run_until_idle()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED
    assert notes() == []
