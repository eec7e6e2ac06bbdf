"""Processes that are started, watched, and ended in the reverse order. Each writes a log into the demo's folder."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from customer_ops.demo.place import ROOT, SIGNED_WITH, CannotStart, Place

T = TypeVar("T")

START_SECONDS = 60.0
END_SECONDS = 9.0  # all of them together; an idle worker on the folder broker takes up to 8
LAST_SECONDS = 0.5
PR_SET_PDEATHSIG = 1
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Ctrl-C, TERM, or a terminal that was closed: end in good order."""


def wait_until(fact: Callable[[], T], *, seconds: float, what: str) -> T:
    """Wait for a fact and give it. Raises TimeoutError naming what was waited for."""
    stop_at = time.monotonic() + seconds
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > stop_at:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


class Child:
    """One process of the demo.

    `ready`: what it prints when others may rely on it. `stdin`: subprocess.PIPE for one that ends when its standard
    input is closed. `settings`: environment variables for it alone. An observer may end, and the others go on.
    """

    is_observer = False

    def __init__(
        self,
        name: str,
        command: list[str],
        place: Place,
        *,
        ready: str = "",
        stdin: int = subprocess.DEVNULL,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, place.folder / "logs" / f"{name}.log"
        self._ready = ready
        self.is_missed = True  # until we end it ourselves: nobody else should
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._starts_at = output.tell()
            self.process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=ROOT,
                env=place.environment() | dict(settings or {}),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which ends its processes in order
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call into the kernel, before exec
            )

    @property
    def is_alive(self) -> bool:
        """Does it run?"""
        return self.process.poll() is None

    def output(self) -> str:
        """What it has printed since this start."""
        with self.log.open("rb") as log:
            log.seek(self._starts_at)
            return log.read().decode(errors="replace")

    def ending(self) -> str:
        """Say that it ended, with its last lines."""
        tail = "\n".join(self.output().splitlines()[-15:])
        return f"{self.name} ended with code {self.process.returncode}:\n{tail}\n({self.log})"

    def wait_until_ready(self) -> None:
        """Wait until it says that it is ready. Raises CannotStart with its last lines when it ends before."""
        self.wait_for_output(self._ready)

    def wait_for_output(self, text: str) -> None:
        """Wait until it has printed a text. Raises CannotStart with its last lines when it ends before."""

        def printed() -> bool:
            if not self.is_alive:
                raise CannotStart(self.ending())
            return text in self.output()

        try:
            wait_until(printed, seconds=START_SECONDS, what=f"{self.name} to start")
        except TimeoutError as late:
            raise CannotStart(f"{late}; see {self.log}") from None

    def end(self, *, seconds: float = END_SECONDS) -> None:
        """End it with all below it: in good order, and by force what is left after that time."""
        self.is_missed = False
        stop_at = time.monotonic() + seconds
        family = descendants(self.process.pid) if self.is_alive else []
        self.process.terminate()
        try:
            self.process.wait(seconds)
            while any(map(_is_there, family)) and time.monotonic() < stop_at:  # the ticker goes last, by design
                time.sleep(0.02)
        except subprocess.TimeoutExpired:
            self.kill_family()
        for pid in filter(_is_there, family):
            _signal(pid, signal.SIGKILL)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def kill_family(self) -> None:
        """SIGKILL it with everything below it at once, as a machine that is gone."""
        self.is_missed = False
        _signal(self.process.pid, signal.SIGSTOP)  # frozen first: none may notice that another is gone, or be replaced
        family = [self.process.pid, *descendants(self.process.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                _signal(pid, number)
        self.process.wait()


def _end_with_parent() -> None:
    """Ask Linux to end this process when the demo is gone, however it went."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_there(pid: int) -> bool:
    """Does the process run? One that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """The processes below one; empty where there is no /proc."""
    try:
        children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [below for child in children for below in (child, *descendants(child))]


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let Ctrl-C, TERM and a closed terminal raise Stopped in the block, once: an impatient second one is ignored."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        _ignore_stops()
        raise Stopped

    for number in STOPS:
        signal.signal(number, stop)
    yield


@contextlib.contextmanager
def ended_in_order() -> Iterator[list[Child]]:
    """A list for the demo's processes, which are ended in reverse order when the block is left, whatever the reason."""
    children: list[Child] = []
    try:
        yield children
    finally:
        _ignore_stops()  # nothing may leave processes behind
        stop_at = time.monotonic() + END_SECONDS
        for child in reversed(children):
            child.end(seconds=max(stop_at - time.monotonic(), LAST_SECONDS))


def _ignore_stops() -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def manage(place: Place, *arguments: str) -> None:
    """Run a management command to its end. Raises CannotStart with its words when it fails."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_end_with_parent,
    )
    if done.returncode != 0:
        raise CannotStart(f"manage.py {arguments[0]} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")


# The parts of a demo. Each is added to the list before anybody waits for it, so that one that hangs is ended too.


def start_sandbox(place: Place, children: list[Child]) -> Child:
    """Start the payment provider, and wait until it answers."""
    child = begin_sandbox(place, children)
    child.wait_until_ready()
    return child


def start_mailbox(place: Place, children: list[Child]) -> Child:
    """Start the mail server that keeps what it takes, and wait until it takes mail."""
    child = begin_mailbox(place, children)
    child.wait_until_ready()
    return child


def start_worker(place: Place, children: list[Child]) -> Child:
    """Start a Celery worker with its ticker, and wait until it takes tasks."""
    child = begin_worker(place, children)
    child.wait_until_ready()
    return child


def begin_sandbox(place: Place, children: list[Child]) -> Child:
    """Start the payment provider."""
    command = [sys.executable, "-m", "customer_ops.sandbox", f"--port={place.ports.payments}", f"--books={place.books}"]
    ends = [*command, f"--webhook-url={place.events_url}", f"--webhook-secret={SIGNED_WITH}", "--end-with-stdin"]
    children.append(Child("payments", ends, place, ready='"url"', stdin=subprocess.PIPE))
    return children[-1]


def begin_mailbox(place: Place, children: list[Child]) -> Child:
    """Start the mail server."""
    command = [sys.executable, "-m", "customer_ops.mailbox", f"--smtp-port={place.ports.smtp}", f"--desk={place.url}/"]
    places = [f"--page-port={place.ports.mails}", f"--folder={place.mailbox}", f"--script={place.mail_script}"]
    children.append(Child("mails", [*command, *places], place, ready="mails for smtp"))
    return children[-1]


def begin_worker(place: Place, children: list[Child]) -> Child:
    """Start a worker."""
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", "worker", "-c", "2", "-l", "info"]
    name = f"demo-{place.ports.web}-{time.monotonic_ns()}@%h"
    children.append(Child("worker", [*command, "-n", name], place, ready=" ready."))
    return children[-1]


def begin_web(place: Place, children: list[Child]) -> Child:
    """Start the web pages."""
    command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.ports.web}"]
    children.append(Child("web", command, place, ready="Quit the server"))
    return children[-1]
