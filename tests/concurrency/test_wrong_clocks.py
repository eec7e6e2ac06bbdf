"""Workers whose clocks are ten minutes wrong: leases and timers are judged by the database's clock alone (R08, P12)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import time_machine
from django.test import override_settings

from durableflows import Retry, Transient, api, claims, leases, runner, ticker
from durableflows.core import registry
from durableflows.core.states import RunState, StepState
from durableflows.leases import Place
from durableflows.models import StepRun, WorkflowRun
from durableflows.services import sweeps
from tests.support.flows import Provider, pay_workflow, raise_without_acting
from tests.support.workers import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

AHEAD, BEHIND = timedelta(minutes=10), timedelta(minutes=-10)
STALE_SECONDS = 1.5


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with (
        registry.isolated(),
        override_settings(
            DURABLEFLOWS={"STALE_SECONDS": STALE_SECONDS, "HEARTBEAT_SECONDS": STALE_SECONDS / 3, "TICKER": False}
        ),
    ):
        yield


def wrong(by: timedelta) -> time_machine.travel:
    """This process's clock, wrong by so much, and running."""
    return time_machine.travel(datetime.now(UTC) + by, tick=True)


def worker(by: timedelta) -> Place:
    """A worker with a wrong clock, registered by its first heartbeat."""
    with wrong(by):
        place = Place(leases.begin_worker(f"worker {by}"), f"worker {by}", 0, ())
        ticker.register(place)
    return place


def claim(run: WorkflowRun, by: timedelta) -> StepRun:
    """Claim the run's ready step as a worker with a wrong clock."""
    step = StepRun.objects.get(run=run, state=StepState.READY)
    with wrong(by):
        assert claims.claim(run.pk, step.pk, task_id="t", pid=0) is not None
    return StepRun.objects.get(pk=step.pk)


def sweep(by: timedelta) -> None:
    with wrong(by):
        sweeps.sweep()


def holder(step_id: UUID) -> object:
    return StepRun.objects.get(pk=step_id).lease_token


@pytest.mark.parametrize(("holds", "sweeps_at"), [(AHEAD, BEHIND), (BEHIND, AHEAD), (AHEAD, AHEAD), (BEHIND, BEHIND)])
def test_no_live_lease_is_taken(holds: timedelta, sweeps_at: timedelta):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    place = worker(holds)
    step = claim(run, holds)
    stop_at = time.perf_counter() + 2 * STALE_SECONDS

    while time.perf_counter() < stop_at:  # longer than the stale time, with a heartbeat each turn
        with wrong(holds):
            ticker.register(place)
        sweep(sweeps_at)
        assert holder(step.pk) == step.lease_token


@pytest.mark.parametrize(("held", "sweeps_at"), [(AHEAD, BEHIND), (BEHIND, AHEAD)])
def test_a_dead_worker_s_lease_is_free_after_the_stale_time_and_not_the_skew(held: timedelta, sweeps_at: timedelta):
    run = api.start(pay_workflow(Provider()), {"amount": 5})
    worker(held)
    step = claim(run, held)
    died_at = time.perf_counter()

    def is_free() -> bool:
        sweep(sweeps_at)
        return holder(step.pk) is None

    wait_for(is_free, seconds=20, what="the dead worker's lease to be freed")
    assert STALE_SECONDS - 0.5 < time.perf_counter() - died_at < STALE_SECONDS + 5


@pytest.mark.parametrize(("schedules", "sweeps_at"), [(AHEAD, BEHIND), (BEHIND, AHEAD)])
def test_a_retry_fires_by_the_database_s_time(schedules: timedelta, sweeps_at: timedelta):
    provider = Provider(faults=[raise_without_acting(Transient("503"))])
    flow = pay_workflow(provider, retry=Retry(attempts=3, base_seconds=2.0, within=timedelta(hours=1)))
    run = api.start(flow, {"amount": 5})
    with wrong(schedules):
        _run_ready(run)
        _run_ready(run)
    step = StepRun.objects.get(run=run, name="pay")
    assert step.state == StepState.RETRY_SCHEDULED
    scheduled_at = time.perf_counter()

    def is_done() -> bool:
        sweep(sweeps_at)
        with wrong(sweeps_at):
            _run_ready(run)
        return WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED

    sweep(sweeps_at)
    assert StepRun.objects.get(pk=step.pk).state == StepState.RETRY_SCHEDULED, "it fired before its time"
    wait_for(is_done, seconds=20, what="the retry")
    assert time.perf_counter() - scheduled_at < 2.0 + 5
    assert len(provider.acts) == 1


def _run_ready(run: WorkflowRun) -> None:
    steps = StepRun.objects.filter(run=run, state=StepState.READY)
    for step_id in list(steps.values_list("pk", flat=True)):
        runner.run_step(run.pk, step_id)
