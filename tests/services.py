"""Throwaway PostgreSQL and Redis for one command: `python -m tests.services -- COMMAND...`.

Owns the life of both servers: what DATABASE_URL or CELERY_BROKER_URL already names is used as it is, what is missing is
started in a temporary folder on a free port of 127.0.0.1 and stopped at the end, also after Ctrl-C or TERM. Called by
`make test` and by tests that must stop a server of their own. It never skips: a missing binary is an error.

A PostgreSQL of ours is killed and started again on USR1 (tests/support/outages.py): the command finds our process id in
POSTGRES_SUPERVISOR_PID, which is empty when DATABASE_URL named somebody else's server.
"""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

DATABASE = "durableflows"
SUPERVISOR = "POSTGRES_SUPERVISOR_PID"
START_SECONDS = 60.0
POSTGRES_PROGRAMS = ("initdb", "postgres", "createdb", "pg_isready")
POSTGRES_MISSING = (
    "PostgreSQL is not installed: initdb, postgres, createdb and pg_isready are neither together on PATH nor in "
    "/usr/lib/postgresql/*/bin. Install it (Debian: apt-get install postgresql · macOS: brew install postgresql), "
    "or set DATABASE_URL to a server where databases may be created."
)
REDIS_MISSING = (
    "Redis is not installed: redis-server is not on PATH. Install it (Debian: apt-get install redis-server · "
    "macOS: brew install redis), or set CELERY_BROKER_URL."
)
# Nothing here outlives the command, so nothing has to reach the disk.
POSTGRES_OPTIONS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=200")


class ServiceError(Exception):
    """A server cannot be had; the message says what to do."""


@contextmanager
def running_services() -> Iterator[dict[str, str]]:
    """Both addresses, by the names of their environment variables, and who restarts the database, if anybody may."""
    with ExitStack() as stack:
        foreign = os.environ.get("DATABASE_URL", "")
        postgres = foreign or stack.enter_context(running_postgres())
        redis = os.environ.get("CELERY_BROKER_URL") or stack.enter_context(running_redis())
        supervisor = "" if foreign else str(os.getpid())
        yield {"DATABASE_URL": postgres, "CELERY_BROKER_URL": redis, SUPERVISOR: supervisor}


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of an empty database in a cluster of its own, which USR1 to this process restarts."""
    binaries = _postgres_binaries()
    with _folder() as folder:
        data, port = folder / "data", free_port()
        _run(
            [binaries / "initdb", "-D", data, "-U", DATABASE, "-A", "trust", "-E", "UTF8", "--no-sync", *_locale()],
            folder,
        )
        command: list[str | Path] = [binaries / "postgres", "-D", data, "-k", folder]
        command += ["-h", "127.0.0.1", "-p", str(port)]
        command += [f"--{option}" for option in POSTGRES_OPTIONS]
        server = ["-h", "127.0.0.1", "-p", str(port), "-U", DATABASE]
        is_ready = partial(_succeeds, [binaries / "pg_isready", *server], folder)
        with _running(command, folder=folder, ready=is_ready) as running, _restarted_on_usr1(running):
            _run([binaries / "createdb", *server, DATABASE], folder)
            yield f"postgresql://{DATABASE}@127.0.0.1:{port}/{DATABASE}"


@contextmanager
def running_redis(*, port: int | None = None) -> Iterator[str]:
    """The address of an empty Redis that keeps nothing; a test that restarts one names the port."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServiceError(REDIS_MISSING)
    port = port or free_port()
    with _folder() as folder:
        command: list[str | Path] = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        command += ["--save", "", "--appendonly", "no"]
        with _running(command, folder=folder, ready=lambda: _answers_ping(port)):
            yield f"redis://127.0.0.1:{port}/0"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _postgres_binaries() -> Path:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    for folder in folders:
        if all((folder / program).exists() for program in POSTGRES_PROGRAMS):
            return folder
    raise ServiceError(POSTGRES_MISSING)


def _version(binaries: Path) -> float:
    try:
        return float(binaries.parent.name)
    except ValueError:
        return 0.0


def _locale() -> list[str]:
    return ["--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that belongs to the user the servers run as (and lies where that user can reach it)."""
    folder = Path(tempfile.mkdtemp(prefix="durableflows-", dir="/tmp" if os.geteuid() == 0 else None))
    try:
        if identity := _identity():
            os.chown(folder, identity["user"], identity["group"])
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _identity() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: how Popen becomes somebody else there, and nothing for everybody else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServiceError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: add one.")


def _run(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **_identity())
    if done.returncode != 0:
        raise ServiceError(f"{Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")


def _succeeds(command: Sequence[str | Path], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, **_identity()).returncode == 0


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class _Server:
    """A server process. In a session of its own: Ctrl-C must reach the command first."""

    def __init__(self, command: Sequence[str | Path], *, folder: Path, ready: Callable[[], bool]) -> None:
        self._command, self._folder, self._ready = command, folder, ready
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for its first answer."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_by_sigquit_with_parent,  # noqa: PLW1509 - no thread runs here
                **_identity(),
            )
        end = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                what = Path(self._command[0]).name
                raise ServiceError(f"{what} did not start:\n{self._log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once, as a crash would; PostgreSQL recovers from its log when it starts again."""
        if self._process is None:
            return
        is_postgres = Path(self._command[0]).name == "postgres"
        self._process.send_signal(signal.SIGQUIT if is_postgres else signal.SIGKILL)
        self._process.wait()


@contextmanager
def _running(command: Sequence[str | Path], *, folder: Path, ready: Callable[[], bool]) -> Iterator[_Server]:
    """The server, from its first answer to its end."""
    server = _Server(command, folder=folder, ready=ready)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def _restarted_on_usr1(server: _Server) -> Iterator[None]:
    def restart(number: int, frame: FrameType | None) -> None:
        server.stop()
        server.start()

    before = signal.signal(signal.SIGUSR1, restart)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _end_by_sigquit_with_parent() -> None:
    _end_with_parent(signal.SIGQUIT)  # PostgreSQL's immediate stop


def _end_by_sigterm_with_parent() -> None:
    _end_with_parent(signal.SIGTERM)


def _end_with_parent(number: int) -> None:
    """Linux: whoever we started ends even when we are killed without a word (1 is PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)


class _Command:
    """The command, and where signals go: before it starts they end us, while it runs they are passed on to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._received: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def run(self, command: Sequence[str], *, environment: Mapping[str, str]) -> int:
        """Run it to its end; its exit code, or 128 + the signal that ended it."""
        self._is_starting = True
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                preexec_fn=_end_by_sigterm_with_parent,  # noqa: PLW1509 - no thread runs here
            )
        except OSError as error:
            print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        for number in self._received:
            self._process.send_signal(number)
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """From here on the servers are being stopped: that takes a moment and must not be cut short."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self._process is not None:
            if number != signal.SIGINT or not _is_foreground():
                self._process.send_signal(number)
        elif self._is_starting:
            self._received.append(number)
        else:
            self.end()
            raise SystemExit(128 + number)


def _is_foreground() -> bool:
    """Whether Ctrl-C comes from the terminal, which has told the command too: twice would cut its cleaning short."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def main(arguments: Sequence[str]) -> int:
    """Run the command between the two servers' start and end."""
    words = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not words:
        print("usage: python -m tests.services -- COMMAND...", file=sys.stderr)
        return 2
    command = _Command()
    try:
        with running_services() as addresses:
            try:
                return command.run(words, environment=os.environ | addresses)
            finally:
                command.end()
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
