"""The runbook is played where servers are lost: a Redis that forgets, a PostgreSQL that cuts connections, a ticker.

S2.41.
"""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from durableflows import api, clock, dispatch, doctor
from durableflows.core import registry
from durableflows.core.states import StepState
from durableflows.models import StepRun, Worker, WorkflowRun
from durableflows.testing import Boundary, Crash, World, crash_at, run_until_idle
from tests.integration.test_lost_messages import Broker
from tests.services import running_redis
from tests.support.brokers import broker_at
from tests.support.flows import Provider, pay_workflow
from tests.support.outages import through
from tests.support.runbook import Scene, assert_over
from tests.support.workers import ROOT, Fleet, wait_for
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

plays = pytest.mark.plays


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_redis() as url, registry.isolated(), broker_at(url):
        broker = Broker(url)
        yield broker
        broker.connection.release()
        broker.redis.close()


def lost_in_redis(broker: Broker, provider: Provider, count: int) -> list[WorkflowRun]:
    """Runs whose messages were in Redis when it was emptied, minutes ago."""
    workflow = pay_workflow(provider)
    runs = [api.start(workflow, {"amount": 5}) for _ in range(count)]
    assert len(broker) == count
    broker.flush()
    ago = clock.now() - timedelta(minutes=10)
    StepRun.objects.filter(state=StepState.READY).update(resend_at=ago, sent_at=ago)
    return runs


@plays("redis-lost", "look")
def test_redis_lost_is_red_and_named(broker: Broker, scene: Scene):
    lost_in_redis(broker, Provider(), 2)

    health = scene.run(code=1)
    found = scene.run()

    assert "red  outbox" in health
    assert "(2 rows)" in health
    assert "due [unsent]" in found


@plays("redis-lost", "send again")
def test_redis_lost_costs_no_run(broker: Broker, scene: Scene):
    provider = Provider()
    runs = lost_in_redis(broker, provider, 2)

    assert "unsent steps: 2" in scene.run()
    assert len(broker) == 2
    broker.work()

    assert_over(*[run.pk for run in runs])
    assert len(provider.acts) == 2


def cut_every_connection() -> None:
    """As a fail-over does: the server ends the sessions, and whoever comes next is served."""
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    other.close()


@plays("postgresql-fail-over", "nothing was lost")
def test_a_fail_over_in_the_middle_of_a_payment_pays_once(world: World, scene: Scene):
    """The worker dies with its connection, after the provider acted: nobody has written the receipt."""
    provider = Provider()
    run = api.start(pay_workflow(provider), {"amount": 5})
    with crash_at(Boundary.EFFECT_AFTER_ANSWER), pytest.raises(Crash):
        world.run_until_idle()
    cut_every_connection()
    through(StepRun.objects.count)
    world.lose_messages()
    world.clock.advance(minutes=10)

    assert "lease-overdue" in scene.run()
    scene.run()
    world.run_through()
    assert "ok   workers" in scene.run()

    assert_over(run.pk)
    assert len(provider.acts) == 1


@plays("stuck-run", "a ticker of its own")
def test_a_ticker_of_its_own_does_what_nobody_did(tmp_path: Path, scene: Scene):
    """A real process, on a real broker."""
    with dispatch.replaced(lambda name, arguments: None):
        run = api.start(Held, {"folder": str(tmp_path)})
    StepRun.objects.update(sends=0, sent_at=None, resend_at=clock.now() - timedelta(minutes=5))
    assert {"no-ticker", "unsent"} <= {one.code for one in doctor.examine()}
    words = [sys.executable, *scene.fill()]

    with running_redis() as url, (tmp_path / "ticker.log").open("wb") as log:
        environment = {**Fleet(tmp_path).environment, "CELERY_BROKER_URL": url}
        process = subprocess.Popen(words, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: StepRun.objects.get().sends == 1, seconds=40, what="the step to be sent")
            wait_for(lambda: Worker.objects.get().jobs, seconds=30, what="the end of the turn")
            assert doctor.examine() == ()
        finally:
            process.terminate()
            process.wait(20)

    assert process.returncode == 0
    (tmp_path / "go").touch()
    run_until_idle()
    assert_over(run.pk)
