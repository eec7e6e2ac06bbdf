"""A row that cannot go on costs the sweeps nothing, and never keeps another from its turn."""

import logging
from collections import defaultdict
from datetime import timedelta

import pytest

from durableflows import Budget, Retry, Run, StepRef, Transient, UnknownOutcome, Workflow, api, step
from durableflows.core.states import ApprovalState, RunState, StepState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.services import sweeps, turns
from durableflows.testing import World
from tests.support.flows import PayState, Provider, act_then_raise, pay_effect, pay_workflow, raise_without_acting

pytestmark = pytest.mark.django_db(transaction=True)


def fork(world: World, *, other_pays: bool) -> WorkflowRun:
    """A cancelled run: `pay` waits for a person, `other` too, or for its next try."""
    provider = Provider(keyed=False, faults=[act_then_raise(UnknownOutcome("?"))] * 2)
    pay_it = pay_effect(provider, key_window=None, with_lookup=False)

    class Fork(Workflow[PayState]):
        """Two at once."""

        name, version = "fork", 1
        deadline = timedelta(days=3)

        @step(start=True, to=("pay", "other"))
        def begin(self, run: Run[PayState]) -> tuple[StepRef, ...]:
            return self.pay, self.other

        @step(end=True, effects=(pay_it,))
        def pay(self, run: Run[PayState]) -> None:
            run.effect(pay_it, amount=5)

        @step(end=True, effects=(pay_it,), retry=Retry(attempts=5, base_seconds=10, cap_seconds=20))
        def other(self, run: Run[PayState]) -> None:
            if not other_pays:
                raise Transient("later")
            run.effect(pay_it, amount=5)

    run = api.start(Fork, {"amount": 5})
    for name in ("fork.begin", "fork.pay", "fork.other"):
        message = next(message for message in world.messages if message[0] == name)
        world.messages.remove(message)
        world.deliver(*message)
    sweeps.sweep(may_free_stale=False)
    api.cancel(run.pk, reason="no")
    return run


def test_a_row_that_cannot_be_read_keeps_no_other_from_its_turn(world: World):
    """P10, R04: what is broken is for a person; the sweep that meets it goes on to the next one."""
    flow = pay_workflow(Provider(faults=[raise_without_acting(Transient("503"))] * 2))
    for _ in range(2):
        api.start(flow, {"amount": 5})
    for _ in range(4):
        world.deliver(*world.messages.popleft())
    world.clock.advance(hours=1)
    broken, sound = StepRun.objects.filter(name="pay").order_by("wake_at")
    WorkflowRun.objects.filter(pk=broken.run_id).update(budget={"idle_seconds": "what?"})

    done = sweeps.sweep(may_free_stale=False)

    assert done["due retries"] == 1
    assert StepRun.objects.get(pk=sound.pk).state == StepState.READY


def due_retries(world: World, count: int) -> list[StepRun]:
    """So many steps whose next try is due, in the order in which the sweep comes to them."""
    flow = pay_workflow(Provider(faults=[raise_without_acting(Transient("503"))] * count))
    for _ in range(count):
        api.start(flow, {"amount": 5})
    for _ in range(2 * count):
        world.deliver(*world.messages.popleft())
    world.clock.advance(hours=1)
    return list(StepRun.objects.filter(name="pay").order_by("wake_at"))


def broken(steps: list[StepRun]) -> None:
    """Nobody can read their runs any more."""
    WorkflowRun.objects.filter(pk__in=[step.run_id for step in steps]).update(budget={"idle_seconds": "what?"})


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows a turn, and no turn before."""
    monkeypatch.setattr(turns, "BATCH", 2)
    monkeypatch.setattr(turns, "_lines", defaultdict(turns._Line))


def state_of(step: StepRun) -> str:
    return str(StepRun.objects.get(pk=step.pk).state)


def test_many_rows_that_always_fail_do_not_stand_before_those_behind_them(world: World, small_batches: None):
    *bad, sound = due_retries(world, 5)
    broken(bad)

    moved = [sweeps.wake_due(world.clock.now()) for _ in range(4)]

    assert moved == [0, 0, 0, 1]
    assert state_of(sound) == StepState.READY
    WorkflowRun.objects.filter(pk=bad[0].run_id).update(budget={})
    assert sweeps.wake_due(world.clock.now()) == 1  # those in front are tried at each turn
    assert state_of(bad[0]) == StepState.READY


def test_what_goes_round_begins_again_at_the_end_of_the_line(world: World, small_batches: None):
    bad = due_retries(world, 4)
    broken(bad)
    for _ in range(2):
        sweeps.wake_due(world.clock.now())

    WorkflowRun.objects.filter(pk=bad[1].run_id).update(budget={})  # it has been passed by

    assert sum(sweeps.wake_due(world.clock.now()) for _ in range(3)) == 1
    assert state_of(bad[1]) == StepState.READY


def test_what_a_row_fails_with_is_said_once_until_it_fails_otherwise(world: World, caplog: pytest.LogCaptureFixture):
    (bad,) = due_retries(world, 1)
    broken([bad])

    for _ in range(3):
        sweeps.wake_due(world.clock.now())
    WorkflowRun.objects.update(budget={"idle_seconds": ["another"]})
    sweeps.wake_due(world.clock.now())

    told = [line for line in caplog.records if line.name == "durableflows.sweeps"]
    assert [line.levelno for line in told] == [logging.ERROR] * 2
    assert all(str(bad.pk) in line.getMessage() for line in told)


def writes(world: World, run: WorkflowRun) -> int:
    """How often the run's row is written by five sweeps, a second apart."""
    before = WorkflowRun.objects.get(pk=run.pk).row_version
    for _ in range(5):
        sweeps.sweep(may_free_stale=False)
        world.clock.advance(seconds=1)
    return WorkflowRun.objects.get(pk=run.pk).row_version - before


def test_a_retry_that_falls_due_while_the_run_waits_to_end_is_left_alone(world: World):
    run = fork(world, other_pays=False)
    world.clock.advance(minutes=2)
    sweeps.sweep(may_free_stale=False)  # says that a person is needed

    assert writes(world, run) == 0
    assert StepRun.objects.get(run=run, name="other").state == StepState.RETRY_SCHEDULED


def test_a_settled_branch_waits_for_the_other_without_being_looked_at_each_second(world: World):
    run = fork(world, other_pays=True)
    row = SideEffect.objects.filter(run=run)[0]
    api.resolve_effect(row.pk, "happened", reason="seen", row_version=row.row_version, receipt={"id": "a"})
    sweeps.sweep(may_free_stale=False)

    assert writes(world, run) == 0

    other = SideEffect.objects.filter(run=run, state="UNKNOWN").get()
    api.resolve_effect(other.pk, "happened", reason="seen", row_version=other.row_version, receipt={"id": "b"})
    world.run_through()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED


def test_ends_that_wait_for_a_person_do_not_stand_before_those_that_can_be_confirmed(world: World, monkeypatch):
    fork(world, other_pays=False)
    monkeypatch.setattr(turns, "BATCH", 1)
    quiet = api.start(pay_workflow(Provider()), {"amount": 5})
    WorkflowRun.objects.filter(pk=quiet.pk).update(state="ENDING", ending_reason="cancel")
    StepRun.objects.filter(run=quiet).update(state="NEEDS_RECONCILIATION", needs_person=True)

    sweeps.sweep(may_free_stale=False)

    assert WorkflowRun.objects.get(pk=quiet.pk).state == RunState.CANCELLED


def test_long_steps_do_not_stand_before_runs_in_which_nothing_happens(world: World, monkeypatch):
    class Patient(Workflow[PayState]):
        name, version, deadline, budget = "patient", 1, timedelta(days=9), Budget(idle=timedelta(minutes=5))

        @step(start=True, end=True)
        def begin(self, run: Run[PayState]) -> None: ...

    working = api.start(Patient, {"amount": 1})
    StepRun.objects.filter(run=working).update(
        state="RUNNING", lease_token=working.pk, must_end_by=world.clock.now() + timedelta(days=1)
    )
    world.clock.advance(seconds=1)
    idle = api.start(Patient, {"amount": 2})
    monkeypatch.setattr(turns, "BATCH", 1)
    world.clock.advance(minutes=6)

    sweeps.end_idle_runs(world.clock.now())

    assert WorkflowRun.objects.get(pk=idle.pk).state == RunState.EXHAUSTED_BUDGET


def test_a_request_of_an_unknown_release_does_not_keep_others_from_expiring(world: World):
    first = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True})
    second = api.start("pay", {"amount": 901, "ask": True})
    world.run_until_idle()
    ApprovalRequest.objects.update(ladder_position=1)
    WorkflowRun.objects.filter(pk=first.pk).update(version=9)
    world.clock.advance(days=4)

    sweeps.sweep(may_free_stale=False)

    assert ApprovalRequest.objects.get(run=second).state == ApprovalState.EXPIRED


def test_requests_of_parked_releases_do_not_stand_before_those_that_can_expire(world: World, monkeypatch):
    first = api.start(pay_workflow(Provider()), {"amount": 900, "ask": True})
    second = api.start("pay", {"amount": 901, "ask": True})
    world.run_until_idle()
    ApprovalRequest.objects.update(ladder_position=1)
    WorkflowRun.objects.filter(pk=first.pk).update(version=9, state="PARKED", parked_reason="incompatible release")
    world.clock.advance(days=4)
    monkeypatch.setattr(turns, "BATCH", 1)

    sweeps.sweep(may_free_stale=False)

    assert ApprovalRequest.objects.get(run=second).state == ApprovalState.EXPIRED
    assert ApprovalRequest.objects.get(run=first).state == ApprovalState.OPEN
