"""Plays the stories one after the other and says of each, in a line, what was seen."""

import shutil
import time
import traceback
from collections.abc import Callable
from functools import partial

from django.db import connection
from kombu.utils.url import sanitize_url

from customer_ops.celery import app
from customer_ops.demo import processes, servers
from customer_ops.demo.client import Person
from customer_ops.demo.place import Place
from customer_ops.demo.stories import STORIES, Stage
from customer_ops.models import RefundRequest
from customer_ops.sandbox.control import SandboxControl
from durableflows import api

PASSWORD = "demo-password"  # noqa: S105 - for a check's own throwaway people


def play(place: Place) -> int:
    """Play every story on a fresh set of processes. Returns 0 when all held, else 1, and keeps the folder then."""
    children: list[processes.Child] = []
    failed = 0
    started = time.monotonic()
    print(f"playing on {connection.vendor} and {sanitize_url(app.conf.broker_url).partition(':')[0]}", flush=True)
    try:
        stage = _set(place, children)
        for name, story in STORIES.items():
            failed += not _tell(name, stage, partial(story, stage))
        children[1] = stage.worker
        failed += not _tell("doctor", stage, partial(_examine, place))
    except BaseException:
        failed += 1
        raise
    finally:
        for child in reversed(children):
            child.end()
        servers.drop()
        if failed:
            print(f"logs are in {place.folder / 'logs'}")
        else:
            shutil.rmtree(place.folder, ignore_errors=True)
    print(f"{len(STORIES) + 1 - failed} passed, {failed} failed in {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


def _set(place: Place, children: list[processes.Child]) -> Stage:
    servers.create()
    processes.manage(place, "migrate", "--verbosity=0")
    children.append(processes.start_sandbox(place))
    processes.manage(place, "seed_demo", f"--password={PASSWORD}")
    children.append(processes.start_worker(place))
    children.append(processes.start_web(place))
    agent, manager = (Person(place.url, name, PASSWORD) for name in ("agent", "manager"))
    return Stage(place, SandboxControl(place.payments_url), children[1], agent, manager)


def _tell(name: str, stage: Stage, story: Callable[[], str]) -> bool:
    began = time.monotonic()
    try:
        seen = story()
    except Exception as error:  # noqa: BLE001 - a story may fail in any way, and the next is played all the same
        print(f"FAILED  {name:<28} {type(error).__name__}: {error}", flush=True)
        print("".join(traceback.format_exception(error)[-3:]), flush=True)
        _explain_last()
        stage.sandbox.clear_faults()
        stage.sandbox.release()
        return False
    print(f"ok      {name:<28} {seen}   {time.monotonic() - began:.1f} s", flush=True)
    return True


def _examine(place: Place) -> str:
    processes.manage(place, "durableflows", "doctor")
    return "every invariant holds in the rows"


def _explain_last() -> None:
    request = RefundRequest.objects.order_by("-pk").first()
    if request is not None and request.run_id is not None:
        explanation = api.explain(request.run_id)
        print("        " + explanation.sentence)
        for line in explanation.lines:
            print(f"        {line.at:%H:%M:%S} {line.text}")
