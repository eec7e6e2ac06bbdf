"""What a run needs to go on lies in rows, each kind of thing in its place, and waiting changes none of it."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages

from durableflows import (
    ArtifactRef,
    Facts,
    InvalidDefinition,
    Run,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    api,
    approval,
    each,
    integrity,
    journal,
    step,
    succeed,
)
from durableflows.core import registry
from durableflows.core.payload import sha256
from durableflows.core.states import RunState, StepState
from durableflows.models import ApprovalDecision, Artifact, RunEvent, StepAttempt, StepRun, WorkflowRun
from durableflows.testing import World, open_request, virtual
from tests.support.look import fresh, state_of

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "a page of the report. " * 1000


class Memo(WorkflowState):
    """What the run knows."""

    notes: list[str] = []
    report: ArtifactRef | None = None


def reporting(tries: Callable[[], None] = lambda: None) -> type[Workflow[Memo]]:
    """write (an artifact) -> sign_off -> close (reads it)."""

    def show(run: Run[Memo]) -> Facts:
        return Facts(binding={"notes": len(run.state.notes)})

    class Reporting(Workflow[Memo]):
        name, deadline = "reporting", timedelta(days=400)

        @step(start=True, to="sign_off")
        def write(self, run: Run[Memo]) -> None:
            tries()
            run.state.notes = [*run.state.notes, "written"]
            run.state.report = run.artifact("report.txt", PAGE)

        sign_off = approval(
            title="{notes} notes",
            shows=show,
            permission="durableflows.answer_approval",
            approved="close",
            rejected="close",
            expires=timedelta(days=399),
        )

        @step(end=True)
        def close(self, run: Run[Memo]) -> StepReturn:
            assert run.state.report is not None
            text = run.read_artifact(run.state.report).decode()
            by = run.decision(self.sign_off).actor_name
            return succeed({"notes": list(run.state.notes), "length": len(text), "by": by})

    return Reporting


@pytest.fixture
def boss(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("boss")


def approve(run: WorkflowRun, boss: User) -> None:
    request = open_request(run.pk)
    api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest, comment="fine")


def asked_for(world: World) -> WorkflowRun:
    run = api.start(reporting(), {})
    world.run_until_idle()
    assert state_of(run) is RunState.WAITING_HUMAN
    return run


@pytest.mark.parametrize("wait", [timedelta(seconds=1), timedelta(days=3), timedelta(days=398)], ids=str)
def test_a_state_is_the_same_after_a_second_and_after_a_year(world: World, boss: User, wait: timedelta):
    """S1.19: the same bytes under the same digest, and the run ends in the same way."""
    run = asked_for(world)
    before = fresh(run)
    for _ in range(10):
        world.clock.advance((wait / 10).total_seconds())
        world.run_until_idle()
    after = fresh(run)
    approve(run, boss)
    world.run_until_idle()

    assert (after.data, after.data_digest, after.row_version) == (before.data, before.data_digest, before.row_version)
    assert fresh(run).result == {"notes": ["written"], "length": len(PAGE), "by": "boss"}


def test_state_artifacts_and_memory_are_kept_apart(world: World):
    """S3.2, S3.4, S3.18: a hash in the checkpoint, the bytes in storage, and a class that keeps nothing."""
    run = asked_for(world)

    kept = Artifact.objects.get(run=run)
    columns = [field.attname for field in WorkflowRun._meta.concrete_fields]
    row = json.dumps(list(WorkflowRun.objects.filter(pk=run.pk).values(*columns)), default=str)
    assert fresh(run).data["report"]["sha256"] == kept.sha256
    assert PAGE[:100] not in row
    assert len(row) < 5000 < len(PAGE) == kept.size_bytes
    with storages["default"].open(kept.storage_name) as stored:
        assert stored.read().decode() == PAGE
    with pytest.raises(InvalidDefinition):
        registry.get("reporting").workflow.remembered = "in this process"  # type: ignore[attr-defined]


def test_another_process_goes_on_with_what_the_rows_say(boss: User):
    """S3.2, S3.3: nothing of the process that began the run is there any more, neither its classes nor its memory."""
    with registry.isolated(), virtual() as first:
        run = asked_for(first)
        at = first.clock.now()

    with registry.isolated(), virtual() as second:
        second.clock.move_to(at)
        reporting()
        approve(run, boss)
        second.run_until_idle()

        assert fresh(run).result == {"notes": ["written"], "length": len(PAGE), "by": "boss"}


def test_rows_say_where_a_run_stands_and_how_it_came_there(world: World, boss: User):
    """S3.3: the step, its attempts, the decision, the deadline, and which checkpoint each fact belongs to."""
    failures = [Transient("later")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    run = api.start(reporting(fail_once), {})
    world.run_through(until=world.clock.now() + timedelta(hours=1))
    waiting = StepRun.objects.get(run=run, ended_at=None)
    assert (waiting.name, waiting.state, waiting.visit) == ("sign_off", StepState.WAITING_HUMAN, 1)
    approve(run, boss)
    world.run_until_idle()

    stored = fresh(run)
    tries = StepAttempt.objects.filter(step__run=run, step__name="write").order_by("number")
    assert [(one.number, one.outcome) for one in tries] == [(1, "transient"), (2, "done")]
    assert [(one.actor_name, one.verdict, one.comment) for one in ApprovalDecision.objects.all()] == [
        ("boss", "approve", "fine")
    ]
    assert stored.deadline_at == stored.created_at + timedelta(days=400)
    checkpoints = list(RunEvent.objects.filter(run=run).order_by("sequence").values_list("kind", "checkpoint"))
    assert ("run.started", 0) in checkpoints
    assert checkpoints[-1] == ("run.ended", stored.checkpoint_sequence)
    assert stored.checkpoint_sequence == 1


def test_what_came_in_what_came_out_and_each_state_between_have_a_hash(world: World, boss: User):
    """S3.43: the request and the input, the output, the state and its checkpoint, and all of it in a chain."""
    run = api.start(gathering(), {})
    world.run_until_idle()

    stored = fresh(run)
    events = list(RunEvent.objects.filter(run=run).order_by("sequence"))
    assert events[0].data["request"] == stored.request_digest
    items = {item.item_key: item for item in StepRun.objects.filter(run=run, name="item")}
    assert all(integrity.is_input_sealed(item) and item.input_seal for item in items.values())
    outputs = {event.step_id: event.data["output_sha256"] for event in events if "output_sha256" in event.data}
    assert outputs == {item.pk: sha256(item.output) for item in items.values()}
    states = [(event.checkpoint, event.data["checkpoint_sha256"]) for event in events
              if "checkpoint_sha256" in event.data]  # fmt: skip
    assert states[-1] == (stored.checkpoint_sequence, sha256(stored.data))
    assert states[0] == (1, sha256({**stored.data, "notes": ["begun"]}))
    assert integrity.is_sealed(stored)
    assert [event.digest for event in events] == [journal.digest_of(event) for event in events]


def gathering() -> type[Workflow[Memo]]:
    """begin -> two items -> gather."""

    class Gathering(Workflow[Memo]):
        name, deadline = "gathering", timedelta(days=1)

        @step(start=True, to=("item", "gather"))
        def begin(self, run: Run[Memo]) -> StepReturn:
            run.state.notes = ["begun"]
            return each(self.item, ["a", "b"], key=str, then=self.gather)

        @step(to="gather")
        def item(self, run: Run[Memo]) -> None:
            run.give_result({"seen": run.item})

        @step(join=True, end=True)
        def gather(self, run: Run[Memo]) -> None:
            run.state.notes = [*run.state.notes, "gathered"]

    return Gathering
