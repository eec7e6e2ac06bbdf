"""The ticker: heartbeat and sweeps of one worker, in a process that outlives it.

A bootstep (`celery.py`) forks it from the worker's parent; `manage.py durableflows ticker` runs one alone. It runs
SQL and publishes, nothing else. It stops last: a draining worker keeps its leases, and when the parent is gone it
frees what the parent's children held, once they are seen dead (design, section 4; protocol, rule 14).
"""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connections

from durableflows import broker, clock, dispatch, draining, watching
from durableflows.conf import settings
from durableflows.core import log_lines, registry
from durableflows.core.keys import new_token
from durableflows.core.states import StepState
from durableflows.housekeeping import Record
from durableflows.leases import DRAINS_MARK, OVERRUN_MARK, Place
from durableflows.models import StepAttempt, StepRun, Worker
from durableflows.services import sweeps
from durableflows.transactions import database, first_line

logger = log_lines.logger("durableflows.ticker")

ORPHANS_DIE_WITHIN_SECONDS = 5.0
REPORTS_KEPT_SECONDS = 30.0
# A turn sends for so long at most: with a broker that answers slowly, freeing leases must not wait for its answers.
SENDING_SECONDS = 2.0
OUTAGE_PAUSE_SECONDS = 8.0
OUTAGE_SHARE = 0.25
LEAD_TURNS = 1.5
"""How old the last whole sweep of another ticker may be, in turns, to count on it for the next."""


class Pulse:
    """Whether this ticker has run without a gap long enough to call others dead.

    After a pause of our own (a stopped machine, a database that was away) everybody's heartbeat is old, and nobody
    is dead for that reason.
    """

    def __init__(self) -> None:
        self._since = self._last = time.monotonic()

    def beat(self) -> None:
        """Note a heartbeat that reached the database."""
        moment = time.monotonic()
        if moment - self._last > max(3 * settings().HEARTBEAT_SECONDS, 5.0):
            self._since = moment
        self._last = moment

    def is_steady(self) -> bool:
        """Has there been no gap for STALE_SECONDS?"""
        moment = time.monotonic()
        fresh = moment - self._last <= max(3 * settings().HEARTBEAT_SECONDS, 5.0)
        return fresh and moment - self._since >= settings().STALE_SECONDS


class Outage:
    """The database is away, for this process: said once, asked about less and less often, and said when it is back."""

    def __init__(self) -> None:
        self._since, self._turns = 0.0, 0

    def note(self, error: BaseException) -> None:
        """A turn has failed for it."""
        if not self._turns:
            self._since = time.monotonic()
            what = "is away" if isinstance(error, OperationalError | InterfaceError) else "cannot be used"
            logger.warning("the database %s, and is tried again: %s", what, first_line(error))
        self._turns += 1

    def over(self) -> None:
        """A turn went well."""
        if self._turns:
            logger.warning("the database is back after %.0f s", time.monotonic() - self._since)
        self._turns = 0

    def pause_seconds(self) -> float:
        """How much longer than usual to wait: both of a ticker's loops count turns, so this doubles every other one.

        A fraction of STALE_SECONDS at most. Another ticker may see the database first, and calls those dead that it has
        not heard of for so long since: a heartbeat that still paused then would cost a living worker its leases.
        """
        longest = min(OUTAGE_PAUSE_SECONDS, settings().STALE_SECONDS * OUTAGE_SHARE)
        return min(2.0 ** (self._turns / 2), longest) if self._turns else 0.0


_outage = Outage()


class Reports:
    """Celery task ids whose pool child is dead, as the worker's parent reports them through a pipe.

    `is_draining`: the parent was told to end.
    """

    def __init__(self, reader: int | None) -> None:
        self.is_draining = False
        self._reader, self._rest = reader, b""
        self._known: dict[str, float] = {}

    def wait(self, seconds: float) -> None:
        """Wait for a report, at most this long."""
        if self._reader is None:
            time.sleep(seconds)
            return
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if not ready:
            return
        data = os.read(self._reader, 65536)
        if not data:  # every writer is gone; the parent's end is noticed by its pid
            self._reader = None
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note(line.decode("ascii", "replace"))

    def _note(self, line: str) -> None:
        if line == DRAINS_MARK:
            self.is_draining = True
        else:
            self._known[line] = time.monotonic()

    def free(self) -> None:
        """Free the steps of reported tasks. Kept for a while: the dead child's transaction may still hold its rows."""
        oldest = time.monotonic() - REPORTS_KEPT_SECONDS
        self._known = {task: seen for task, seen in self._known.items() if seen > oldest}
        overran = [task.removeprefix(OVERRUN_MARK) for task in self._known if task.startswith(OVERRUN_MARK)]
        if overran:
            sweeps.free_overrun_tasks(overran)
        if len(self._known) > len(overran):
            sweeps.free_lost_tasks(task for task in self._known if not task.startswith(OVERRUN_MARK))


def run(place: Place, reader: int | None) -> None:
    """Tick until the parent is gone (or for ever, alone). Never raises: what fails is tried again."""
    pulse, stop, record = Pulse(), threading.Event(), Record()
    beats = threading.Thread(target=_beat_for_ever, args=(place, pulse, stop), name="heartbeat", daemon=True)
    beats.start()
    reports = Reports(reader)
    while not _is_orphan(place):
        with _surviving(), broker.at_most(SENDING_SECONDS):
            dead = sweeps.dead_processes(place.boot_id, is_alive)
            reports.wait(0.0)  # what is written before a process is ended is here, if the process is among the dead
            reports.free()
            if reports.is_draining or draining.is_on():
                _note_draining(place)
            # The report of a dead child takes the pool ten seconds where the broker has no event loop (a folder).
            sweeps.free_dead_processes(dead, place.boot_id, is_alive)
            sweep_in_turn(place, may_free_stale=pulse.is_steady(), record=record)
        reports.wait(settings().SWEEP_SECONDS + _outage.pause_seconds())
    stop.set()
    _bury(place)


def sweep_in_turn(place: Place, *, may_free_stale: bool, record: Record | None = None) -> None:
    """One ticker does everything that is due; the others, as long as it keeps to it, free leases alone.

    Safe with any number at once. With a hundred workers the database would else be asked a hundred times a second.

    record   of what this ticker has done in earlier turns
    """
    record = record or Record()
    rows = Worker.objects.using(database())
    counted_on = timedelta(seconds=LEAD_TURNS * settings().SWEEP_SECONDS)
    leads = rows.filter(swept_at__gt=clock.now() - counted_on, stopped_at=None).exclude(boot_id=place.boot_id)
    is_led = any(set(registry.known()) <= set(map(tuple, knows)) for knows in leads.values_list("knows", flat=True))
    if is_led:
        sweeps.sweep(may_free_stale=may_free_stale, leases_only=True)
    else:
        with _watched(record) as note:
            sweeps.sweep(may_free_stale=may_free_stale, leases_only=False, note=note)
        # One that cannot publish dates itself back: the others must not count on it to send what is due.
        now = clock.now()
        record.keep(place.boot_id, now, now if dispatch.is_open() else now - counted_on)


@contextlib.contextmanager
def _watched(record: Record) -> Iterator[Callable[[str, Exception | None], None]]:
    """Let watchers know that all that was due is done, or what failed first. Gives what each sweep is noted by."""
    began, failures = time.monotonic(), list[Exception]()

    def note(name: str, error: Exception | None) -> None:
        record.note(name, error)
        failures.extend([error] if error is not None else [])

    try:
        yield note
    except Exception as error:
        failures.append(error)
        raise
    finally:
        watching.swept(time.monotonic() - began, next(iter(failures), None))


def run_forever() -> None:
    """Be a ticker of one's own, beside workers that have none. Ends on TERM or Ctrl-C."""
    name = f"ticker@{socket.gethostname()}:{os.getpid()}"
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    place = Place(new_token(), name, 0, ())
    with contextlib.suppress(KeyboardInterrupt):
        run(place, None)
    with _surviving():
        Worker.objects.using(database()).filter(boot_id=place.boot_id).update(stopped_at=clock.now())


def register(place: Place) -> None:
    """Write the worker's row, or its heartbeat."""
    moment = clock.now()
    rows = Worker.objects.using(database()).filter(boot_id=place.boot_id)
    if rows.update(heartbeat_at=moment, stopped_at=None):
        return
    row = Worker(
        boot_id=place.boot_id,
        name=place.name,
        host=socket.gethostname(),
        pid=place.parent or os.getpid(),
        queues=list(place.queues),
        knows=[list(pair) for pair in registry.known()],
        started_at=moment,
        heartbeat_at=moment,
    )
    Worker.objects.using(database()).bulk_create([row], ignore_conflicts=True)


def _note_draining(place: Place) -> None:
    """For people who look: nothing else is decided by it."""
    row = Worker.objects.using(database()).filter(boot_id=place.boot_id, draining_at__isnull=True)
    row.update(draining_at=clock.now())


def _beat_for_ever(place: Place, pulse: Pulse, stop: threading.Event) -> None:
    """A loop of its own: a long sweep must not make a living worker look dead."""
    while not stop.is_set():
        with _surviving():
            register(place)
            pulse.beat()
        stop.wait(settings().HEARTBEAT_SECONDS + _outage.pause_seconds())


class _surviving(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Log what fails, drop broken connections, and go on."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            _outage.over()
            return False
        if not isinstance(error, Exception):
            return False
        if isinstance(error, DatabaseError | InterfaceError):
            _outage.note(error)
            connections[database()].close()
        else:
            logger.error("a tick failed; it is tried again", exc_info=error)
        close_old_connections()
        return True


def _is_orphan(place: Place) -> bool:
    return place.parent != 0 and os.getppid() != place.parent


def _bury(place: Place) -> None:
    """End the dead worker's children and free their leases; what cannot be seen dead waits for the stale heartbeat."""
    stop_at = time.monotonic() + ORPHANS_DIE_WITHIN_SECONDS
    while True:
        with _surviving():
            left = [pid for pid in _pids(place.boot_id) if _is_celery(pid)]
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                sweeps.free_worker(place.boot_id)
                if not StepRun.objects.using(database()).filter(lease_worker=place.boot_id).exists():
                    Worker.objects.using(database()).filter(boot_id=place.boot_id).update(stopped_at=clock.now())
                    return
        if time.monotonic() > stop_at:
            return
        time.sleep(0.1)


def _pids(boot_id: UUID) -> list[int]:
    """Pool children that hold leases of this worker, by the pid that their claim wrote down."""
    attempts = StepAttempt.objects.using(database()).filter(
        step__state=StepState.RUNNING, step__lease_worker=boot_id, ended_at__isnull=True
    )
    return [pid for pid in attempts.values_list("pid", flat=True) if pid]


def is_alive(pid: int) -> bool:
    """Does the process run? One that is dead and not yet collected by its parent does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's process, or no /proc here
        return True


def _is_celery(pid: int) -> bool:
    """Is the process there, and a Celery one? A pid that was given to another program is left alone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return b"celery" in command and status != "Z"
