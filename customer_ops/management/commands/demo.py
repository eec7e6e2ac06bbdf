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

from customer_ops.demo import cases, flower, parts, place, processes, report, servers
from customer_ops.demo.place import ROOT, CannotStart, Place, Ports
from customer_ops.sandbox.control import SandboxControl

MARK = "CUSTOMER_OPS_DEMO"
PASSWORD = "demo-password"  # noqa: S105 - printed on the screen, for pages that only this machine can reach
QUEUE = "durableflows-demo"  # a broker that is shared with another project keeps that one's messages
QUICK = {
    "PAYMENTS_TIMEOUT_SECONDS": "5",
    "PAYMENTS_SETTLE_SECONDS": "10",
    "TICKETS_TIMEOUT_SECONDS": "5",
    "TICKETS_SETTLE_SECONDS": "10",
    "DURABLEFLOWS_STALE_SECONDS": "6",
}
# A check reports the deaths that it causes to nobody, and speaks plain HTTP with this machine.
APART = {"SENTRY_DSN": "", "SECURE": "", "SANDBOX_FAULT_RATE": "0"}


FIRST = """
  Three refunds are there already: of order R-1004, which is paid; of R-1008, whose answer got lost after the money
  had moved, so that it is asked again under the same key; of R-1023, which waits for a manager.
"""


class Command(BaseCommand):
    """Run the demo until Ctrl-C, or play its stories."""

    help = "Runs web pages, a worker, a payment provider, a mail server and Flower on this machine. Ctrl-C stops all."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="play the main stories unattended and say what held")

    def handle(self, *, check: bool, **options: Any) -> None:
        try:
            if MARK not in os.environ:
                _start_anew(check=check)
            here = Place(Path(os.environ["CUSTOMER_OPS_DATA"]), Ports.read(os.environ[MARK]))
            sys.exit(report.play(here) if check else _run(here))
        except CannotStart as error:
            raise CommandError(str(error)) from None


def _start_anew(*, check: bool) -> NoReturn:
    """Become the demo: the same command, in the demo's own environment."""
    ports = place.free_ports() if check else _chosen_ports()
    servers.require()
    settings = QUICK | APART | servers.own() if check else {"CELERY_TASK_DEFAULT_QUEUE": QUEUE}
    here = Place(_folder(check=check), ports, settings)
    environment = here.environment() | {MARK: str(ports)}
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *(["--check"] if check else [])]
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell: our own command again


def _chosen_ports() -> Ports:
    port = place.read_port()
    place.check_port(port)
    return place.near_ports(port)


def _folder(*, check: bool) -> Path:
    if check:
        return Path(tempfile.mkdtemp(prefix="durableflows-demo-"))
    folder = Path(os.environ.get("CUSTOMER_OPS_DATA") or ROOT / ".data" / "demo").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(here: Place) -> int:
    try:
        with processes.stopped_by_signals(), processes.ended_in_order() as children:
            print("preparing: database, payment provider, mail server, shop …", flush=True)
            parts.start(here, children, password=PASSWORD)
            is_new = cases.ask(SandboxControl(here.payments_url))
            print(_welcome(here, FIRST if is_new else ""), flush=True)
            _watch(children)
    except processes.Stopped:
        print("stopped", flush=True)
    return 0


def _watch(children: list[processes.Child]) -> NoReturn:
    """Wait until a process of the demo ends by itself, which it should not. One that only observes is no reason."""
    while True:
        for child in list(children):
            if not child.is_alive:
                if not child.is_observer:
                    raise CannotStart(child.ending())
                children.remove(child)
                print(f"{child.ending()}\nNothing depends on it: the workflows go on.", flush=True)
        time.sleep(0.5)


def _welcome(here: Place, first: str) -> str:
    flower_address = f"{here.flower_url}/" if flower.is_installed() else "not installed"
    rows = (
        ("Support desk", f"{here.url}/", "as agent"),
        ("Decisions", f"{here.url}/durableflows/inbox/", "as manager (refunds above USD 500.00), director or admin"),
        ("Runs", f"{here.url}/durableflows/runs/", "as manager, to look; as director or admin, to act"),
        ("Admin", f"{here.url}/admin/", "as manager, director or admin"),
        ("Step tasks", flower_address, f"as {flower.NAME}, in Flower"),
        ("Mails", f"{here.mails_url}/", "no log-in: what went out to customers"),
        (
            "Providers",
            here.payments_url,
            "payments and a help desk: APIs with books of their own, for the worker's key only",
        ),
    )
    width = max(len(address) for _, address, _ in rows)
    lines = "\n".join(f"  {name:<17}{address:<{width}}  {who}" for name, address, who in rows)
    return f"""
{lines}
  {"Password":<17}{PASSWORD}
  {"Logs":<17}{here.folder / "logs"}
{first}
  Try: as agent, refund part of an order under USD 500.00 and reload its page. Then one above: it waits for a manager,
  who finds it in the inbox and by a mail, may approve less, or asks you something first. Kill any process in between,
  with -9 too: the demo ends, and `make demo` goes on where it was; nothing is lost or paid twice. Flower only watches:
  without it all goes on.

  Ctrl-C stops everything; `make demo` starts again on the same data."""
