"""Two operators, or an operator and a worker, at the same instant: each sees what the other did."""

from datetime import timedelta
from functools import partial

import pytest

from durableflows import FactsChanged, TooLate, api, claims
from durableflows.boundaries import Boundary
from durableflows.core.outcomes import Halted
from durableflows.core.states import RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.errors import LeaseLost, RunHalted
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import children, sweeps
from durableflows.testing import World
from tests.support.parcels import Depot, lost_address, parcel_workflow
from tests.support.play import assert_chain, stage
from tests.support.rivals import Rival, at_once, gate_at
from tests.support.waits import waiting

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def broken() -> list[str]:
    return [one.text for one in examine() if one.severity is Severity.BROKEN]


def failed(world: World, depot: Depot) -> WorkflowRun:
    depot.handing.append(lost_address())
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    return run


def test_a_claim_waits_for_a_pause_and_sees_it(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    step = StepRun.objects.get(run=run)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        pause = Rival(partial(api.pause, run.pk, reason="x")).begin()
        gate.wait()
        claim = Rival(partial(claims.claim, run.pk, step.pk, task_id="A", pid=1)).begin()
        claim.wait_until_blocked()

    assert isinstance(pause.outcome(), WorkflowRun)
    assert claim.outcome() is None
    assert StepRun.objects.get(run=run).state == StepState.READY


def test_a_reserve_waits_for_a_pause_and_sends_nothing(world: World):
    played = stage(world)
    worker = played.hand().claim()

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        pause = Rival(partial(api.pause, played.run_id, reason="x")).begin()
        gate.wait()
        reserve = Rival(worker.ask).begin()
        reserve.wait_until_blocked()

    assert isinstance(pause.outcome(), WorkflowRun)
    assert isinstance(reserve.outcome(), RunHalted)
    worker.settle(Halted())
    assert not SideEffect.objects.exists()
    api.resume(played.run_id, reason="x")
    world.run_until_idle()
    assert played.run().state == RunState.SUCCEEDED


def test_a_settlement_that_meets_a_pause_is_kept_and_the_next_step_is_not_sent(world: World):
    played = stage(world)
    worker = played.hand().claim().reserve()
    worker.record(worker.act())

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        pause = Rival(partial(api.pause, played.run_id, reason="x")).begin()
        gate.wait()
        settle = Rival(worker.settle).begin()
        settle.wait_until_blocked()

    assert isinstance(pause.outcome(), WorkflowRun)
    assert not isinstance(settle.outcome(), BaseException)
    following = StepRun.objects.get(run=played.run_id, name="done")
    assert (following.state, following.sent_at) == (StepState.READY, None)
    assert list(world.messages) == []


def test_two_redrives_at_once_are_one(world: World):
    depot = Depot()
    run = failed(world, depot)
    redrive = partial(api.redrive, run.pk, reason="x", step="pay", repeat=("post.pay",))

    outcomes = at_once(redrive, redrive)

    assert sorted(type(one).__name__ for one in outcomes) == ["TooLate", "WorkflowRun"]
    world.run_until_idle()
    assert RunEvent.objects.filter(run=run, kind="run.redriven").count() == 1
    assert len(depot.carrier.acts) == 2
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert broken() == []


def test_two_extensions_at_once_are_both_counted(world: World):
    run = api.start(parcel_workflow(Depot()), {})
    before = run.deadline_at
    extend = partial(api.extend, run.pk, reason="x", deadline=timedelta(days=1))

    at_once(extend, extend)

    assert WorkflowRun.objects.get(pk=run.pk).deadline_at == before + timedelta(days=2)


def test_an_extension_that_meets_the_end_by_deadline_comes_before_or_after_it(world: World):
    run = WorkflowRun.objects.get(pk=waiting(world, "timer"))
    WorkflowRun.objects.filter(pk=run.pk).update(deadline_at=world.clock.now())
    extend = partial(api.extend, run.pk, reason="x", deadline=timedelta(days=30))

    at_once(extend, partial(sweeps.end_overdue_runs, world.clock.now()))

    stored = WorkflowRun.objects.get(pk=run.pk)
    assert (stored.state, stored.ending_reason) == (RunState.WAITING, "")
    assert broken() == []
    world.run_through()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert_chain(WorkflowRun.objects.get(pk=run.pk))


def test_a_cancel_and_an_extension_at_once_never_leave_a_cancelled_run_going_on(world: World):
    """P6: whoever comes second is told, and a cancel that was taken stays."""
    for _ in range(5):
        depot = Depot()
        run = api.start(parcel_workflow(depot), {"ask": True})
        world.run_until_idle()
        extend = partial(api.extend, run.pk, reason="x", deadline=timedelta(days=1))

        at_once(partial(api.cancel, run.pk, reason="x"), extend)

        assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED
    assert broken() == []


def test_an_abandon_takes_the_lease_of_a_worker_whose_receipt_is_kept(world: World, admin_user):
    played = stage(world)
    worker = played.hand().claim().reserve()
    answer = worker.act()

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        abandon = Rival(partial(api.abandon, played.run_id, reason="x", heir=admin_user)).begin()
        gate.wait()
        record = Rival(partial(worker.record, answer)).begin()
        record.wait_until_blocked()

    assert isinstance(abandon.outcome(), WorkflowRun)
    assert record.outcome() == "CONFIRMED"
    with pytest.raises(LeaseLost):
        worker.settle()
    assert played.run().state == RunState.ABANDONED
    assert broken() == []


def test_a_claim_and_a_redrive_of_a_paused_run_at_once_run_each_step_once(world: World):
    depot = Depot(handing=[RuntimeError("a bug")])
    run = api.start(parcel_workflow(depot), {})
    world.run_until_idle()
    ready = StepRun.objects.get(run=run, name="hand_over")

    at_once(
        partial(api.redrive, run.pk, reason="x", step="pay"),
        partial(claims.claim, run.pk, ready.pk, task_id="A", pid=1),
    )
    world.run_until_idle()

    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
    assert len(depot.carrier.acts) == 1
    assert broken() == []


def child_past_its_deadline(world: World) -> tuple[WorkflowRun, WorkflowRun, StepRun]:
    """A run, its child that has just ended at its deadline, and the step that waits for it."""
    run = WorkflowRun.objects.get(pk=waiting(world, "child"))
    child = WorkflowRun.objects.get(parent=run)
    WorkflowRun.objects.filter(pk=child.pk).update(deadline_at=world.clock.now())
    sweeps.end_overdue_runs(world.clock.now())
    return run, child, StepRun.objects.get(run=run, waits_on="child")


def test_an_extension_that_meets_the_hand_over_of_the_childs_end_comes_too_late(world: World):
    """The child must not go on when its parent has gone on without it."""
    run, child, step = child_past_its_deadline(world)

    with gate_at(Boundary.CROSSING_BEFORE_COMMIT) as gate:
        hand_over = Rival(partial(children.carry, step.pk)).begin()
        gate.wait()
        extend = Rival(partial(api.extend, child.pk, reason="x", deadline=timedelta(hours=1))).begin()
        extend.wait_until_blocked()

    assert hand_over.outcome() is True
    assert isinstance(extend.outcome(), TooLate)
    states = [WorkflowRun.objects.get(pk=one.pk).state for one in (run, child)]
    assert states == [RunState.FAILED, RunState.DEADLINE_EXCEEDED]


def test_a_hand_over_that_meets_the_extension_of_the_child_hands_nothing_over(world: World):
    run, child, step = child_past_its_deadline(world)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        extend = Rival(partial(api.extend, child.pk, reason="x", deadline=timedelta(hours=1))).begin()
        gate.wait()
        assert children.carry(step.pk) is False  # it does not wait for the child's lock

    assert isinstance(extend.outcome(), WorkflowRun)
    assert children.carry(step.pk) is False
    world.run_until_idle()
    states = [WorkflowRun.objects.get(pk=one.pk).state for one in (run, child)]
    assert states == [RunState.WAITING, RunState.WAITING]


def test_a_child_that_is_extended_while_its_end_is_handed_over_leaves_no_limbo(world: World):
    for _ in range(5):
        run, child, step = child_past_its_deadline(world)
        extend = partial(api.extend, child.pk, reason="x", deadline=timedelta(hours=1))

        outcomes = at_once(extend, partial(children.carry, step.pk))

        assert not [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, TooLate)]
        world.run_until_idle()
        run.refresh_from_db()
        child.refresh_from_db()
        assert (run.state, child.state) in (
            (RunState.WAITING, RunState.WAITING),
            (RunState.FAILED, RunState.DEADLINE_EXCEEDED),
        )
        assert broken() == []
        world.clock.advance(days=40)
        world.run_until_idle()


def test_a_pause_and_a_lost_worker_at_once_leave_doubt_that_is_settled(world: World):
    played = stage(world)
    worker = played.hand().claim().reserve()
    worker.act()

    at_once(partial(api.pause, played.run_id, reason="x"), partial(sweeps.free_lost_tasks, ["A"]))
    sweeps.free_lost_tasks(["A"])  # it left the run alone while the pause held it: a ticker comes by again
    world.clock.advance(minutes=1)
    world.run_until_idle()
    assert played.row().state == "CONFIRMED", "a lookup goes on in a paused run"
    assert played.run().state == RunState.PARKED

    api.resume(played.run_id, reason="x")
    world.run_through()
    assert played.run().state == RunState.SUCCEEDED
    assert len(played.provider.acts) == 1


def paused(depot: Depot) -> WorkflowRun:
    run = api.start(parcel_workflow(depot), {})
    return api.pause(run.pk, reason="x")


def edit(run: WorkflowRun, rounds: int) -> WorkflowRun:
    return api.edit(run.pk, reason="x", changes={"rounds": rounds})


def test_two_edits_at_once_are_one(world: World):
    run = paused(Depot())

    outcomes = at_once(partial(edit, run, 3), partial(edit, run, 4))

    kinds = sorted(type(one).__name__ for one in outcomes)
    taken = RunEvent.objects.filter(run=run, kind="run.edited").count()
    assert (kinds, taken) in [(["TooLate", "WorkflowRun"], 1), (["WorkflowRun", "WorkflowRun"], 2)]
    stored = WorkflowRun.objects.get(pk=run.pk)
    assert stored.checkpoint_sequence == taken
    assert_chain(stored)
    assert broken() == []


def test_the_edit_that_waited_for_another_is_told_that_the_state_has_moved_on(world: World):
    run = paused(Depot())

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        first = Rival(partial(edit, run, 3)).begin()
        gate.wait()
        second = Rival(partial(edit, run, 4)).begin()
        second.wait_until_blocked()

    assert isinstance(first.outcome(), WorkflowRun)
    assert isinstance(second.outcome(), TooLate)
    assert WorkflowRun.objects.get(pk=run.pk).data["rounds"] == 3


def test_a_claim_waits_for_an_edit_and_begins_nothing(world: World):
    run = paused(Depot())
    step = StepRun.objects.get(run=run)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        editing = Rival(partial(edit, run, 3)).begin()
        gate.wait()
        claim = Rival(partial(claims.claim, run.pk, step.pk, task_id="A", pid=1)).begin()
        claim.wait_until_blocked()

    assert isinstance(editing.outcome(), WorkflowRun)
    assert claim.outcome() is None
    api.resume(run.pk, reason="x")
    claimed = claims.claim(run.pk, step.pk, task_id="A", pid=1)
    assert claimed is not None
    assert claimed.data["rounds"] == 3


def test_an_edit_that_waited_for_a_claim_is_refused(world: World):
    """It was shown a paused run; somebody has resumed it, and a worker is at it."""
    run = paused(Depot())
    step = StepRun.objects.get(run=run)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        resume = Rival(partial(api.resume, run.pk, reason="x")).begin()
        gate.wait()
        editing = Rival(partial(edit, run, 3)).begin()
        editing.wait_until_blocked()
    assert isinstance(resume.outcome(), WorkflowRun)
    assert isinstance(editing.outcome(), TooLate)

    with gate_at(Boundary.CLAIM_BEFORE_COMMIT) as gate:
        claim = Rival(partial(claims.claim, run.pk, step.pk, task_id="A", pid=1)).begin()
        gate.wait()
        pause = Rival(partial(api.pause, run.pk, reason="x")).begin()
        pause.wait_until_blocked()
    assert claim.outcome() is not None
    assert isinstance(pause.outcome(), WorkflowRun)
    with pytest.raises(TooLate, match="a worker is at pack"):
        edit(run, 3)


def test_a_redrive_and_an_edit_at_once_go_one_after_the_other(world: World):
    depot = Depot()
    run = failed(world, depot)
    redrive = partial(api.redrive, run.pk, reason="x", step="hand_over")

    outcomes = at_once(redrive, partial(edit, run, 3))

    assert isinstance(outcomes[0], WorkflowRun)
    assert isinstance(outcomes[1], WorkflowRun | TooLate)
    world.run_until_idle()
    stored = WorkflowRun.objects.get(pk=run.pk)
    assert stored.state == RunState.SUCCEEDED
    assert stored.data["rounds"] == (3 if isinstance(outcomes[1], WorkflowRun) else 0)
    assert broken() == []


def test_an_answer_that_waited_for_an_edit_is_about_the_new_facts(world: World, admin_user):
    """P9: the facts were computed before the lock, on a state that is no more."""
    run = api.start(parcel_workflow(Depot()), {"ask": True})
    world.run_until_idle()
    api.pause(run.pk, reason="x")
    request = ApprovalRequest.objects.get(run=run)
    answer = partial(api.answer, request.pk, "approve", by=admin_user, facts_digest=request.facts_digest)

    with gate_at(Boundary.OPERATE_BEFORE_COMMIT) as gate:
        editing = Rival(partial(edit, run, 3)).begin()
        gate.wait()
        answering = Rival(answer).begin()
        answering.wait_until_blocked()

    assert isinstance(editing.outcome(), WorkflowRun)
    assert isinstance(answering.outcome(), FactsChanged)
    request.refresh_from_db()
    assert (request.state, request.binding) == ("OPEN", {"rounds": 3})
    assert not ApprovalDecision.objects.exists()
