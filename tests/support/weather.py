"""Bad weather for real workers: processes killed and stopped at random, the broker emptied and restarted, the database
restarted. What happens when comes from a seed; which process it hits is what the machine has just then.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.outages import RedisServer, may_restart_database, restart_database
from tests.support.workers import Fleet, descendants, pool_children, ticker_of

# Seconds between two of a kind, on average.
EVERY: dict[str, float] = {
    "kill child": 4,
    "stop child": 5,
    "kill worker": 30,
    "kill parent": 45,
    "stop worker": 30,
    "kill ticker": 40,
    "flush redis": 12,
    "restart redis": 35,
    "restart database": 35,
}
LONGEST_STOP_SECONDS = 12.0
"""Longer than a heartbeat may be late, and than an effect may be under way."""

Worker = subprocess.Popen[bytes]


class Weather:
    """Faults of one test. `turn` is called often; `clear` ends them and lets everything go on."""

    def __init__(self, ships: Fleet, redis: RedisServer, rng: random.Random, *, workers: int) -> None:
        self._ships, self._redis, self._rng, self._workers = ships, redis, rng, workers
        self._wakes: dict[int, float] = {}
        self.seen: Counter[str] = Counter()
        self.ends: list[str] = []
        self.left_out = [] if may_restart_database() else ["restart database"]
        self._kinds = {kind: every for kind, every in EVERY.items() if kind not in self.left_out}
        self._due = {kind: time.monotonic() + self._gap(kind) for kind in self._kinds}

    def _gap(self, kind: str) -> float:
        return self._kinds[kind] * self._rng.uniform(0.4, 1.6)

    def missing(self) -> list[str]:
        """Kinds of faults that have not happened yet."""
        return [kind for kind in self._kinds if not self.seen[kind]]

    def turn(self) -> None:
        """Do what is due: faults, ends of stops, and the supervisor's work."""
        self.tend()
        for kind, due in self._due.items():
            if time.monotonic() >= due:
                self._due[kind] = time.monotonic() + self._gap(kind)
                if getattr(self, "_" + kind.replace(" ", "_"))():
                    self.seen[kind] += 1

    def tend(self) -> None:
        """Start workers that are missing, as a supervisor does, and let go on what was stopped long enough."""
        for worker in self._living():
            if worker.poll() is not None:
                self.seen["worker ended by itself"] += 1
                log = self._ships.log(self._ships.workers.index(worker) + 1)
                self.ends.append(f"ended by itself with {worker.returncode}: {log[-1500:]}")
        for _ in range(self._workers - len(self._living())):
            self._ships.launch()
        self._note_stopped()
        for pid, wake_at in list(self._wakes.items()):
            if time.monotonic() >= wake_at:
                _signal(pid, signal.SIGCONT)
                del self._wakes[pid]

    def clear(self) -> None:
        """Let everything go on."""
        self._note_stopped()
        for pid in self._wakes:
            _signal(pid, signal.SIGCONT)
        self._wakes.clear()

    def _living(self) -> list[Worker]:
        return [worker for worker in self._ships.workers if worker.returncode is None]

    def _note_stopped(self) -> None:
        """Providers stop their own process now and then: it goes on after a while like the others."""
        for worker in self._living():
            for pid in descendants(worker.pid):
                if pid not in self._wakes and _state(pid) == "T":
                    self.seen["stopped in a call"] += 1
                    self._stop(pid)

    def _stop(self, pid: int, seconds: float | None = None) -> None:
        """For a moment, or now and then long enough to be called dead."""
        longest = LONGEST_STOP_SECONDS if self._rng.random() < 0.3 else 1.0
        _signal(pid, signal.SIGSTOP)
        self._wakes[pid] = time.monotonic() + (seconds or self._rng.uniform(0.1, longest))

    def _child(self, act: Callable[[int], None]) -> bool:
        children = [pid for worker in self._living() for pid in pool_children(worker) if pid not in self._wakes]
        if children:
            act(self._rng.choice(children))
        return bool(children)

    def _kill_child(self) -> bool:
        return self._child(lambda pid: _signal(pid, signal.SIGKILL))

    def _stop_child(self) -> bool:
        return self._child(self._stop)

    def _kill_worker(self) -> bool:
        self._ships.kill(self._rng.choice(self._living()))
        return True

    def _kill_parent(self) -> bool:
        """Only the parent: its children are orphans that its ticker ends."""
        worker = self._rng.choice(self._living())
        worker.kill()
        worker.wait(10)
        return True

    def _stop_worker(self) -> bool:
        worker = self._rng.choice(self._living())
        pids = [worker.pid, *descendants(worker.pid)]
        seconds = self._rng.uniform(1.0, LONGEST_STOP_SECONDS)
        for pid in pids:
            self._stop(pid, seconds)
        return True

    def _kill_ticker(self) -> bool:
        try:
            _signal(ticker_of(self._rng.choice(self._living())), signal.SIGKILL)
        except StopIteration:  # it has none yet, or none just now
            return False
        return True

    def _flush_redis(self) -> bool:
        self._redis.flush()
        return True

    def _restart_redis(self) -> bool:
        self._redis.restart()
        return True

    def _restart_database(self) -> bool:
        restart_database()
        return True


def strays(ships: Fleet, marker: str) -> list[int]:
    """Processes of the fleet (by a text in their environment) that belong to no living worker."""
    living = [worker for worker in ships.workers if worker.poll() is None]
    known = {pid for worker in living for pid in [worker.pid, *descendants(worker.pid)]}
    return [pid for pid in _marked(marker.encode()) if pid not in known]


def _marked(marker: bytes) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid() and _state(pid) not in ("Z", "")]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
