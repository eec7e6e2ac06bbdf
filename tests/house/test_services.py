"""`python -m tests.services`: what it starts it stops, what it is told it passes on, what it lacks it says."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services import free_port, running_redis

ROOT = Path(__file__).resolve().parents[2]
NAMED = {"DATABASE_URL": "postgresql://named/database", "CELERY_BROKER_URL": "redis://named"}
ANNOUNCE = "echo $DATABASE_URL; echo $CELERY_BROKER_URL; exec sleep 60"


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in NAMED}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.services", "--", *command],
        cwd=ROOT, env=inherited | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_listening(address: str) -> bool:
    parts = urlsplit(address)
    with socket.socket() as client:
        return client.connect_ex((parts.hostname or "", parts.port or 0)) == 0


def test_addresses_that_are_named_are_used_as_they_are_and_the_exit_code_comes_back():
    process = start("sh", "-c", "echo $DATABASE_URL $CELERY_BROKER_URL; exit 7", **NAMED)

    output, _ = process.communicate(timeout=30)

    assert output.split() == list(NAMED.values())
    assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_the_servers_end(number: signal.Signals):
    process = start("sh", "-c", ANNOUNCE)
    assert process.stdout is not None
    addresses = [process.stdout.readline().strip() for _ in range(2)]
    assert [urlsplit(address).scheme for address in addresses] == ["postgresql", "redis"]
    assert all(is_listening(address) for address in addresses)

    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == 128 + number
    assert not any(is_listening(address) for address in addresses)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_servers_and_command_end_when_the_helper_is_killed():
    process = start("sh", "-c", ANNOUNCE)
    assert process.stdout is not None
    addresses = [process.stdout.readline().strip() for _ in range(2)]

    process.kill()
    process.communicate(timeout=30)  # ends when the command, which holds the pipe too, has ended

    assert eventually_silent(addresses)
    remove_folders_of(addresses)


def remove_folders_of(addresses: list[str]) -> None:
    """What nobody was left to remove: the folders whose log names these ports."""
    for log in Path("/tmp" if os.geteuid() == 0 else tempfile.gettempdir()).glob("durableflows-*/log"):
        text = log.read_text(errors="replace")
        if any(str(urlsplit(address).port) in text for address in addresses):
            shutil.rmtree(log.parent, ignore_errors=True)


def eventually_silent(addresses: list[str]) -> bool:
    end = time.monotonic() + 10
    while any(is_listening(address) for address in addresses):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_missing_server_is_an_error_that_says_what_to_install():
    process = start("true", PATH="/nonexistent", DATABASE_URL=NAMED["DATABASE_URL"])

    output, errors = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "apt-get install redis-server" in errors
    assert "CELERY_BROKER_URL" in errors
    assert "Traceback" not in output + errors


def test_a_command_that_is_missing_is_named():
    process = start("no-such-command", **NAMED)

    _, errors = process.communicate(timeout=30)

    assert process.returncode == 127
    assert "no-such-command" in errors


def test_redis_can_come_back_at_the_same_place():
    port = free_port()
    for _ in range(2):
        with running_redis(port=port) as address:
            assert is_listening(address)
        assert not is_listening(address)
