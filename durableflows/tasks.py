"""The Celery tasks: one a declared step, named `<workflow>.<step>`; `durableflows.lookup`, `durableflows.crossing`,
`durableflows.address` and `durableflows.notify`.

Ids in, nothing out.

`register` is called when the app is ready; workers know each step by name, so Flower, routing and time limits do too.
"""

import math
from uuid import UUID

from celery import shared_task
from celery.app.task import Task

from durableflows import dispatch, draining, lookups, notify, runner
from durableflows.core import registry
from durableflows.core.definition import HARD_LIMIT_AFTER_SECONDS
from durableflows.dispatch import ADDRESS_TASK, CROSSING_TASK, LOOKUP_TASK, NOTIFY_TASK
from durableflows.services import children, notices, reconcile


def register() -> None:
    """Make a task of each step of each known workflow; known ones are left alone.

    Versions share a step's task, with the longest of their limits: a lease ends by its own version's.
    """
    seconds: dict[str, float] = {}
    for definition in registry.definitions():
        for step in definition.all_steps:
            name = definition.run_step_task_name(step.name)
            seconds[name] = max(step.timeout_seconds, seconds.get(name, 0.0))
    for name, timeout_seconds in seconds.items():
        _register(name, timeout_seconds)


def _register(name: str, timeout_seconds: float) -> None:
    def run(self: "Task[[str, str], None]", run_id: str, step_id: str) -> None:
        if draining.is_on():
            dispatch.give_back(UUID(step_id))
            return
        runner.run_step(UUID(run_id), UUID(step_id), task_id=str(self.request.id or ""))

    run.__doc__ = f"Make one attempt at a step of a run: {name}."
    run.__name__ = name.replace(".", "_")
    soft = math.ceil(timeout_seconds)
    shared_task(
        bind=True,
        name=name,
        ignore_result=True,
        acks_late=False,
        max_retries=0,
        soft_time_limit=soft,
        time_limit=soft + HARD_LIMIT_AFTER_SECONDS,
    )(run)


@shared_task(name=CROSSING_TASK, ignore_result=True, acks_late=False, max_retries=0)
def cross_over(step_id: str) -> None:
    """Carry what is due between a waiting step and its child's run."""
    children.carry(UUID(step_id))


@shared_task(name=LOOKUP_TASK, ignore_result=True, acks_late=False, max_retries=0)
def look_up(effect_id: str) -> None:
    """Ask a provider whether an effect happened, then let its step go on."""
    step_id = lookups.look_up(UUID(effect_id))
    if step_id is not None:
        reconcile.route(step_id)


@shared_task(name=ADDRESS_TASK, ignore_result=True, acks_late=False, max_retries=0)
def address(announcement_id: str) -> None:
    """Work out whom an announcement is for."""
    notices.address(UUID(announcement_id))


@shared_task(name=NOTIFY_TASK, ignore_result=True, acks_late=False, max_retries=0)
def tell(notification_id: str) -> None:
    """Give a person a notice."""
    notify.deliver(UUID(notification_id))
