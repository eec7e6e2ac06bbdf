"""Plays the stories one after the other and says of each, in a line, what was seen."""

import contextlib
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from django.db import connection
from kombu.utils.url import sanitize_url

from customer_ops.celery import app
from customer_ops.demo import parts, processes, servers, watched
from customer_ops.demo.client import Person
from customer_ops.demo.place import CannotStart, Place
from customer_ops.demo.stage import Stage
from customer_ops.demo.stories import STORIES
from customer_ops.sandbox.control import SandboxControl
from durableflows import api

PASSWORD = "demo-password"  # noqa: S105 - for a check's own throwaway people


def play(place: Place) -> int:
    """Play every story on a fresh set of processes. Returns 0 when all held, else 1, and keeps the folder then."""
    began = time.monotonic()
    wanted, passed, failed = len(STORIES) + len(VERDICTS), 0, 0
    print(f"playing on {connection.vendor} and {sanitize_url(app.conf.broker_url).partition(':')[0]}", flush=True)
    try:
        with processes.stopped_by_signals(), servers.lent(), processes.ended_in_order() as children:
            for held in _tell_all(place, children):
                passed, failed = passed + held, failed + (not held)
    except processes.Stopped:
        print("stopped", flush=True)
    finally:
        if passed == wanted:
            shutil.rmtree(place.folder, ignore_errors=True)
        else:
            print(f"logs are in {place.folder / 'logs'}", flush=True)
    left = f", {wanted - passed - failed} not played" if passed + failed < wanted else ""
    print(f"{passed} passed, {failed} failed{left} in {time.monotonic() - began:.0f} s", flush=True)
    return 0 if passed == wanted else 1


def _tell_all(place: Place, children: list[processes.Child]) -> Iterator[bool]:
    stage = _set(place, children)
    for name, story in STORIES.items():
        stage.asked.clear()
        yield _tell(name, stage, partial(story, stage))
    stage.asked.clear()
    for name, verdict in VERDICTS.items():
        yield _tell(name, stage, partial(verdict, stage))


def _set(place: Place, children: list[processes.Child]) -> Stage:
    worker = parts.start(place, children, password=PASSWORD)
    for watcher in (child for child in children if child.is_observer):
        with contextlib.suppress(CannotStart):  # its own verdict says so
            watcher.wait_until_ready()
    agent, manager = (Person(place.url, name, PASSWORD) for name in ("agent", "manager"))
    return Stage(place, SandboxControl(place.payments_url), children, worker, agent, manager)


def _tell(name: str, stage: Stage, story: Callable[[], str]) -> bool:
    began = time.monotonic()
    try:
        seen = story()
    except Exception as error:  # noqa: BLE001 - a story may fail in any way, and the next is played all the same
        print(f"FAILED  {name:<28} {type(error).__name__}: {error}", flush=True)
        print("".join(traceback.format_exception(error)[-3:]), flush=True)
        _explain(stage)
        _tidy(stage)
        return False
    print(f"ok      {name:<28} {seen}   {time.monotonic() - began:.1f} s", flush=True)
    return True


def _watch(stage: Stage) -> str:
    return watched.look(stage, password=PASSWORD)


def _examine(stage: Stage) -> str:
    processes.manage(stage.place, "durableflows", "doctor")
    return "every invariant holds in the rows"


VERDICTS: dict[str, Callable[[Stage], str]] = {"Flower": _watch, "doctor": _examine}
"""What is looked at when all stories are told."""


def _explain(stage: Stage) -> None:
    """Say how far each run of the story came, in the words that a manager reads."""
    for request in stage.asked:
        request.refresh_from_db()
        if request.run_id is not None:
            explanation = api.explain(request.run_id)
            print(f"        run {request.run_id}: {explanation.sentence}")
            for line in explanation.lines:
                print(f"        {line.at:%H:%M:%S} {line.text}")


def _tidy(stage: Stage) -> None:
    """Make the stage fit for the next story."""
    stage.sandbox.clear_faults()
    stage.sandbox.release()
    if not stage.worker.is_alive:
        stage.worker.end()
        stage.start_worker()
