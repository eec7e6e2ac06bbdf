"""A cancel is a row: workers that are not there when it is asked for find it when they come (R03)."""

from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from redis import Redis

from durableflows import api, clock
from durableflows.core.states import RunState, StepState
from durableflows.models import RunEvent, StepAttempt, StepRun, WorkflowRun
from tests.support.brokers import broker_at
from tests.support.outages import redis_server
from tests.support.workers import fleet, wait_for
from tests.worker_app.waits import Waits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

SOON_SECONDS = 1.0
WAYS = ("queued", "retry", "timer")


def test_what_was_cancelled_while_no_worker_was_there_never_begins(tmp_path: Path, django_user_model: type[User]):
    """R03: a message in the queue, a due retry, a due timer; then fresh workers, and a healthy run that they do."""
    boss = django_user_model.objects.create_superuser("boss")
    with redis_server() as redis, broker_at(redis.url), fleet(tmp_path, CELERY_BROKER_URL=redis.url) as ships:
        first = ships.start()
        runs = {way: start(tmp_path, way) for way in ("retry", "timer")}
        wait_for(lambda: waiting(runs["retry"], runs["timer"]), seconds=30, what="a retry and a timer")
        ships.kill(first)
        runs["queued"] = start(tmp_path, "queued")
        assert in_queue(redis.url) >= 1
        wait_for(lambda: due(runs["retry"], runs["timer"]), seconds=30, what="both to be due")
        before = {way: marks(tmp_path, way) for way in WAYS}
        assert before == {"queued": 0, "retry": 2, "timer": 1}

        for run_id in runs.values():
            api.cancel(run_id, by=boss, reason="the customer called")
        healthy = start(tmp_path, "healthy")
        ships.start()
        wait_for(lambda: state(healthy) == RunState.SUCCEEDED, seconds=30, what="the healthy run")
        wait_for(lambda: in_queue(redis.url) == 0, seconds=30, what="the left-over message to be taken")

    assert {way: marks(tmp_path, way) for way in WAYS} == before
    for run_id in runs.values():
        assert_cancelled_once(run_id)


def start(folder: Path, way: str) -> UUID:
    (folder / way).mkdir()
    return api.start(Waits, {"folder": str(folder / way), "way": way, "seconds": SOON_SECONDS}).pk


def marks(folder: Path, way: str) -> int:
    """How many bodies of this run have begun."""
    return sum(len(file.read_text().splitlines()) for file in (folder / way).iterdir())


def waiting(*runs: UUID) -> bool:
    states = [StepState.WAITING, StepState.RETRY_SCHEDULED]
    return StepRun.objects.filter(run__in=runs, state__in=states).count() == len(runs)


def due(*runs: UUID) -> bool:
    return StepRun.objects.filter(run__in=runs, wake_at__lt=clock.now()).count() == len(runs)


def in_queue(url: str) -> int:
    with Redis.from_url(url) as redis:
        return sum(int(str(redis.llen(key))) for key in redis.scan_iter() if redis.type(key) == b"list")


def state(run_id: UUID) -> str:
    return str(WorkflowRun.objects.get(pk=run_id).state)


def assert_cancelled_once(run_id: UUID) -> None:
    """With who and when; and the message, the retry or the timer that was left is void."""
    run = WorkflowRun.objects.get(pk=run_id)
    assert (run.state, run.cancel_asked_by, run.cancel_reason) == (RunState.CANCELLED, "boss", "the customer called")
    assert run.cancel_asked_at is not None
    assert run.ended_at is not None
    kinds = list(RunEvent.objects.filter(run=run).values_list("kind", "actor_name"))
    assert kinds.count(("run.ended", "")) == 1
    assert [actor for kind, actor in kinds if kind == "run.ending"] == ["boss"]
    last = StepRun.objects.filter(run=run).order_by("id").last()
    assert last is not None
    assert (last.state, last.wake_at, last.resend_at) == (StepState.CANCELLED, None, None)
    assert not StepAttempt.objects.filter(step__run=run, started_at__gt=run.cancel_asked_at).exists()
