"""Workers with the pools `threads` and `solo`: the same promises, but nothing can end a step that hangs.

Real workers, PostgreSQL and Redis. The ticker is a process beside them as beside prefork, so a thread that computes,
and a solo worker that is busy, are not taken for dead.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection

from durableflows import api
from durableflows.core.states import ApprovalState, EffectState, RunState, StepState
from durableflows.doctor import Severity, examine
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepAttempt, StepRun, WorkflowRun
from tests.support.books import Books
from tests.support.workers import Fleet, fleet, is_alive, ticker_of, wait_for
from tests.worker_app.errands import Errand
from tests.worker_app.hung import Lazy
from tests.worker_app.workflows import Held

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

POOLS = ["threads", "solo"]
STALE_SECONDS = 6.0


@pytest.fixture
def ships(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path, TEST_STALE_SECONDS=str(STALE_SECONDS), TEST_CONN_MAX_AGE="600") as ships:
        yield ships


@pytest.fixture
def manager(django_user_model: type[User]) -> User:
    return django_user_model.objects.create_superuser("manager", password="x")


def errand(folder: Path, *, hold: bool = False) -> WorkflowRun:
    folder.mkdir()
    if hold:
        (folder / "hold").touch()
    return api.start(Errand, {"folder": str(folder)})


def held(folder: Path) -> WorkflowRun:
    folder.mkdir()
    return api.start(Held, {"folder": str(folder)})


def starts(folder: Path) -> list[int]:
    marks = folder / "starts"
    return [int(line.split()[0]) for line in marks.read_text().splitlines()] if marks.exists() else []


def fresh(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run.pk)


def ended(run: WorkflowRun) -> bool:
    return fresh(run).ended_at is not None


def go_on_to_the_end(run: WorkflowRun, manager: User, *, seconds: float = 40) -> None:
    """Answer when the run asks, and wait until it has ended."""
    rows = ApprovalRequest.objects.filter(run=run, state=ApprovalState.OPEN)
    request = wait_for(rows.first, seconds=seconds, what="the run to ask")
    assert request is not None
    api.answer(request.pk, "approve", by=manager, facts_digest=request.facts_digest)
    wait_for(lambda: ended(run), seconds=seconds, what="the run to end")


def bought(folder: Path) -> int:
    return len(list(Books(folder, "tickets").acts("ticket")))


def broken() -> list[str]:
    return [f"{one.code}: {one.text}" for one in examine() if one.severity is Severity.BROKEN]


@contextlib.contextmanager
def stopped_last(worker: "subprocess.Popen[bytes]") -> Iterator[int]:
    """The worker's ticker must outlive it until it has given back what it held, and then end too."""
    ticker = ticker_of(worker)
    yield ticker
    wait_for(lambda: not is_alive(ticker), seconds=20, what="the ticker to end after its worker")


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_with_an_effect_a_timer_and_an_approval_goes_through(
    ships: Fleet, tmp_path: Path, manager: User, pool: str
):
    worker = ships.start(pool=pool)
    folder = tmp_path / "errand"
    run = errand(folder)

    go_on_to_the_end(run, manager)

    assert fresh(run).state == RunState.SUCCEEDED
    assert bought(folder) == 1
    assert [pid for pid, *_ in marks(folder, "buys")] == [worker.pid], "the step runs in the worker's own process"
    assert "time limits do nothing in the pool" in ships.log(1)
    assert broken() == []


@pytest.mark.parametrize("everything", [True, False], ids=["with its ticker", "its ticker lives on"])
@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_killed_amid_an_effect_is_taken_over_and_nothing_is_done_twice(
    ships: Fleet, tmp_path: Path, manager: User, pool: str, everything: bool
):
    """P1, P3, S3.10: SIGKILL while the provider has acted and not answered; another worker asks again under the key."""
    folder = tmp_path / "errand"
    first = ships.start(pool=pool)
    run = errand(folder, hold=True)
    wait_for(lambda: (folder / "tickets").exists() and bought(folder) == 1, seconds=20, what="the provider to act")
    ships.start(pool=pool)

    if everything:
        ships.kill(first)
    else:
        with stopped_last(first):
            os.kill(first.pid, signal.SIGKILL)
            first.wait(10)
    (folder / "go").touch()
    go_on_to_the_end(run, manager, seconds=STALE_SECONDS * 3 + 40)

    assert fresh(run).state == RunState.SUCCEEDED
    assert bought(folder) == 1
    row = SideEffect.objects.get(run=run)
    assert (row.state, row.issue, row.send_count) == (EffectState.CONFIRMED, 1, 2)
    assert StepRun.objects.get(run=run, name="buy").lost_workers == 1
    assert broken() == []


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_that_is_told_to_end_ends_its_step_first_and_leaves_the_rest_to_others(
    ships: Fleet, tmp_path: Path, pool: str
):
    """TERM: what is under way ends where it began, for longer than the stale time; what waits is done by another."""
    old = ships.start(children=1, pool=pool)
    busy = held(tmp_path / "busy")
    wait_for(lambda: starts(tmp_path / "busy"), seconds=20, what="the step to be under way")
    waiting = [held(tmp_path / f"waiting{number}") for number in range(4)]
    for number in range(4):
        (tmp_path / f"waiting{number}" / "go").touch()

    with stopped_last(old) as ticker:
        old.send_signal(signal.SIGTERM)
        new = ships.start(pool=pool)
        for run in waiting:
            wait_for(lambda run=run: ended(run), seconds=30, what="the waiting runs to end")  # type: ignore[misc]
        time_left = time.monotonic() + STALE_SECONDS + 2
        wait_for(lambda: time.monotonic() > time_left, seconds=STALE_SECONDS + 10, what="the stale time")
        assert old.poll() is None
        assert is_alive(ticker)
        (tmp_path / "busy" / "go").touch()
        wait_for(lambda: old.poll() is not None, seconds=30, what="the old worker to end")

    wait_for(lambda: ended(busy), seconds=20, what="the run to end")
    assert old.returncode == 0
    assert starts(tmp_path / "busy") == [old.pid]
    assert {pid for number in range(4) for pid in starts(tmp_path / f"waiting{number}")} == {new.pid}
    assert StepAttempt.objects.filter(outcome="lost").count() == 0
    assert broken() == []


@pytest.mark.parametrize("pool", POOLS)
def test_no_connection_of_the_database_is_used_by_two_processes_or_threads(
    ships: Fleet, tmp_path: Path, manager: User, pool: str
):
    """Persistent connections (CONN_MAX_AGE), four threads, and a ticker that dies and is forked again meanwhile."""
    worker = ships.start(children=4, pool=pool)
    folders = [tmp_path / f"errand{number}" for number in range(8)]
    runs = [errand(folder) for folder in folders[:4]]
    for run in runs:
        wait_for(lambda run=run: ApprovalRequest.objects.filter(run=run).exists(), seconds=40, what="the run to ask")  # type: ignore[misc]
    before = ticker_of(worker)
    theirs = own_backends(before, worker.pid)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: ticker_of_now(worker) not in (0, before), seconds=20, what="another ticker")
    after = ticker_of_now(worker)
    runs += [errand(folder) for folder in folders[4:]]
    for run in runs:
        go_on_to_the_end(run, manager)
    again = own_backends(after, worker.pid)

    used: dict[int, set[tuple[int, int]]] = {}
    for folder in folders:
        for pid, thread, backend in [*marks(folder, "buys"), *marks(folder, "dones")]:
            used.setdefault(backend, set()).add((pid, thread))
    assert {pid for users in used.values() for pid, _ in users} == {worker.pid}
    assert [users for users in used.values() if len(users) > 1] == [], "a connection was used by two threads"
    assert theirs
    assert again
    assert (theirs | again) & set(used) == set(), "a ticker uses a connection of its worker's"
    assert broken() == []


def test_a_hung_step_loses_its_lease_and_its_late_end_counts_for_nothing(tmp_path: Path):
    """R07, P2: in a pool without time limits `must_end_by` is what ends a try; another thread takes the step."""
    with fleet(tmp_path, TEST_MARGIN_SECONDS="2") as ships:
        ships.start(children=4, pool="threads")
        folder = tmp_path / "lazy"
        folder.mkdir()
        run = api.start(Lazy, {"folder": str(folder)})
        wait_for(lambda: len(starts(folder)) == 2, seconds=20, what="another thread to take the step")
        (folder / "go").touch()
        wait_for(lambda: ended(run), seconds=20, what="the run to end")
        wait_for(lambda: "the lease was taken away" in ships.log(1), seconds=20, what="the first thread to be told so")

    assert fresh(run).state == RunState.SUCCEEDED
    step = StepRun.objects.get(run=run, name="doze")
    assert (step.state, step.lost_workers) == (StepState.SUCCEEDED, 1)
    first = StepAttempt.objects.get(step=step, number=1)
    assert (first.outcome, first.error_text) == ("lost", "it did not end in its time")
    assert RunEvent.objects.filter(run=run, kind="step.succeeded", step=step).count() == 1
    assert broken() == []


def test_a_solo_worker_that_hangs_is_not_taken_for_dead_and_another_worker_takes_its_step(tmp_path: Path):
    """It beats by its ticker, and does nothing more: only `must_end_by` and another worker help."""
    with fleet(tmp_path, TEST_MARGIN_SECONDS="2") as ships:
        first = ships.start(pool="solo")
        folder = tmp_path / "lazy"
        folder.mkdir()
        run = api.start(Lazy, {"folder": str(folder)})
        wait_for(lambda: len(starts(folder)) == 1, seconds=20, what="the step to hang")
        second = ships.start(pool="solo")
        wait_for(lambda: len(starts(folder)) == 2, seconds=30, what="the other worker to take the step")
        (folder / "go").touch()
        wait_for(lambda: ended(run), seconds=20, what="the run to end")

        assert starts(folder) == [first.pid, second.pid]
        assert first.poll() is None
    assert fresh(run).state == RunState.SUCCEEDED
    assert StepRun.objects.get(run=run, name="doze").lost_workers == 1
    assert broken() == []


def marks(folder: Path, name: str) -> list[tuple[int, int, int]]:
    """(process, thread, backend) of each body that ran."""
    rows = [line.split() for line in (folder / name).read_text().splitlines()]
    return [(int(pid), int(thread), int(backend)) for pid, thread, backend in rows]


def ticker_of_now(worker: "subprocess.Popen[bytes]") -> int:
    try:
        pid = ticker_of(worker)
    except StopIteration:
        return 0
    return pid if is_alive(pid) else 0


def own_backends(pid: int, parent: int) -> set[int]:
    """The server's processes behind the connections that a ticker has opened itself; a fork leaves it others too."""
    ports = [port for socket, port in ports_of(pid).items() if socket not in ports_of(parent)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE client_port = ANY(%s)", [ports])
        return {int(backend) for (backend,) in cursor.fetchall()}


def ports_of(pid: int) -> dict[str, int]:
    """Inode -> local port of each socket that a process has open, from /proc."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9]: int(row[1].partition(":")[2], 16) for row in rows if row[9] in inodes}
