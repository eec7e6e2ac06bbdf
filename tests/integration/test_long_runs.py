"""A thousand steps behind it, three hundred keys in it: a run's row, its messages and its claims stay small (R31)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from durableflows import Run, StepReturn, Workflow, WorkflowState, api, journal, step, succeed
from durableflows.core.keys import new_id
from durableflows.core.states import RunState
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.models.locks import lock_run
from durableflows.testing import World
from tests.support.look import state_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

STEPS = 1000
KEYS = 300


class Long(WorkflowState):
    """`facts`: the input; `turns`: how often it went round."""

    facts: dict[str, str] = {}
    turns: int = 0
    wanted: int = 10


def going_round() -> type[Workflow[Long]]:
    class Round(Workflow[Long]):
        name, deadline = "round", timedelta(days=1)

        @step(start=True, to="turn", end=True)
        def turn(self, run: Run[Long]) -> StepReturn:
            run.state.turns += 1
            return self.turn if run.state.turns < run.state.wanted else succeed()

    return Round


def test_what_a_thousand_steps_leave_behind_makes_no_row_and_no_query_larger(world: World):
    """R31: what is measured is the row that the next steps read and write, and what they ask the database."""
    run = api.start(going_round(), {"wanted": 20})
    for _ in range(5):
        world.deliver(*world.messages.popleft())
    young = measure(world, run.pk)
    live_on(run.pk, STEPS - 10)
    old = measure(world, run.pk)
    world.run_until_idle()

    assert state_of(run) is RunState.SUCCEEDED
    assert StepRun.objects.filter(run=run).count() >= STEPS
    assert RunEvent.objects.filter(run=run).count() > 2 * STEPS
    assert abs(old["row bytes"] - young["row bytes"]) < 64
    assert old["queries"] == young["queries"]
    assert old["rows read"] <= young["rows read"] + 2


def measure(world: World, run_id: UUID) -> dict[str, int]:
    """One step more: how large the run's row is then, what was asked, and how many rows came back."""
    read: list[int] = []
    with rows_read(read), CaptureQueriesContext(connection) as asked:
        world.deliver(*world.messages.popleft())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_column_size(r.*) FROM durableflows_workflowrun r WHERE id = %s", [run_id])
        [[size]] = cursor.fetchall()
    return {"row bytes": int(size), "queries": len(asked), "rows read": sum(read)}


@contextmanager
def rows_read(found: list[int]) -> Iterator[None]:
    """Note how many rows each SELECT brings."""

    def note(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("SELECT"):
            found.append(max(context["cursor"].rowcount, 0))
        return result

    with connection.execute_wrapper(note):
        yield


def live_on(run_id: UUID, steps: int) -> None:
    """As if it had gone round so often: its steps are there, and each fact in its history."""
    with transaction.atomic():
        run = lock_run(run_id)
        done = StepRun.objects.filter(run=run, state="SUCCEEDED").latest("visit")
        first = StepRun.objects.filter(run=run).latest("visit").visit + 1
        for visit in range(first, first + steps):
            done.pk, done.visit = new_id(), visit
            StepRun.objects.bulk_create([done])
            for kind in ("step.claimed", "step.succeeded"):
                journal.record(run, kind, at=run.changed_at, data={"step": "turn", "visit": visit})
        run.store(*journal.FIELDS)


def test_three_hundred_keys_are_in_one_row_and_in_no_message(world: World):
    """R31."""
    facts = {f"key {number}": "x" * 100 for number in range(KEYS)}

    run = api.start(going_round(), {"facts": facts, "wanted": 3})
    world.run_until_idle()

    kept = WorkflowRun.objects.get(pk=run.pk)
    assert (kept.state, kept.data["facts"]) == (RunState.SUCCEEDED, facts)
    sent = [(name, [UUID(one) for one in arguments]) for name, arguments in world.sent]
    assert [(name, ids[0]) for name, ids in sent] == [("round.turn", run.pk)] * 3
    assert "x" * 100 not in str(list(StepRun.objects.values_list("input", "output")))
    assert "x" * 100 not in str(list(RunEvent.objects.values_list("data")))
