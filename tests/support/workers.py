"""Real Celery workers as processes, on the test's own database and broker, for tests that kill them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 40.0


def wait_for(fact: Callable[[], T], *, seconds: float, what: str) -> T:
    """Wait until `fact` is true, and give it. Fails with what was waited for.

    Looks often at first, and then less: whoever waits for a minute must not take the processor from what is waited for.
    """
    began = time.monotonic()
    while True:
        value = fact()
        if value:
            return value
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02 if waited < 0.5 else 0.05)


class Fleet:
    """Workers that a test starts, stops, kills and looks into."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "DATABASE_URL": database_url(),
            "CUSTOMER_OPS_DATA": str(folder),
            "DJANGO_SECRET_KEY": settings.SECRET_KEY,
            **environment,
        }

    def start(self, *, children: int = 2, pool: str = "prefork") -> subprocess.Popen[bytes]:
        """Start a worker and wait until its ticker has registered it."""
        worker = self.launch(children=children, pool=pool)
        number = len(self.workers)
        wait_for(lambda: self._is_up(worker, number), seconds=START_SECONDS, what=f"worker {number} to come up")
        return worker

    def launch(self, *, children: int = 2, pool: str = "prefork") -> subprocess.Popen[bytes]:
        """Start a worker and do not wait for it."""
        number = len(self.workers) + 1
        command = [sys.executable, "-m", "tests.support.bare_celery", "-A", "customer_ops", "worker", "-l", "info"]
        command += ["-c", str(children), "-P", pool]
        with (self.folder / f"worker{number}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*command, "-n", f"w{number}-{os.getpid()}@test"],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def _is_up(self, worker: "subprocess.Popen[bytes]", number: int) -> bool:
        from durableflows.models import Worker

        if worker.poll() is not None:
            raise AssertionError(f"worker {number} ended:\n{self.log(number)[-3000:]}")
        return " ready." in self.log(number) and Worker.objects.filter(pid=worker.pid, stopped_at=None).exists()

    def log(self, number: int) -> str:
        """What a worker has printed."""
        return (self.folder / f"worker{number}.log").read_text(errors="replace")

    def kill(self, worker: "subprocess.Popen[bytes]") -> None:
        """SIGKILL a worker with its children and its ticker at once, as a machine that is gone."""
        pids = [worker.pid, *descendants(worker.pid)]
        for pid in pids:  # frozen first: no ticker may notice that its parent is gone
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait(10)

    def stop(self) -> None:
        """End everything."""
        for worker in self.workers:
            if worker.poll() is None:
                self.kill(worker)


def descendants(pid: int) -> list[int]:
    """The processes below one, from /proc."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *descendants(child)]
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pool_children(worker: "subprocess.Popen[bytes]") -> list[int]:
    """A worker's pool children: what works on steps, the ticker left out."""
    return [pid for pid in _children(worker.pid) if "ticker" not in _command(pid)]


def ticker_of(worker: "subprocess.Popen[bytes]") -> int:
    """A worker's ticker."""
    return next(pid for pid in _children(worker.pid) if "ticker" in _command(pid))


def is_alive(pid: int) -> bool:
    """Does the process run? One that is dead and not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def database_url() -> str:
    """The address of the database that this test uses."""
    values: dict[str, Any] = connection.settings_dict
    return f"postgresql://{values['USER']}:{values['PASSWORD']}@{values['HOST']}:{values['PORT']}/{values['NAME']}"


@contextlib.contextmanager
def fleet(folder: Path, **environment: str) -> Iterator[Fleet]:
    """Workers for one test; all are gone at its end."""
    ships = Fleet(folder, **environment)
    try:
        yield ships
    finally:
        ships.stop()
