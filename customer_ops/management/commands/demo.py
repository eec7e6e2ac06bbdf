"""`manage.py demo`: the whole product on this machine, in one command. `--check` plays its main stories unattended.

The command starts itself anew with the demo's environment, so that it has the same settings as the processes it starts.
"""

import os
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from customer_ops.demo import place, processes, report, servers
from customer_ops.demo.place import ROOT, CannotStart, Place

MARK = "CUSTOMER_OPS_DEMO"
PASSWORD = "demo-password"  # noqa: S105 - printed on the screen, for pages that only this machine can reach
QUEUE = "durableflows-demo"  # a broker that is shared with another project keeps that one's messages
QUICK = {
    "PAYMENTS_TIMEOUT_SECONDS": "3",
    "PAYMENTS_SETTLE_SECONDS": "8",
    "DURABLEFLOWS_STALE_SECONDS": "6",
}
# A check writes to nobody, reports the deaths that it causes to nobody, and speaks plain HTTP with this machine.
APART = {"EMAIL_HOST": "", "EMAIL_BACKEND": "", "SENTRY_DSN": "", "SECURE": "", "SANDBOX_FAULT_RATE": "0"}


class Command(BaseCommand):
    """Run the demo until Ctrl-C, or play its stories."""

    help = "Runs web pages, a worker and a payment provider on this machine. Ctrl-C stops all."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="play the main stories unattended and say what held")

    def handle(self, *, check: bool, **options: Any) -> None:
        try:
            if MARK not in os.environ:
                _start_anew(check=check)
            here = _read_place()
            sys.exit(report.play(here) if check else _run(here))
        except CannotStart as error:
            raise CommandError(str(error)) from None


def _start_anew(*, check: bool) -> NoReturn:
    """Become the demo: the same command, in the demo's own environment."""
    servers.require()
    if check:
        folder, port = Path(tempfile.mkdtemp(prefix="durableflows-demo-")), place.free_port()
        settings = QUICK | APART | servers.own()
    else:
        folder = Path(os.environ.get("CUSTOMER_OPS_DATA") or ROOT / ".data" / "demo").resolve()
        port, settings = place.read_port(), {"CELERY_TASK_DEFAULT_QUEUE": QUEUE}
        place.check_port(port)
    folder.mkdir(parents=True, exist_ok=True)
    here = Place(folder=folder, port=port, sandbox_port=place.free_port(), settings=settings)
    environment = here.environment() | {MARK: f"{here.port} {here.sandbox_port}"}
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *(["--check"] if check else [])]
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell: our own command again


def _read_place() -> Place:
    port, sandbox_port = (int(text) for text in os.environ[MARK].split())
    return Place(Path(os.environ["CUSTOMER_OPS_DATA"]), port, sandbox_port, {})


class _Stop(Exception):
    """TERM, as Ctrl-C: end in good order."""


def _run(here: Place) -> int:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stop

    signal.signal(signal.SIGTERM, stop)
    children: list[processes.Child] = []
    try:
        print("preparing: database, payment provider, shop …", flush=True)
        processes.manage(here, "migrate", "--verbosity=0")
        children.append(processes.start_sandbox(here))
        processes.manage(here, "seed_demo", f"--password={PASSWORD}")
        children += [processes.start_worker(here), processes.start_web(here)]
        print(_welcome(here), flush=True)
        _watch(children)
    except (KeyboardInterrupt, _Stop):
        print("\nstopping …", flush=True)
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        for child in reversed(children):
            child.end()


def _watch(children: list[processes.Child]) -> NoReturn:
    """Wait until a process of the demo ends by itself, which it should not."""
    while True:
        for child in children:
            if not child.is_alive:
                raise CannotStart(
                    f"{child.name} ended with code {child.process.returncode}:\n{child.tail()}\n({child.log})"
                )
        time.sleep(0.5)


def _welcome(here: Place) -> str:
    return f"""
  Support desk     {here.url}/          log in as agent
  Decisions        {here.url}/admin/    log in as manager (refunds above USD 500.00), director or admin
  Password         {PASSWORD}
  Payment provider {here.payments_url}  with its own books
  Mail, logs       {here.folder / "mail"}, {here.folder / "logs"}

  Try: as agent, refund part of an order under USD 500.00 and reload its page. Then one above: it waits for a manager,
  who finds it in the admin under "Approval requests". Kill the worker in between; nothing is lost or paid twice.

  Ctrl-C stops everything; `make demo` starts again on the same data."""
