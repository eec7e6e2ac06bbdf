"""The demo's processes: started in order, watched, ended in the reverse order. Each writes a log into the folder."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from customer_ops.demo.place import ROOT, CannotStart, Place

T = TypeVar("T")

START_SECONDS = 60.0
END_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


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
    """One process of the demo."""

    def __init__(self, name: str, command: list[str], place: Place) -> None:
        self.name, self.log = name, place.folder / "logs" / f"{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._starts_at = output.tell()
            self.process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=ROOT,
                env=place.environment(),
                stdin=subprocess.DEVNULL,
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

    def tail(self, lines: int = 15) -> str:
        """Its last lines."""
        return "\n".join(self.output().splitlines()[-lines:])

    def wait_for_output(self, text: str) -> None:
        """Wait until it has printed a text. Raises CannotStart with its last lines when it ends before."""

        def printed() -> bool:
            if not self.is_alive:
                raise CannotStart(f"{self.name} ended with code {self.process.returncode}:\n{self.tail()}")
            return text in self.output()

        try:
            wait_until(printed, seconds=START_SECONDS, what=f"{self.name} to start")
        except TimeoutError as late:
            raise CannotStart(f"{late}; its last lines:\n{self.tail()}") from None

    def end(self) -> None:
        """End it in good order, and by force when it takes too long."""
        if not self.is_alive:
            return
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_family()

    def kill_family(self) -> None:
        """SIGKILL it with everything below it at once, as a machine that is gone."""
        family = [self.process.pid, *descendants(self.process.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # frozen first: none may notice that another is gone
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.process.wait()


def _end_with_parent() -> None:
    """Ask Linux to end this process when the demo is gone, however it went."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def descendants(pid: int) -> list[int]:
    """The processes below one; empty where there is no /proc."""
    try:
        children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [below for child in children for below in (child, *descendants(child))]


def start_sandbox(place: Place) -> Child:
    """Start the payment provider, and wait until it answers."""
    command = [sys.executable, "-m", "customer_ops.sandbox", f"--port={place.sandbox_port}", f"--books={place.books}"]
    child = Child("payments", command, place)
    child.wait_for_output('"url"')
    return child


def start_worker(place: Place, *, children: int = 2) -> Child:
    """Start a Celery worker with its ticker, and wait until it takes tasks."""
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", "worker", "-c", str(children), "-l", "info"]
    child = Child("worker", [*command, "-n", f"demo-{place.port}-{time.monotonic_ns()}@%h"], place)
    child.wait_for_output(" ready.")
    return child


def start_web(place: Place) -> Child:
    """Start the web pages, and wait until they are served."""
    command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.port}"]
    child = Child("web", command, place)
    child.wait_for_output("Quit the server")
    return child


def manage(place: Place, *arguments: str) -> None:
    """Run a management command to its end. Raises CannotStart with its words when it fails."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotStart(f"manage.py {arguments[0]} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
