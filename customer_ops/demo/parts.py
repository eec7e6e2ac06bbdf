"""The parts of the demo: what each is started with, and the order that they need each other in.

Each is added to the list of processes before anybody waits for it, so that one that hangs is ended too.
"""

import subprocess
import sys
import time

from customer_ops.demo import flower
from customer_ops.demo.place import Place
from customer_ops.demo.processes import Child, manage


def start(place: Place, children: list[Child], *, password: str) -> Child:
    """Start every part, on a database that is migrated and seeded. Returns the worker."""
    outside = [_start_sandbox(place, children), _start_mailbox(place, children)]
    manage(place, "migrate", "--verbosity=0")
    for child in outside:
        child.wait_until_ready()
    manage(place, "seed_demo", f"--password={password}")
    inside = [_begin_worker(place, children), _start_web(place, children)]
    if flower.is_installed():
        flower.start(place, children, password=password)  # not waited for: nothing depends on it
    for child in inside:
        child.wait_until_ready()
    return inside[0]


def start_worker(place: Place, children: list[Child]) -> Child:
    """Start a Celery worker with its ticker, and wait until it takes tasks."""
    child = _begin_worker(place, children)
    child.wait_until_ready()
    return child


def _begin_worker(place: Place, children: list[Child]) -> Child:
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", "worker", "-c", "2", "-l", "info"]
    name = f"demo-{place.ports.web}-{time.monotonic_ns()}@%h"
    children.append(Child("worker", [*command, "-n", name], place, ready=" ready."))
    return children[-1]


def _start_sandbox(place: Place, children: list[Child]) -> Child:
    command = [sys.executable, "-m", "customer_ops.sandbox", f"--port={place.ports.payments}", f"--books={place.books}"]
    ends = [*command, "--end-with-stdin"]
    children.append(Child("payments", ends, place, ready='"url"', stdin=subprocess.PIPE))
    return children[-1]


def _start_mailbox(place: Place, children: list[Child]) -> Child:
    command = [sys.executable, "-m", "customer_ops.mailbox", f"--smtp-port={place.ports.smtp}", f"--desk={place.url}/"]
    places = [f"--page-port={place.ports.mails}", f"--folder={place.mailbox}", f"--script={place.mail_script}"]
    children.append(Child("mails", [*command, *places], place, ready="mails for smtp"))
    return children[-1]


def _start_web(place: Place, children: list[Child]) -> Child:
    command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.ports.web}"]
    children.append(Child("web", command, place, ready="Quit the server"))
    return children[-1]
