"""Start and steer the sandbox from a test or from the demo.

    with running_sandbox(books=tmp_path / "books.sqlite3") as sandbox:
        sandbox.fault("timeout_after", path="/v1/refunds")
        ...
        assert sandbox.books().refunds_of(key) == 1

Standard library only. Never part of production, and no way for the code under test to learn what it should find out.
"""

import json
import os
import selectors
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

START_SECONDS = 30.0


class SandboxError(Exception):
    """The sandbox refused an order, or could not be started or reached."""


@dataclass(frozen=True, slots=True)
class BooksView:
    """The books at one moment. `acts` are the proof: one entry each time money moved."""

    operations: list[dict[str, Any]]
    by_key: dict[str, int]
    by_metadata: dict[str, int]
    acts: list[dict[str, Any]]
    charges: list[dict[str, Any]]
    refunds: list[dict[str, Any]]
    tickets: list[dict[str, Any]]
    requests: list[dict[str, Any]]

    def refunds_of(self, key: str) -> int:
        """How many refunds were made for this operation, whatever header they came with."""
        return self.by_metadata.get(key, 0)

    def tickets_of(self, key: str) -> int:
        """How many tickets were opened for this operation, whatever header they came with."""
        return len([ticket for ticket in self.tickets if ticket["external_id"] == key])

    @property
    def refund_acts(self) -> list[dict[str, Any]]:
        """Each time money was given back."""
        return [act for act in self.acts if act["kind"] == "refund"]

    @property
    def repeated(self) -> list[dict[str, Any]]:
        """Operations that were acted on more than once: must be empty, always."""
        return [operation for operation in self.operations if operation["refunds"] > 1]

    def requests_to(self, path: str, *, method: str = "POST") -> list[dict[str, Any]]:
        """The log of one endpoint, oldest first."""
        return [request for request in self.requests if request["method"] == method and request["path"] == path]


class SandboxControl:
    """The control API of one sandbox. Give `control_url` when the provider's own port may be closed."""

    def __init__(self, url: str, control_url: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._control_url = (control_url or url).rstrip("/")

    def fault(self, kind: str, times: int = 1, **options: Any) -> None:
        """Order a fault for the next `times` matching requests; options are the fields of `faults.Fault`."""
        self._ask("POST", "faults", {"kind": kind, "times": times, **options})

    def fault_rate(self, rate: float, *, seed: int = 0, mix: dict[str, float] | None = None) -> None:
        """Let a share of the POST requests go wrong; 0 ends it."""
        self._ask("POST", "rate", {"rate": rate, "seed": seed, "mix": mix or {}})

    def faults(self) -> list[dict[str, Any]]:
        """Orders that were not used up."""
        return list(self._ask("GET", "faults")["faults"])

    def clear_faults(self) -> None:
        """Withdraw all orders."""
        self._ask("DELETE", "faults")

    def books(self) -> BooksView:
        """The books as they are now."""
        return BooksView(**self._ask("GET", "books"))

    def reset(self) -> None:
        """Empty books, no faults, nothing held, listening."""
        self._ask("POST", "reset")

    def settle(self, refund_id: str, status: str, *, failure_reason: str = "declined") -> dict[str, Any]:
        """End a refund as succeeded, failed or canceled, also one that had succeeded."""
        return self._ask("POST", "settle", {"refund": refund_id, "status": status, "failure_reason": failure_reason})

    def webhook(self, url: str, *, secret: str) -> None:
        """Tell events there from now on, and what was not told yet; '' ends it."""
        self._ask("POST", "webhook", {"url": url, "secret": secret})

    def event_fault(self, kind: str, times: int = 1, **options: Any) -> None:
        """Order a fault for the delivery of the next `times` events; options are the fields of `events.EventFault`."""
        self._ask("POST", "event_faults", {"kind": kind, "times": times, **options})

    def events(self) -> list[dict[str, Any]]:
        """All events, oldest first, with how far their delivery has come."""
        return list(self._ask("GET", "events")["events"])

    def wait_until_told(self, *, timeout_seconds: float = 10.0) -> None:
        """Wait until every event that can be delivered was taken."""
        wanted = {"timeout_seconds": timeout_seconds}
        if left := self._ask("GET", "untold", wanted)["untold"]:
            raise SandboxError(f"{len(left)} events were not taken within {timeout_seconds} s: {', '.join(left)}")

    def advance_clock(self, seconds: float) -> None:
        """Set the provider's clock ahead: keys grow old, pending refunds come due."""
        self._ask("POST", "clock", {"advance_seconds": seconds})

    def search_lag(self, seconds: float) -> None:
        """Let the search for tickets see only what is older than this."""
        self._ask("POST", "search_lag", {"seconds": seconds})

    def wait_until_held(self, count: int = 1, *, timeout_seconds: float = 5.0) -> list[str]:
        """Wait until `count` requests are held by a fault, and give their ids."""
        held = self._ask("GET", "held", {"at_least": count, "timeout_seconds": timeout_seconds})["held"]
        if len(held) < count:
            raise SandboxError(f"{len(held)} requests are held after {timeout_seconds} s, not {count}")
        return list(held)

    def wait_until_done(self, *, timeout_seconds: float = 5.0) -> None:
        """Wait until no request is under way at the provider, whether its client still waits or not."""
        if left := self._ask("GET", "under_way", {"timeout_seconds": timeout_seconds})["under_way"]:
            raise SandboxError(f"{len(left)} requests are under way after {timeout_seconds} s")

    def release(self) -> int:
        """Let all held requests go on."""
        return int(self._ask("POST", "release")["released"])

    def stop_listening(self, *, seconds: float | None = None) -> None:
        """Close the provider's port, for a time or until `listen`: connections are refused."""
        self._ask("POST", "listening", {"on": False, "seconds": seconds})

    def listen(self) -> None:
        """Open the provider's port again."""
        self._ask("POST", "listening", {"on": True})

    def _ask(self, method: str, name: str, order: dict[str, Any] | None = None) -> dict[str, Any]:
        url, data = f"{self._control_url}/_control/{name}", None
        if method == "GET":
            url += f"?{urlencode(order or {})}"
        else:
            data = json.dumps(order or {}).encode()
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - the address of our own sandbox
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine is never behind a proxy
        try:
            with opener.open(request, timeout=60) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                raise SandboxError(json.load(error)["error"]["message"]) from None
        except OSError as error:
            raise SandboxError(f"no sandbox at {self._control_url}: {error}") from error


class RunningSandbox(SandboxControl):
    """A sandbox process that this process started."""

    def __init__(self, process: "subprocess.Popen[str]", *, url: str, control_url: str) -> None:
        super().__init__(url, control_url)
        self.process = process

    def kill(self) -> None:
        """End it at once (SIGKILL), as a power cut would."""
        self.process.kill()
        _forget(self.process)

    def stop(self) -> None:
        """End it in good order."""
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        _forget(self.process)


def start_sandbox(*, books: Path, port: int = 0, **options: object) -> RunningSandbox:
    """Start the sandbox as a process and wait until it can be reached. Options are those of its command line.

    The process ends with the one that started it, even when that one is killed.
    """
    command = [sys.executable, "-m", "customer_ops.sandbox", f"--port={port}", f"--books={books}", "--end-with-stdin"]
    command += [_option(name.replace("_", "-"), value) for name, value in options.items()]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)  # noqa: S603 - our own module
    assert process.stdout is not None
    ready = _first_line(process.stdout)
    if not ready:
        process.kill()
        _forget(process)
        raise SandboxError(f"the sandbox did not start (exit code {process.returncode}); its own words are above")
    return RunningSandbox(process, **json.loads(ready))


@contextmanager
def running_sandbox(*, books: Path, port: int = 0, **options: object) -> Iterator[RunningSandbox]:
    """A sandbox for as long as the block lasts."""
    sandbox = start_sandbox(books=books, port=port, **options)
    try:
        yield sandbox
    finally:
        sandbox.stop()


def _forget(process: "subprocess.Popen[str]") -> None:
    """Wait for its end and close our ends of its pipes."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _first_line(stream: IO[str]) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(START_SECONDS) else ""
