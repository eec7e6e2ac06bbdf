"""The engine does its own housekeeping out of the box, and says when it does not (R40)."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, current_app
from django.conf import LazySettings
from django.test import Client

from durableflows import api, claims, conf, health, housekeeping
from durableflows.celery import TickerStep, install
from durableflows.checks_celery import check_housekeeping
from durableflows.core import registry
from durableflows.core.keys import new_token
from durableflows.housekeeping import JOBS, Record
from durableflows.leases import Place
from durableflows.models import StepRun, Worker
from durableflows.services import sweeps
from durableflows.testing import World
from durableflows.ticker import register, sweep_in_turn
from tests.integration.test_command import data, said
from tests.support.examined import asking, parked
from tests.support.flows import Provider, pay_workflow
from tests.support.refunds import person

pytestmark = pytest.mark.django_db(transaction=True)

OUTBOX = 100


class Scheduler:
    """A worker's ticker, as its process runs it."""

    def __init__(self) -> None:
        self.place, self.record = Place(new_token(), "w1@host", 0, ()), Record()

    def turn(self) -> None:
        register(self.place)
        sweep_in_turn(self.place, may_free_stale=True, record=self.record)


@pytest.fixture
def scheduler(world: World) -> Scheduler:
    pay_workflow(Provider())
    return Scheduler()


def checks() -> dict[str, health.Check]:
    return {check.name: check for check in health.examine().checks}


def test_with_default_settings_alone_every_periodic_job_is_scheduled(
    world: World, scheduler: Scheduler, settings: LazySettings
):
    """R40: no beat, no cron: the ticker that each worker starts does every one of them, and says so."""
    del settings.DURABLEFLOWS
    asking(world)

    scheduler.turn()

    assert conf.settings() == conf.Settings()
    assert conf.settings().TICKER
    assert TickerStep in current_app.steps["worker"]
    assert check_housekeeping(None) == []
    assert tuple(sweeps.SWEEPS) == JOBS
    assert {job.name: (job.ran_at, job.error) for job in health.examine().jobs} == dict.fromkeys(
        JOBS, (world.clock.now(), "")
    )


def test_a_start_up_check_says_when_nobody_schedules_them(settings: LazySettings, monkeypatch: pytest.MonkeyPatch):
    """R40: the setting that turns it off, and an app that was not told."""
    settings.DURABLEFLOWS = {"TICKER": False}
    off = [one.id for one in check_housekeeping(None)]
    settings.DURABLEFLOWS = {}
    foreign = Celery("shop", set_as_current=False)
    monkeypatch.setattr("durableflows.checks_celery.current_app", foreign)
    untold = [one.id for one in check_housekeeping(None)]
    foreign.steps["worker"].add(TickerStep)

    assert (off, untold) == (["durableflows.W019"], ["durableflows.W020"])
    assert check_housekeeping(None) == []
    assert callable(install)


@pytest.fixture
def stopped(world: World, scheduler: Scheduler) -> Iterator[None]:
    """R40: an approval is open for 3 days; then scheduler and workers stop for 10 minutes, with 100 rows unsent and a
    step under a lease."""
    asking(world)
    world.clock.advance(days=3)
    with registry.isolated():
        running = api.start(pay_workflow(Provider()), {"amount": 5})
        scheduler.turn()
        assert health.examine().word == "ok", [check for check in health.examine().checks if check.is_red]
        claimed = claims.claim(running.pk, StepRun.objects.get(run=running).pk, task_id="t", pid=1)
        assert claimed is not None
        for number in range(OUTBOX):
            api.start("pay", {"amount": 5}, key=f"r{number}")
        StepRun.objects.filter(state="READY").update(sent_at=None, sends=0, resend_at=world.clock.now())
        world.clock.advance(minutes=10)
        yield


def test_a_scheduler_that_has_stopped_is_red_with_the_last_run_of_each_job_and_all_that_waits(
    world: World, stopped: None
):
    """R40: last runs, backlog and age, expired leases, the oldest wait, counts by state; not zero."""
    told = data("health", code=1)

    figures = {one["check"]: (one["value"], one["count"], one["red"]) for one in told["checks"]}
    ten_minutes, three_days = 600, timedelta(days=3, minutes=10).total_seconds()
    assert figures["last_sweep"][::2] == (ten_minutes, True)
    assert figures["jobs"] == (ten_minutes, len(JOBS), True)
    assert figures["outbox"] == (ten_minutes, OUTBOX, True)
    late, count, red = figures["expired_lease"]
    assert (0 < late < ten_minutes, count, red) == (True, 1, True)
    assert figures["oldest_wait"] == (three_days, 1, True)
    assert figures["workers"][::2] == (1, True)
    assert {one["job"] for one in told["jobs"]} == set(JOBS)
    assert {one["ran_at"] for one in told["jobs"]} == {(world.clock.now() - timedelta(minutes=10)).isoformat()}
    assert (sum(told["runs"].values()), told["runs"]["WAITING_HUMAN"]) == (OUTBOX + 2, 1)
    assert told["steps"] == {"READY": OUTBOX, "RUNNING": 1, "WAITING_HUMAN": 1}


def test_the_page_and_the_doctor_say_the_same(world: World, stopped: None):
    """R40."""
    olga = Client()
    olga.force_login(person("olga", "operate_run"))
    page = olga.get("/durableflows/health/", headers={"Accept": "text/html"})
    told = olga.get("/durableflows/health/")
    text = said("doctor", "--strict", code=1)

    assert (page.status_code, told.status_code, Client().get("/durableflows/health/").json()) == (
        503,
        503,
        {"status": "red"},
    )
    assert all(name.capitalize() in page.text for name in JOBS)
    assert f"Steps that wait to be sent to a worker: for 10 minutes ({OUTBOX} steps)." in page.text
    assert "Runs: waiting for a decision" in page.text
    assert told.json()["checks"]["outbox"] == {
        **told.json()["checks"]["outbox"],
        "value": 600,
        "count": OUTBOX,
        "red": True,
    }
    assert set(told.json()["jobs"]) == set(JOBS)
    assert {"no-ticker", "lease-overdue", "unsent", "waits-long"} <= {one["code"] for one in data("doctor")}
    assert "the last sweep was at" in text
    assert f"red  outbox: 600 ({OUTBOX} rows), red above 120" in text
    assert "red  oldest_wait: 259800 (1 rows)" in text


def test_one_turn_of_a_scheduler_later_it_is_done(world: World, scheduler: Scheduler, stopped: None):
    """R40: what was left is sent, freed and counted; only the person is still waited for."""
    scheduler.turn()

    red = {name for name, check in checks().items() if check.is_red}
    assert red == {"oldest_wait"}
    assert checks()["outbox"].count == 0
    assert not [one for one in data("doctor") if one["severity"] == "due"]


def test_a_job_that_fails_is_named_while_the_others_go_on(
    world: World, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
):
    """R40: with its error, masked, and its last good run."""

    def broken(now: Any) -> int:
        raise RuntimeError("no such column; https://db.example/?api_key=SECRET1")

    asking(world)
    scheduler.turn()
    good = world.clock.now()
    monkeypatch.setitem(sweeps.SWEEPS, "timers", broken)
    for _ in range(130):
        world.clock.advance(seconds=1)
        scheduler.turn() if _ in (0, 129) else register(scheduler.place)

    (job,) = [one for one in health.examine().jobs if one.name == "timers"]
    assert (job.ran_at, checks()["jobs"].count) == (good, 1)
    assert "no such column" in job.error
    assert "SECRET1" not in json.dumps(data("health", code=1))
    (found,) = [one for one in data("doctor") if one["code"] == "job-late"]
    assert "the job 'timers' was last done at" in found["text"]
    assert "it fails: RuntimeError: no such column" in said("health", code=1)


def test_a_request_that_is_older_than_the_limit_is_red_and_the_limit_is_a_setting(world: World, settings: LazySettings):
    asking(world)
    Scheduler().turn()
    settings.DURABLEFLOWS = {"HEALTH_WAIT_SECONDS": 60}
    world.clock.advance(seconds=59)
    before = checks()["oldest_wait"].is_red
    world.clock.advance(seconds=2)

    assert (before, checks()["oldest_wait"].is_red) == (False, True)
    assert [one["code"] for one in data("doctor") if one["code"] == "waits-long"] == ["waits-long"]


def test_a_ticker_of_an_older_release_says_nothing_of_its_jobs_and_is_not_called_late(world: World):
    parked(world)
    place = Place(new_token(), "old", 0, ())
    register(place)
    Worker.objects.update(swept_at=world.clock.now(), jobs=None)

    assert not checks()["jobs"].is_red
    assert {job.ran_at for job in housekeeping.last_runs()} == {None}
    assert "not said yet" in said("health")
