"""Waits lie in the database: no message is ever delayed, and many thousands of waits cost broker and sweeps nothing
(R01).
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis import Redis

from durableflows import api, clock, dispatch
from durableflows.core.states import RunState, StepState
from durableflows.models import StepAttempt, StepRun, Worker, WorkflowRun
from durableflows.services import sweeps
from tests.support.brokers import broker_at
from tests.support.many import copy_run
from tests.support.outages import redis_server
from tests.support.workers import Fleet, fleet, wait_for
from tests.worker_app.waits import Waits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

VISIBILITY_SECONDS = 2
WORKERS = 4
AHEAD_SECONDS = 10.0
MONTH_SECONDS = 30 * 24 * 3600.0
WAITS = 20_000
LARGE = ("durableflows_workflowrun", "durableflows_steprun")


def starts(folder: Path, name: str) -> list[float]:
    """When each body of this step began."""
    marks = folder / name
    return [float(line.split()[1]) for line in marks.read_text().splitlines()] if marks.exists() else []


def test_each_wait_begins_once_and_neither_broker_nor_sweeps_feel_twenty_thousand_of_them(tmp_path: Path):
    """R01: a visibility timeout of 2 s, 4 workers, a retry and a timer 10 s ahead; then 20,000 waits of 30 days."""
    with (
        redis_server() as redis,
        broker_at(redis.url),
        every_message(redis.url) as messages,
        fleet(tmp_path, CELERY_BROKER_URL=redis.url, TEST_VISIBILITY_SECONDS=str(VISIBILITY_SECONDS)) as ships,
    ):
        start_workers(ships)
        begin = partial(start, tmp_path)
        soon = [begin("retry", AHEAD_SECONDS), begin("timer", AHEAD_SECONDS)]
        far = [begin("retry", MONTH_SECONDS), begin("timer", MONTH_SECONDS)]
        wait_for(lambda: waiting(far), seconds=30, what="two runs to wait for a month")

        for run_id in far:
            copy_run(run_id, WAITS // 2)
        let_all_sweep()
        assert WorkflowRun.objects.filter(ended_at__isnull=True).count() >= WAITS
        assert_nothing_lies_in(redis.url)
        assert_found_by_index()

        wait_for(lambda: ended(soon), seconds=AHEAD_SECONDS + 30, what="the retry and the timer")
        assert_nothing_lies_in(redis.url)

    assert_began_once(tmp_path, soon)
    assert {json.dumps(message["headers"]["eta"]) for message in messages} == {"null"}
    assert {message["headers"]["task"].partition(".")[0] for message in messages} == {"waits"}
    # begin of each run; two waits that came due; what goes on from `begin` to `again`
    assert len(messages) <= 2 * (len(soon) + len(far) + len(soon))


def start_workers(ships: Fleet) -> None:
    for _ in range(WORKERS):
        ships.launch(children=1)
    wait_for(lambda: Worker.objects.filter(stopped_at=None).count() == WORKERS, seconds=60, what="four workers")


def start(folder: Path, way: str, seconds: float) -> UUID:
    own = folder / f"{way} {seconds:g}"
    own.mkdir()
    return api.start(Waits, {"folder": str(own), "way": way, "seconds": seconds}).pk


def waiting(runs: list[UUID]) -> bool:
    states = [StepState.WAITING, StepState.RETRY_SCHEDULED]
    return StepRun.objects.filter(run__in=runs, state__in=states).count() == len(runs)


def ended(runs: list[UUID]) -> bool:
    return WorkflowRun.objects.filter(pk__in=runs, state=RunState.SUCCEEDED).count() == len(runs)


def let_all_sweep() -> None:
    """Return after a whole sweep: of so many ends one at least belongs to a sweep that began after this moment."""
    for _ in range(WORKERS + 1):
        swept = Worker.objects.filter(stopped_at=None, swept_at__gt=clock.now())
        wait_for(swept.exists, seconds=30, what="a ticker to sweep")


def assert_nothing_lies_in(url: str) -> None:
    """No queue holds anything, and nothing is delivered and not acknowledged."""
    with Redis.from_url(url) as redis:
        lists = {key: redis.llen(key) for key in redis.scan_iter() if redis.type(key) == b"list"}
        assert sum(lists.values()) <= 2, lists
        assert redis.hlen("unacked") <= WORKERS
        assert redis.dbsize() < 20


def assert_began_once(folder: Path, runs: list[UUID]) -> None:
    retried = starts(folder / f"retry {AHEAD_SECONDS:g}", "again")
    slept = starts(folder / f"timer {AHEAD_SECONDS:g}", "begin") + starts(folder / f"timer {AHEAD_SECONDS:g}", "woken")
    for times in (retried, slept):
        assert len(times) == 2
        assert AHEAD_SECONDS - 0.5 < times[1] - times[0] < AHEAD_SECONDS + 10
    tries = StepAttempt.objects.filter(step__run__in=runs).values_list("step__name", flat=True)
    assert sorted(tries) == ["again", "again", "begin", "begin", "woken"]


def assert_found_by_index() -> None:
    """Each query that a sweep asks reads no table of thousands from end to end."""
    with CaptureQueriesContext(connection) as asked, dispatch.replaced(lambda name, arguments: None):
        sweeps.sweep()
    questions = [str(query["sql"]) for query in asked if str(query["sql"]).startswith("SELECT")]
    questions = [sql for sql in questions if "durableflows_" in sql]
    assert len(questions) >= len(sweeps.SWEEPS)
    assert [sql for sql in questions if read_from_end_to_end(sql)] == []
    assert read_from_end_to_end("SELECT 1 FROM durableflows_workflowrun WHERE cancel_reason = 'no index has this'")


def read_from_end_to_end(sql: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + sql.replace("%", "%%"))
        [[plans]] = cursor.fetchall()
    return any(kind == "Seq Scan" and table in LARGE for table, kind in scans(plans[0]["Plan"]))


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each table of a plan, and how it is read."""
    if "Relation Name" in plan:
        yield plan["Relation Name"], plan["Node Type"]
    for below in plan.get("Plans", []):
        yield from scans(below)


@contextmanager
def every_message(url: str) -> Iterator[list[dict[str, Any]]]:
    """All that is put into a queue while the block lasts, as Redis itself sees it."""
    messages: list[dict[str, Any]] = []
    is_watching, stop = threading.Event(), threading.Event()

    def watch() -> None:
        with Redis.from_url(url, socket_timeout=None) as redis, redis.monitor() as monitor:
            is_watching.set()
            while not stop.is_set():
                command = str(monitor.next_command()["command"]).split(" ", 2)
                if command[0] in ("LPUSH", "RPUSH"):
                    messages.append(json.loads(command[2]))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert is_watching.wait(10)
    try:
        yield messages
    finally:
        stop.set()
        with Redis.from_url(url) as redis:
            redis.ping()  # one more command, so that the watcher sees that it may stop
        watcher.join(10)
