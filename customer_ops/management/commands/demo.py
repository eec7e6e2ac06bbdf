"""`manage.py demo`: the whole product on this machine, in one command. `--check` plays its main stories unattended.

The command starts itself anew with the demo's environment, so that it has the same settings as the processes it starts.
"""

import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from customer_ops.demo import place, processes, report, servers
from customer_ops.demo.place import ROOT, CannotStart, Place

MARK = "CUSTOMER_OPS_DEMO"
PASSWORD = "demo-password"  # noqa: S105 - printed on the screen, for pages that only this machine can reach
QUEUE = "durableflows-demo"  # a broker that is shared with another project keeps that one's messages
QUICK = {
    "PAYMENTS_TIMEOUT_SECONDS": "5",
    "PAYMENTS_SETTLE_SECONDS": "10",
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
    port = place.free_port() if check else place.read_port()
    place.check_port(port)
    servers.require()
    settings = QUICK | APART | servers.own() if check else {"CELERY_TASK_DEFAULT_QUEUE": QUEUE}
    here = Place(_folder(check=check), port, place.free_port(), settings)
    environment = here.environment() | {MARK: f"{here.port} {here.sandbox_port}"}
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *(["--check"] if check else [])]
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell: our own command again


def _folder(*, check: bool) -> Path:
    if check:
        return Path(tempfile.mkdtemp(prefix="durableflows-demo-"))
    folder = Path(os.environ.get("CUSTOMER_OPS_DATA") or ROOT / ".data" / "demo").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _read_place() -> Place:
    port, sandbox_port = (int(text) for text in os.environ[MARK].split())
    return Place(Path(os.environ["CUSTOMER_OPS_DATA"]), port, sandbox_port, {})


def _run(here: Place) -> int:
    try:
        with processes.stopped_by_signals(), processes.ended_in_order() as children:
            print("preparing: database, payment provider, shop …", flush=True)
            processes.manage(here, "migrate", "--verbosity=0")
            processes.start_sandbox(here, children)
            processes.manage(here, "seed_demo", f"--password={PASSWORD}")
            processes.start_worker(here, children)
            processes.start_web(here, children)
            print(_welcome(here), flush=True)
            _watch(children)
    except processes.Stopped:
        print("stopped", flush=True)
    return 0


def _watch(children: list[processes.Child]) -> NoReturn:
    """Wait until a process of the demo ends by itself, which it should not."""
    while True:
        for child in children:
            if not child.is_alive:
                raise CannotStart(child.ending())
        time.sleep(0.5)


def _welcome(here: Place) -> str:
    return f"""
  Support desk     {here.url}/          log in as agent
  Decisions        {here.url}/admin/    log in as manager (refunds above USD 500.00), director or admin
  Password         {PASSWORD}
  Payment provider {here.payments_url}  with its own books
  Mail, logs       {here.folder / "mail"}, {here.folder / "logs"}

  Try: as agent, refund part of an order under USD 500.00 and reload its page. Then one above: it waits for a manager,
  who finds it in the admin under "Approval requests". Kill any process in between, with -9 too: the demo ends, and
  `make demo` goes on where it was. Nothing is lost or paid twice.

  Ctrl-C stops everything; `make demo` starts again on the same data."""
