"""While a provider takes its time, nothing of the database is held: not a row, not a transaction (R33)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from durableflows import EffectCall, api
from durableflows.core.states import RunState
from durableflows.models import StepRun, WorkflowRun
from durableflows.testing import World
from durableflows.transactions import LOCK_TIMEOUT_SECONDS, REPEATS
from tests.support.flows import Provider, pay_workflow
from tests.support.rivals import Gate, Rival

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

AT_ONCE_SECONDS = LOCK_TIMEOUT_SECONDS * REPEATS / 2
"""Far below what a lock or a provider would be waited for, far above what a busy machine needs."""

Slow = tuple[WorkflowRun, Provider, Gate, Rival]


@pytest.fixture
def slow(world: World) -> Iterator[Slow]:
    """A run whose worker is inside the provider's call until the gate opens."""
    gate, provider = Gate(), Provider()

    def hang(call: EffectCall) -> None:
        gate.pass_through()

    run = api.start(pay_workflow(provider), {"amount": 5})
    world.deliver(*world.messages.popleft())
    provider.before_call = hang
    worker = Rival(lambda: world.deliver(*world.messages.popleft())).begin()
    gate.wait()
    yield run, provider, gate, worker
    gate.open()
    worker.outcome()


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < AT_ONCE_SECONDS


def session_of(backend: int) -> tuple[str, bool, int]:
    """State of a session, whether it has a transaction, and how many locks it holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state, xact_start IS NOT NULL, (SELECT count(*) FROM pg_locks WHERE pid = %s) "
            "FROM pg_stat_activity WHERE pid = %s",
            [backend, backend],
        )
        found: tuple[str, bool, int] = cursor.fetchone()
    return found


def test_no_transaction_and_no_lock_is_open_during_the_call(slow: Slow):
    """R33: the worker's session is idle, and not "idle in transaction"."""
    run, _, _, worker = slow

    assert session_of(worker.backend) == ("idle", False, 0)
    with at_once(), transaction.atomic():
        WorkflowRun.objects.select_for_update(nowait=True).get(pk=run.pk)
        StepRun.objects.select_for_update(nowait=True).get(run=run, name="pay")


def test_cancel_and_pages_answer_at_once(slow: Slow, world: World):
    """R33, R34: the cancel is taken, and honest about what is on its way."""
    run, provider, gate, worker = slow

    with at_once():
        assert Rival(lambda: api.explain(run.pk).next).begin().outcome()
        cancelled = Rival(lambda: api.cancel(run.pk, reason="stop").state).begin().outcome()
        told = Rival(lambda: api.explain(run.pk).sentence).begin().outcome()
    assert cancelled == RunState.ENDING
    assert told

    gate.open()
    worker.outcome()
    world.run_through()
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.CANCELLED
    assert len(provider.acts) == 1
    assert run.effects.get().receipt == {"id": "pay_1", "status": "done"}


def test_fifty_other_runs_start_and_end_meanwhile(slow: Slow, world: World):
    """R33: one slow call holds up nobody else."""
    run, provider, _, _ = slow
    provider.before_call = None

    others = [api.start("pay", {"amount": 5}).pk for _ in range(50)]
    world.run_until_idle(limit=1000)

    assert WorkflowRun.objects.filter(pk__in=others, state=RunState.SUCCEEDED).count() == 50
    assert StepRun.objects.get(run=run, name="pay").state == "RUNNING"


def test_no_transaction_is_open_while_a_person_is_asked(world: World):
    """S3.53, R33: a wait for a human is a row and nothing else."""
    run = api.start(pay_workflow(Provider()), {"amount": 5, "ask": True})
    world.run_until_idle()

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        )
        assert cursor.fetchone() == (0,)
    with transaction.atomic():
        assert WorkflowRun.objects.select_for_update(nowait=True).get(pk=run.pk).state == RunState.WAITING_HUMAN
