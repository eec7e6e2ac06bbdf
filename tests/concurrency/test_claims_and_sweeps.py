"""Many workers and tickers at the same instant: each step is started once, and each due thing is done once."""

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from durableflows import Transient, api, claims, runner
from durableflows.boundaries import Boundary
from durableflows.core.states import ApprovalState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.leases import Claim
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import World
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.rivals import Rival, at_once, gate_at

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

RUNS = 50


def deliver_all(world: World) -> None:
    while world.messages:
        world.deliver(*world.messages.popleft())


def count_events() -> Counter[tuple[str, str]]:
    """How often each kind of thing is in the history of each run."""
    return Counter((str(run), kind) for run, kind in RunEvent.objects.values_list("run_id", "kind"))


def test_eight_claims_at_once_are_one_attempt(world: World):
    """P2: eight copies of a message come at the same instant."""
    provider = Provider()
    flow = pay_workflow(provider)
    for _ in range(5):
        run = api.start(flow, {"amount": 5})
        step = StepRun.objects.get(run=run)

        claimed = at_once(*[partial(claims.claim, run.pk, step.pk, task_id=str(n), pid=1) for n in range(8)])

        assert sum(isinstance(claim, Claim) for claim in claimed) == 1
        assert claimed.count(None) == 7
        assert StepAttempt.objects.filter(step=step).count() == 1
        run.refresh_from_db()
        assert run.attempts_count == 1


def test_eight_workers_run_one_message_once(world: World):
    """P1, P2: from claim to settlement, with a real effect in it."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})
    world.deliver(*world.messages.popleft())
    step = StepRun.objects.get(run=run, name="pay")

    ran = at_once(*[partial(runner.run_step, run.pk, step.pk, task_id=str(n)) for n in range(8)])
    world.run_until_idle()

    assert sorted(map(bool, ran)) == [False] * 7 + [True]
    assert len(provider.sends) == len(provider.acts) == 1
    assert WorkflowRun.objects.get().state == RunState.SUCCEEDED


def test_a_claim_waits_for_a_cancel_and_sees_it(world: World):
    """P6: the claim's look comes after the lock."""
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    step = StepRun.objects.get(run=run)

    with gate_at(Boundary.CANCEL_BEFORE_COMMIT) as gate:
        cancel = Rival(partial(api.cancel, run.pk, reason="stop")).begin()
        gate.wait()
        claim = Rival(partial(claims.claim, run.pk, step.pk, task_id="A", pid=1)).begin()
        claim.wait_until_blocked()

    assert isinstance(cancel.outcome(), WorkflowRun)
    assert claim.outcome() is None
    assert WorkflowRun.objects.get().state == RunState.CANCELLED
    assert not StepAttempt.objects.exists()


@pytest.mark.parametrize("due", ["retries", "leases", "expired requests", "deadlines"])
def test_two_sweeps_at_the_same_instant_do_each_due_thing_once(world: World, due: str):
    """R04, R09, P10: fifty runs, two tickers, and then two more."""
    provider = Provider(faults=[raise_without_acting(Transient("503"))] * (RUNS if due == "retries" else 0))
    flow = pay_workflow(provider)
    for _ in range(RUNS):
        api.start(flow, {"amount": 5, "ask": due in ("expired requests", "deadlines")})
    wanted = {
        "retries": "step.ready",
        "leases": "step.worker_lost",
        "expired requests": "approval.escalated",
        "deadlines": "run.ended",
    }[due]
    if due == "leases":
        world.lose_messages()
        for step in StepRun.objects.all():
            assert claims.claim(step.run_id, step.pk, task_id="dead", pid=1)
        world.clock.advance(minutes=2)
    else:
        deliver_all(world)
        world.clock.advance(days={"retries": 0, "expired requests": 3, "deadlines": 15}[due], hours=1)
    before = count_events()

    sweep = partial(sweeps.sweep, may_free_stale=False)
    at_once(sweep, sweep)
    at_once(sweep, sweep)

    after = count_events()
    after.subtract(before)
    new = Counter({run: count for (run, kind), count in after.items() if kind == wanted})
    assert len(new) == RUNS
    assert set(new.values()) == {1}
    assert not [found for found in examine() if found.severity is Severity.BROKEN]
    if due == "retries":
        world.run_until_idle(limit=2000)
        assert len(provider.acts) == RUNS
        assert SideEffect.objects.count() == RUNS
    if due == "leases":
        assert set(StepRun.objects.values_list("state", "lost_workers")) == {(StepState.READY, 1)}
    if due == "deadlines":
        assert set(ApprovalRequest.objects.values_list("state", flat=True)) == {ApprovalState.CLOSED}


def test_a_sweep_that_comes_late_leaves_a_retry_alone_that_is_not_due_any_more(world: World):
    """P12, R04: it picked the step when that was due. Meanwhile another ticker woke it, and it failed once more."""
    provider = Provider(faults=[raise_without_acting(Transient("503"))] * 3)
    flow = pay_workflow(provider)
    for _ in range(2):
        api.start(flow, {"amount": 5})
    deliver_all(world)
    world.clock.advance(hours=1)
    second = StepRun.objects.filter(name="pay").order_by("wake_at")[1]

    with gate_at(Boundary.TIMER_AFTER_COMMIT) as gate:
        late = Rival(partial(sweeps.wake_due, world.clock.now())).begin()
        gate.wait()
        assert sweeps.wake_due(world.clock.now()) == 1
        assert runner.run_step(second.run_id, second.pk)

    assert late.outcome() == 1
    assert StepRun.objects.get(pk=second.pk).state == StepState.RETRY_SCHEDULED


def test_a_sweep_does_not_wait_for_a_run_that_somebody_holds(world: World):
    """R04: one held run does not hold up the others, and is done the next time."""
    flow = pay_workflow(Provider(faults=[raise_without_acting(Transient("503"))] * 3))
    runs = [api.start(flow, {"amount": 5}) for _ in range(3)]
    deliver_all(world)
    world.clock.advance(hours=1)

    with transaction.atomic():
        WorkflowRun.objects.select_for_update().get(pk=runs[1].pk)
        sweeping = Rival(partial(sweeps.sweep, may_free_stale=False)).begin()
        done = sweeping.outcome()
    assert isinstance(done, dict)
    assert done["due retries"] == 2

    assert sweeps.wake_due(world.clock.now()) == 1
    assert world.clock.now() - WorkflowRun.objects.get(pk=runs[1].pk).created_at >= timedelta(hours=1)
