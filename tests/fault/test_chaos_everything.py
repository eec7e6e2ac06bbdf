"""Real workers, PostgreSQL and Redis in bad weather: each way to go on, three kinds of providers, everything killed.

Prefork workers with their children are killed and stopped at random, Redis is emptied and restarted, PostgreSQL is
killed, messages come twice and late, signals early and twice. At the end each run has ended or waits for a person who
is told why, and the books of the providers, which lie outside the database, show each operation once.

CHAOS_RUNS are started evenly over CHAOS_MINUTES, beside CHAOS_WORKERS of two children each. CHAOS_SEED, which each test
prints, decides the providers' faults, the runs' stories and when something breaks; not which process it hits.
Without them it takes about three minutes; `make chaos` is the long one.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.db.models import F

from durableflows import doctor
from durableflows.core.states import EffectState, RunState
from durableflows.models import SideEffect, Signal, StepRun, Worker, WorkflowRun
from tests.support.books import Books
from tests.support.brokers import broker_at
from tests.support.crowd import Crowd, asks_a_person, why_open
from tests.support.outages import commits_that_survive, redis_server, through
from tests.support.refunds import person
from tests.support.weather import Weather, strays
from tests.support.workers import Fleet, fleet, wait_for
from tests.worker_app.providers import NEGATIVE, REFUSED
from tests.worker_app.storm import HANDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

RUNS = int(os.environ.get("CHAOS_RUNS") or "120")
MINUTES = float(os.environ.get("CHAOS_MINUTES") or "1.5")
WORKERS = int(os.environ.get("CHAOS_WORKERS") or "2")
SEED = int(os.environ.get("CHAOS_SEED") or "0") or random.SystemRandom().randrange(1, 10**6)
STALE_SECONDS = 6.0
CALM_SECONDS = 240.0
PROVIDERS = ("stamps", "parcels", "cards")


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say something that is seen whether the test passes or not."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return say


def test_whatever_breaks_each_operation_is_done_once_and_no_run_is_lost(tmp_path: Path, tell: Callable[[str], None]):
    """P1 to P7, P10, P13, P15; R02, R04, R05, R09, R14, R21; S3.10, S3.49, S3.54, S2.17."""
    tell(f"CHAOS_SEED={SEED} CHAOS_RUNS={RUNS} CHAOS_MINUTES={MINUTES:g} CHAOS_WORKERS={WORKERS}")
    began = time.monotonic()
    environment = {
        "TEST_STALE_SECONDS": str(STALE_SECONDS),
        "TEST_AUDIT_SECONDS": "15",
        "TEST_LOOKUP_CAP_SECONDS": "5",  # an audit whose lookup cannot tell is made again after this
        "TEST_STORM_FOLDER": str(tmp_path),
        "TEST_STORM_SEED": str(SEED),
    }
    with (
        commits_that_survive(),
        redis_server() as redis,
        broker_at(redis.url),
        fleet(tmp_path, CELERY_BROKER_URL=redis.url, **environment) as ships,
    ):
        weather = Weather(ships, redis, random.Random(SEED), workers=WORKERS)
        for kind in weather.left_out:
            tell(f"LEFT OUT: {kind} - DATABASE_URL names a server that is not ours to restart")
        crowd = Crowd(person("boss", "answer_approval"), random.Random(SEED + 1), RUNS, MINUTES)
        for _ in range(WORKERS):
            ships.start()
        try:
            _storm(weather, crowd)
            fire_seconds = time.monotonic() - began
            (tmp_path / "calm").touch()
            weather.clear()
            _calm(weather, crowd)
            assert strays(ships, str(tmp_path)) == []
        finally:
            tell(f"{dict(weather.seen)} {dict(crowd.seen)} {_figures(began)}")
            for end in weather.ends:
                tell(end)

        tell(f"storm {fire_seconds:.0f} s, then quiet after {time.monotonic() - began - fire_seconds:.0f} s")
        assert weather.missing() == []
        _check_rows()
        _check_runs(crowd)
        _check_books(tmp_path)
        _check_ledger(tmp_path)
    assert strays(Fleet(tmp_path), str(tmp_path)) == []


def _figures(began: float) -> str:
    states = Counter(through(lambda: list(WorkflowRun.objects.values_list("workflow", "state"))))
    effects = Counter(through(lambda: list(SideEffect.objects.values_list("effect", "state"))))
    words = [f"{' '.join(map(str, what))}: {count}" for what, count in sorted((states + effects).items())]
    load = " ".join(f"{number:.1f}" for number in os.getloadavg())
    return f"{time.monotonic() - began:.0f} s, load {load}\n" + ", ".join(words)


def _storm(weather: Weather, crowd: Crowd) -> None:
    """Until all runs have been started, the time is over, and each kind of fault was there."""
    began = time.monotonic()
    while time.monotonic() - began < 60 * MINUTES or not crowd.is_done() or weather.missing():
        passed = time.monotonic() - began
        assert passed < 60 * (3 * MINUTES + 3), f"{len(crowd.started)} of {RUNS} runs started; no {weather.missing()}"
        crowd.turn()
        weather.turn()
        time.sleep(0.1)  # the pace of the test, not a wait for anything


def _calm(weather: Weather, crowd: Crowd) -> None:
    """Let everything go on without faults until nothing is due any more."""

    def is_calm() -> bool:
        time.sleep(0.3)  # the machine is the workers' now
        weather.tend()
        crowd.answer_all()
        return through(lambda: not _going_on() and not _audits())

    try:
        wait_for(is_calm, seconds=CALM_SECONDS, what="all runs to end or to ask for a person, and all audits")
    except AssertionError as error:
        lines = "\n".join(str(why_open(run)) for run in through(_going_on)[:5])
        raise AssertionError(f"{error}: {len(through(_going_on))} go on, {through(_audits)} audits:\n{lines}") from None


def _going_on() -> list[WorkflowRun]:
    return [run for run in WorkflowRun.objects.filter(ended_at__isnull=True) if not asks_a_person(run)]


def _audits() -> int:
    return SideEffect.objects.filter(audit_at__isnull=False).count()


def _check_rows() -> None:
    broken = [finding for finding in doctor.examine() if finding.severity == "broken"]
    assert broken == []
    assert doctor.verify().findings == ()
    assert not StepRun.objects.filter(state="RUNNING").exists()
    assert not SideEffect.objects.exclude(contradiction="").exists()
    living = Worker.objects.filter(stopped_at=None, heartbeat_at__gt=F("started_at")).count()
    assert living >= WORKERS


def _check_runs(crowd: Crowd) -> None:
    """What a run says of itself: each branch once, each child once, each signal once."""
    states = Counter(WorkflowRun.objects.filter(workflow="storm").values_list("state", flat=True))
    assert sum(states.values()) == len(crowd.started) == RUNS
    assert states[RunState.SUCCEEDED] >= RUNS * 0.8, f"too few runs ended well: {dict(states)}"
    for run in WorkflowRun.objects.filter(workflow="storm", state=RunState.SUCCEEDED):
        items = run.data["items"]
        stamped = len(items) - items.count(REFUSED)
        assert run.result == {"hands": HANDS, "paid": 1, "stamped": stamped}, f"run {run.pk}: {run.result}"
    ended = set(WorkflowRun.objects.filter(state=RunState.CANCELLED, workflow="storm").values_list("pk", flat=True))
    assert ended <= crowd.cancelled
    closed = StepRun.objects.filter(name="close", state="SUCCEEDED").values_list("run_id", flat=True)
    assert sorted(Group.objects.values_list("name", flat=True)) == sorted(f"closed {pk}" for pk in closed)
    children = Counter(WorkflowRun.objects.filter(workflow="storm_leaf").values_list("parent_id", flat=True))
    assert [parent for parent, count in children.items() if count > 1 or parent is None] == []
    lost = WorkflowRun.objects.filter(parent__ended_at__isnull=False, ended_at__isnull=True)
    assert [run for run in lost if not asks_a_person(run)] == []
    signals = Counter(Signal.objects.values_list("run_id", flat=True))
    assert set(signals.values()) == {1}


def _check_books(folder: Path) -> None:
    """Nothing was done twice; a provider without keys was never asked twice about what was in doubt."""
    for provider in PROVIDERS:
        books = Books(folder, provider)
        for reference in books.references():
            acts = books.acts(reference)
            assert len(acts) <= 1, f"{provider} did {reference} {len(acts)} times: {books.lines(reference)}"
    parcels = Books(folder, "parcels")
    for reference in parcels.references():
        _check_no_second_send(parcels, reference)


def _check_no_second_send(books: Books, reference: str) -> None:
    """After a request without a clear no, the next one has another key, and a question lies between them."""
    doubted: dict[str, bool] = {}
    sender: dict[str, int] = {}
    for line in books.lines(reference):
        if line.what == "sent":
            assert not any(doubted.values()), f"{reference} was sent again while in doubt: {books.lines(reference)}"
            doubted[line.key], sender[line.key] = True, line.pid
        elif line.what == "asked" or (line.what in NEGATIVE and sender.get(line.key) == line.pid):
            doubted[line.key] = False


def _check_ledger(folder: Path) -> None:
    """What the ledger says is what the books say; after a run's end nothing was done."""
    states: dict[tuple[str, str], list[str]] = {}
    ends: dict[tuple[str, str], float | None] = {}
    for row in SideEffect.objects.select_related("run"):
        operation = row.provider, str(row.arguments["reference"])
        states.setdefault(operation, []).append(row.state)
        ends[operation] = row.run.ended_at.timestamp() if row.run.ended_at else None
    for (provider, reference), found in states.items():
        books = Books(folder, provider)
        acts, end = books.acts_at(reference), ends[provider, reference]
        confirmed = found.count(EffectState.CONFIRMED)
        assert confirmed <= 1, f"{provider} {reference}: {found}"
        if confirmed:
            assert len(acts) == 1, f"{provider} {reference} is confirmed, the books do not have it"
        elif acts:
            assert end is None, f"{provider} did {reference}, and its run has ended with {found}"
        assert end is None or all(at <= end for at in acts), f"{provider} did {reference} after its run's end"
    written = {(provider, one) for provider in PROVIDERS for one in Books(folder, provider).references()}
    assert written <= set(states)
