"""Flower in the demo: behind a log-in, read only, on this machine alone. It watches; the workflows do not need it.

Its options go by the environment, where a list of processes does not show the password.
"""

import importlib.util
import sys

from customer_ops.demo.place import Place
from customer_ops.demo.processes import Child

NAME = "admin"  # who operates the demo's runs has the same name in Django's admin


def is_installed() -> bool:
    """Can it be started at all?"""
    return importlib.util.find_spec("flower") is not None


def start(place: Place, children: list[Child], *, password: str) -> Child:
    """Start it; it is not waited for. Returns its process, whose end harms nobody."""
    command = [sys.executable, "-m", "celery", "-A", "customer_ops", "flower"]
    child = Child("flower", command, place, ready="Connected to", settings=_options(place, password=password))
    child.is_observer = True
    children.append(child)
    return child


def _options(place: Place, *, password: str) -> dict[str, str]:
    return {
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(place.ports.flower),
        "FLOWER_BASIC_AUTH": f"{NAME}:{password}",
        "FLOWER_UNAUTHENTICATED_API": "false",
        "FLOWER_READ_ONLY": "true",  # a task that is revoked here would leave no trace in the run's history
        "FLOWER_TASKS_COLUMNS": "name,args,state,received,runtime,worker",
        "FLOWER_ENABLE_EVENTS": "false",  # the workers send them by their settings
    }
