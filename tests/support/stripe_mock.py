"""A payment provider that we did not write: npm's stripe-stateful-mock, as a process.

Owns its installation, into a folder under `.data/` that git ignores, and its life. Where node or npm is missing the
test fails and says what to install; DURABLEFLOWS_SKIP_FOREIGN=1 skips instead, for a machine that cannot have them.
"""

import fcntl
import hashlib
import os
import selectors
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SKIP_VARIABLE = "DURABLEFLOWS_SKIP_FOREIGN"

_SOURCE = Path(__file__).parent / "stripe_mock"
_CACHE = Path(__file__).parents[2] / ".data" / "stripe_mock"
_START_SECONDS = 60.0


@contextmanager
def foreign_stripe() -> Iterator[str]:
    """The address of a running mock with empty books."""
    if os.environ.get(SKIP_VARIABLE) == "1":
        pytest.skip(f"{SKIP_VARIABLE}=1")
    command = [_program("node"), str(_SOURCE / "server.js")]
    process = subprocess.Popen(command, cwd=_installed(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            port = process.stdout.readline().strip() if selector.select(_START_SECONDS) else ""
        assert port, f"the foreign mock did not start within {_START_SECONDS} s"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def _installed() -> Path:
    """Install what package-lock.json names, once for each content of it; test runs side by side wait for each other."""
    lock_file = (_SOURCE / "package-lock.json").read_bytes()
    folder = _CACHE / hashlib.sha256(lock_file).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder)
            (folder / "complete").touch()
    return folder


def _install(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_SOURCE / name, folder / name)
    command = [_program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.fail(f"npm could not install the foreign payment mock: {done.stderr[-2000:]}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name} is not installed. The payment gateway is also tested against a provider that others wrote, which"
            " runs on Node.js: apt-get install -y nodejs npm (or brew install node)."
            f" {SKIP_VARIABLE}=1 does without."
        )
    return found
