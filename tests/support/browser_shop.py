"""The shop that browser tests visit, as processes: database, payment provider, worker, web pages.

Owns databases of its own on the server that DATABASE_URL names, so that rows stay committed for other processes and no
other test meets them. Processes are the demo's (`customer_ops.demo`), started with all of the product's own settings.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg2

from customer_ops.demo.place import Place, free_ports
from customer_ops.demo.processes import Child, begin_worker, manage, start_mailbox, start_sandbox
from customer_ops.sandbox.control import SandboxControl

PASSWORD = "a good password"
MONITOR_TOKEN = "monitors-of-the-tests"
QUEUE = "durableflows-browser"


@dataclass
class Shop:
    """One database with what was started on it. `place`: of its web pages."""

    place: Place
    sandbox: SandboxControl
    children: list[Child] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of the pages."""
        return self.place.url

    def run(self, *arguments: str) -> None:
        """Run a management command on this shop."""
        manage(self.place, *arguments)

    def make_rows(self, kind: str) -> dict[str, Any]:
        """Make people and rows (`browser_rows`), and say where they are."""
        self.run(
            "shell", "--verbosity=0", "--command", f"from tests.support import browser_rows as b; b.make({kind!r})"
        )
        made: dict[str, Any] = json.loads((self.place.folder / "rows.json").read_text(encoding="utf-8"))
        return made

    def begin_web(self, place: Place | None = None) -> Child:
        """Start pages without waiting for them; `place` for others than the shop's own."""
        place = place or self.place
        command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.ports.web}"]
        # A log of its own: several serve pages beside each other here.
        self.children.append(Child(f"web-{place.ports.web}", command, place, ready="Quit the server"))
        return self.children[-1]

    def begin_worker(self) -> Child:
        """Start a prefork worker with its ticker, without waiting for it."""
        return begin_worker(self.place, self.children)

    def end(self) -> None:
        """End all processes at once; nothing of them is needed afterwards."""
        for child in reversed(self.children):
            child.kill_family()


def other_web(place: Place, settings: Mapping[str, str]) -> Place:
    """The same place with web pages of its own, which have these settings besides."""
    return replace(place, ports=replace(place.ports, web=free_ports().web), settings={**place.settings, **settings})


@contextmanager
def running_outside(folder: Path) -> Iterator[tuple[Place, SandboxControl]]:
    """The payment provider and the mail server, and a place that knows both; its database has still to be named."""
    place = Place(folder, free_ports())
    children: list[Child] = []
    try:
        start_sandbox(place, children)
        start_mailbox(place, children)
        yield place, SandboxControl(place.payments_url)
    finally:
        for child in children:
            child.end(seconds=2)


@contextmanager
def database(name: str, *, template: str = "") -> Iterator[str]:
    """The address of a new database, which is dropped with whoever is still in it."""
    url = os.environ["DATABASE_URL"]
    own = f"durableflows_browser_{name}_{os.getpid()}"
    copied = f' TEMPLATE "{urlsplit(template).path.strip("/")}"' if template else ""
    _execute(url, f'CREATE DATABASE "{own}"{copied}')
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{own}"))
    finally:
        _execute(url, f'DROP DATABASE IF EXISTS "{own}" WITH (FORCE)')


@contextmanager
def copied(shop: Shop, name: str, **settings: str) -> Iterator[Shop]:
    """A shop on a copy of another one's database, which must be still; its processes end with it."""
    with database(name, template=shop.place.settings["DATABASE_URL"]) as url:
        copy = Shop(other_web(shop.place, {"DATABASE_URL": url, **settings}), shop.sandbox)
        try:
            yield copy
        finally:
            copy.end()


def _execute(url: str, statement: str) -> None:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()
