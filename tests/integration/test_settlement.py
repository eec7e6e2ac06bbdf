"""What a step ends with ends its attempt: stored, stored marked, or parked with the reason, never left running."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import OperationalError, connection, transaction

from durableflows import InvalidState, Retry, Run, Transient, Workflow, WorkflowState, api, fail, step, succeed
from durableflows.core import registry
from durableflows.core.directives import StepReturn
from durableflows.core.states import EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.testing import Boundary, Crash, World, crash_at, virtual
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import Gate, Rival

pytestmark = pytest.mark.django_db(transaction=True)

Body = Callable[[Run["Book"]], StepReturn]


class Book(WorkflowState):
    """What a booking remembers."""

    text: str = ""
    booked: int = 0


@pytest.fixture
def world():
    with registry.isolated(), virtual() as world:
        yield world


def booking(body: Body, *, atomic: bool = False, retry: Retry | None = None) -> type[Workflow[Book]]:
    """book -> close; `book` may end the run as well."""

    class Booking(Workflow[Book]):
        """Writes into the project's own tables."""

        name, version = "booking", 1
        deadline = timedelta(days=1)

        @step(start=True, to="close", end=True, atomic=atomic, retry=retry or Retry(base_seconds=2))
        def book(self, run: Run[Book]) -> StepReturn:
            return body(run) or self.close

        @step(end=True)
        def close(self, run: Run[Book]) -> None:
            run.note("closed")

    return Booking


def play(world: World, flow: type[Workflow[Book]]) -> WorkflowRun:
    run = api.start(flow, {})
    world.run_until_idle()
    return WorkflowRun.objects.get(pk=run.pk)


def assert_parked(run: WorkflowRun, *words: str) -> None:
    """It stands still with the reason, at its first attempt, and no worker is blamed."""
    book = StepRun.objects.get(run=run, name="book")
    assert run.state == RunState.PARKED
    assert run.parked_reason == "error in our code"
    assert all(word in run.parked_detail for word in words), run.parked_detail
    assert (book.state, book.attempts, book.lost_workers) == (StepState.READY, 1, 0)
    assert StepAttempt.objects.get(step=book).ended_at
    assert not [found for found in examine(run.pk) if found.severity is Severity.BROKEN]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_state_that_is_too_large_parks_the_run(world: World, atomic: bool):
    """R31, P10: the size is found out when the checkpoint is written, and the attempt ends all the same."""

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="written by the body")
        run.state.text = "x" * 300_000

    assert_parked(play(world, booking(body, atomic=atomic)), "300", "artifact")
    assert Group.objects.exists() is not atomic


def test_the_effect_of_a_step_whose_state_is_too_large_is_kept_and_not_done_again(world: World):
    """S3.5, S3.55, R31, P4: parked with its receipt; a second try gets the receipt."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durableflows.integrity.check_size", refuse_with_receipt)
        world.run_until_idle()
        run.refresh_from_db()
        assert run.state == RunState.PARKED
        assert SideEffect.objects.get().state == EffectState.CONFIRMED
    api.retry(run.pk, reason="made it smaller")
    world.run_until_idle()

    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert len(provider.sends) == len(provider.acts) == 1


def refuse_with_receipt(value: object, limit: int, what: str) -> None:
    if isinstance(value, dict) and value.get("receipt_id"):
        raise InvalidState(f"{what} is too large")


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (lambda run: fail("a\x00b\ud800"), RunState.FAILED),
        (lambda run: succeed({"a\x00": ["b\x00", "\\u0000"]}), RunState.SUCCEEDED),
        (lambda run: run.note("a\x00b\ud800"), RunState.SUCCEEDED),
    ],
    ids=["fail", "succeed", "note"],
)
def test_what_a_body_says_is_stored_marked(world: World, body: Body, state: RunState):
    """R30: NUL and lone surrogates are never why a run stays running."""
    run = play(world, booking(body))

    assert run.state == state
    kept = f"{run.error_text} {run.result} {[event.data for event in RunEvent.objects.filter(run=run)]}"
    assert "⟦U+0000⟧" in kept


def test_a_refusal_of_a_recheck_is_stored_marked(world: World):
    """R30."""
    run = api.start(pay_workflow(Provider(), recheck=lambda run: "gone\x00"), {"amount": 5})
    world.run_until_idle()

    assert StepRun.objects.get(run=run, name="pay").error_text == "gone⟦U+0000⟧"
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED


@pytest.mark.parametrize("kind", [RuntimeError, Transient])
def test_an_error_s_text_is_stored_marked(world: World, kind: type[Exception]):
    """R30: the row that says why must not be the one that cannot be written."""

    def body(run: Run[Book]) -> StepReturn:
        raise kind("a\x00b\ud800 \\u0000")

    run = play(world, booking(body))

    assert StepRun.objects.get(run=run).error_text == "a⟦U+0000⟧b⟦U+D800⟧ \\u0000"
    assert StepRun.objects.get(run=run).state != StepState.RUNNING


def test_writes_and_checkpoint_of_an_atomic_step_commit_together(world: World):
    """S2.14: seen from another connection, there is never one without the other."""
    seen: list[tuple[bool, object]] = []

    def look() -> None:
        state = StepRun.objects.get(name="book").state
        seen.append((Group.objects.filter(name="booked").exists(), state))

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")
        run.state.booked += 1
        Rival(look).begin().outcome()

    run = play(world, booking(body, atomic=True))
    look()

    assert seen == [(False, StepState.RUNNING), (True, StepState.SUCCEEDED)]
    assert run.data["booked"] == Group.objects.count() == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_before_the_commit_of_an_atomic_step_leaves_neither(world: World, times: int):
    """S2.14, R14: killed in the last moment, once and twice; then exactly once."""

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")
        run.state.booked += 1

    run = api.start(booking(body, atomic=True), {})
    for _ in range(times):
        with crash_at(Boundary.SETTLE_BEFORE_COMMIT), pytest.raises(Crash):
            world.run_until_idle()
        assert not Group.objects.exists()
        assert WorkflowRun.objects.get(pk=run.pk).data["booked"] == 0
        assert StepRun.objects.get(run=run).state == StepState.RUNNING
        world.clock.advance(minutes=2)
    world.run_until_idle()

    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert run.data["booked"] == Group.objects.count() == 1


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (Transient("later"), StepState.RETRY_SCHEDULED),
        (RuntimeError("ours"), StepState.READY),
        (None, StepState.SUCCEEDED),
    ],
)
def test_the_writes_of_an_atomic_step_that_fails_are_taken_back(world: World, error: Exception | None, ends: StepState):
    """S2.14: a retry must not find its own half-done work."""

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")
        if error is not None:
            raise error

    run = play(world, booking(body, atomic=True))

    assert StepRun.objects.get(run=run, name="book").state == ends
    assert Group.objects.count() == (error is None)


@pytest.mark.postgres
def test_what_the_database_refuses_at_the_commit_parks_the_run(world: World):
    """S2.14, P10: Django's foreign keys are checked at the commit, after everything else went well."""

    def body(run: Run[Book]) -> None:
        Permission.objects.create(name="x", codename="x", content_type_id=999_999)

    assert_parked(play(world, booking(body, atomic=True)), "IntegrityError", "foreign key")
    assert not Permission.objects.filter(codename="x").exists()


@pytest.mark.postgres
def test_a_swallowed_database_error_parks_the_run(world: World):
    """S2.14, P10: the transaction is broken, though the body thinks that it has gone well."""

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")
        try:
            Group.objects.create(name="booked")
        except Exception:  # noqa: BLE001 - what user code does
            run.state.text = "went on"

    assert_parked(play(world, booking(body, atomic=True)), "TransactionManagementError")
    assert not Group.objects.exists()


def test_a_database_error_that_is_caught_in_a_savepoint_is_fine(world: World):
    """S2.14: as Django's documentation says it should be done."""

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")
        try:
            with transaction.atomic():
                Group.objects.create(name="booked")
        except Exception:  # noqa: BLE001 - what user code does
            run.state.text = "went on"

    run = play(world, booking(body, atomic=True))

    assert (run.state, run.data["text"]) == (RunState.SUCCEEDED, "went on")
    assert Group.objects.count() == 1


@pytest.mark.postgres
def test_a_deadlock_repeats_the_whole_atomic_step(world: World):
    """S2.14, P11: body and settlement again from a clean state, in one attempt."""
    first, second = Group.objects.create(name="first"), Group.objects.create(name="second")
    gate, holds_second = Gate(), Gate()
    turns: list[int] = []

    def lock(group: Group) -> None:
        Group.objects.select_for_update().get(pk=group.pk)

    def rival() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '60s'")  # the step is the one that finds out, and loses
            lock(second)
            holds_second.pass_through()
            lock(first)

    def body(run: Run[Book]) -> None:
        turns.append(run.state.booked)
        run.state.booked += 1
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
        Group.objects.create(name=f"turn {len(turns)}")
        lock(first)
        if len(turns) == 1:
            holds_second.open()
            other.wait_until_blocked()
        lock(second)

    run = api.start(booking(body, atomic=True), {})
    other = Rival(rival).begin()
    holds_second.wait()
    world.run_until_idle()
    assert other.outcome() is None
    gate.open()

    run.refresh_from_db()
    assert turns == [0, 0], "the second turn must not see what the first did to the state"
    assert (run.state, run.data["booked"]) == (RunState.SUCCEEDED, 1)
    assert list(Group.objects.filter(name__startswith="turn").values_list("name", flat=True)) == ["turn 2"]
    assert StepRun.objects.get(run=run, name="book").attempts == 1


@pytest.mark.postgres
def test_an_atomic_step_that_deadlocks_again_and_again_is_retried_later(world: World, monkeypatch: pytest.MonkeyPatch):
    """S2.14, P10: the repeats are bounded, and what follows is a retry of ours."""
    monkeypatch.setattr("durableflows.transactions.time.sleep", lambda seconds: None)
    turns: list[int] = []

    def body(run: Run[Book]) -> None:
        turns.append(len(turns))
        Group.objects.create(name=f"turn {len(turns)}")
        if len(turns) <= 8:
            with connection.cursor() as cursor:
                cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")

    run = play(world, booking(body, atomic=True))
    assert len(turns) == 8
    assert StepRun.objects.get(run=run, name="book").state == StepState.RETRY_SCHEDULED
    world.run_through()

    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert Group.objects.count() == 1


def test_a_connection_that_is_lost_at_the_commit_is_retried(world: World, monkeypatch: pytest.MonkeyPatch):
    """S2.14: nobody knows whether it committed; the rows do."""
    from django.db.backends.base.base import BaseDatabaseWrapper

    losses = [True]
    commit = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

    def lose(self: BaseDatabaseWrapper) -> object:
        if losses and Group.objects.filter(name="booked").exists():
            losses.pop()
            raise OperationalError("server closed the connection unexpectedly")
        return commit(self)

    def body(run: Run[Book]) -> None:
        Group.objects.create(name="booked")

    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", lose)
    run = play(world, booking(body, atomic=True))
    assert StepRun.objects.get(run=run, name="book").state == StepState.RETRY_SCHEDULED
    assert not Group.objects.exists()
    world.run_through()

    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert Group.objects.count() == 1
