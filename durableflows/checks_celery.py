"""What Django's system check says about the project's Celery app and the steps' tasks. Registered by `checks`."""

from collections.abc import Iterator, Sequence
from typing import Any

from celery import current_app
from celery.app.task import Task
from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.db import connections

from durableflows.core import registry
from durableflows.transactions import database

TICKER_STEP = "durableflows.celery.TickerStep"
NOT_SET_UP = "default"
"""Name of the app that Celery makes up in a process where the project's own was not imported."""


def check_celery(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W002: late acknowledgement. W003: eager mode. W004: a pool without time limits. W012: no events of workers."""
    conf = current_app.conf
    found: list[checks.CheckMessage] = []
    if conf.task_acks_late:
        hint = "Steps set it off for themselves; the lease row remembers who works on what, not the broker."
        found.append(
            checks.Warning("task_acks_late is on for the project's other tasks", hint=hint, id="durableflows.W002")
        )
    if conf.task_always_eager:
        hint = "Unset task_always_eager: steps would run inside the request that starts them."
        found.append(checks.Warning("Celery runs tasks eagerly", hint=hint, id="durableflows.W003"))
    if not has_time_limits(str(conf.worker_pool)):
        hint = "Use prefork, or give every call in steps a time-out of its own: a step that hangs keeps its thread."
        found.append(
            checks.Warning(f"time limits do nothing in the pool {conf.worker_pool}", hint=hint, id="durableflows.W004")
        )
    if not conf.worker_send_task_events and current_app.main != NOT_SET_UP:
        hint = (
            "Set worker_send_task_events = True, and task_send_sent_event for what no worker has received yet; or "
            "start each worker with -E, which is not seen here, and silence this."
        )
        found.append(
            checks.Warning(
                "workers tell nobody what they do: Flower and other monitors of Celery see no steps",
                hint=hint,
                id="durableflows.W012",
            )
        )
    return found


def has_time_limits(pool: str) -> bool:
    """Does Celery end a task in this pool that takes too long? `pool`: its name, or its class's module."""
    return pool.rpartition(".")[2].partition(":")[0] in ("prefork", "processes")


def check_time_limits(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E007: a soft time limit that is not shorter than the hard one: the hard one would strike without a word."""
    conf = current_app.conf
    limits = {"Celery's settings": (conf.task_soft_time_limit, conf.task_time_limit)}
    for name, task in _step_tasks():  # with what the project's task_annotations make of them
        limits[f"the task {name}"] = (task.soft_time_limit, task.time_limit)
    hint = "Make task_soft_time_limit, or the task_annotations of the step, shorter than the hard limit."
    return [
        checks.Error(
            f"{place}: the soft time limit {soft} is not shorter than {hard}", hint=hint, id="durableflows.E007"
        )
        for place, (soft, hard) in limits.items()
        if soft is not None and hard is not None and soft >= hard
    ]


def check_step_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W009: a step's task that is acknowledged late. W010: one that Celery tries again by itself."""
    found: list[checks.CheckMessage] = []
    for name, task in _step_tasks():
        if task.acks_late:
            hint = (
                "Leave acks_late out of task_annotations for steps: a message that kills workers would come for ever."
            )
            found.append(
                checks.Warning(
                    f"the task {name} is acknowledged late, which a step must not be", hint=hint, id="durableflows.W009"
                )
            )
        if getattr(task, "autoretry_for", ()):
            hint = (
                "Remove autoretry_for from the step's task. One layer retries, and that is the engine: step(retry=…)."
            )
            found.append(
                checks.Warning(
                    f"Celery tries the task {name} again by itself, beside the engine",
                    hint=hint,
                    id="durableflows.W010",
                )
            )
    return found


def _step_tasks() -> Iterator[tuple[str, "Task[Any, Any]"]]:
    """The task of each step that is known to the current app, by name."""
    tasks, seen = current_app.tasks, set[str]()
    for definition in registry.definitions():
        for step in definition.all_steps:
            name = definition.run_step_task_name(step.name)
            if name in tasks and name not in seen:
                seen.add(name)
                yield name, tasks[name]


def check_connections(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W013: the engine's database is to keep its connections, and Celery closes them around each task all the same."""
    age = connections[database()].settings_dict.get("CONN_MAX_AGE", 0)
    if age == 0 or current_app.main == NOT_SET_UP or current_app.conf.get("CELERY_DB_REUSE_MAX"):
        return []
    hint = (
        "Set CELERY_DB_REUSE_MAX (1_000_000) beside CONN_MAX_AGE, and CONN_HEALTH_CHECKS: durableflows.celery.install "
        "drops connections that are too old or broken before and after each task, as Django does around a request."
    )
    return [
        checks.Warning(
            f"CONN_MAX_AGE is {age}, and workers connect for each step anew: Celery closes it around each task",
            hint=hint,
            id="durableflows.W013",
        )
    ]


def check_housekeeping(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W019: workers start no ticker. W020: nor does this app's, for want of `install`. Nothing would be swept then."""
    found: list[checks.CheckMessage] = []
    if getattr(django_settings, "DURABLEFLOWS", {}).get("TICKER") is False:
        hint = "Leave TICKER out; or keep `manage.py durableflows ticker` running beside the workers, and silence this."
        found.append(
            checks.Warning(
                "TICKER is off: workers send no retries, timers or lost messages, and free no leases",
                hint=hint,
                id="durableflows.W019",
            )
        )
    app = current_app
    steps = {f"{one.__module__}.{one.__name__}" for one in app.steps["worker"]}
    if app.main != NOT_SET_UP and TICKER_STEP not in steps:
        hint = "Add the line `durableflows.celery.install(app)` where the app is made: its workers keep a ticker then."
        found.append(
            checks.Warning(
                f"the Celery app {app.main} does not know durableflows: its workers do no periodic job",
                hint=hint,
                id="durableflows.W020",
            )
        )
    return found


CHECKS = (check_celery, check_time_limits, check_step_tasks, check_connections, check_housekeeping)
