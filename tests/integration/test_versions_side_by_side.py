"""Two versions of a workflow in one worker share a task name a step, and rows stay in their own database."""

from datetime import timedelta

import pytest
from celery import current_app
from django.test import override_settings

from durableflows import Run, Workflow, WorkflowState, api, step, tasks
from durableflows.core import registry
from durableflows.models import WorkflowRun
from durableflows.testing import virtual


class Nothing(WorkflowState):
    """No fields."""


def declare(number: int, seconds: float) -> type[Workflow[Nothing]]:
    """One version of the workflow, whose step may take so long."""

    class Slow(Workflow[Nothing]):
        """One step."""

        name, version = "slow_versions", number
        deadline = timedelta(days=1)

        @step(start=True, end=True, timeout_seconds=seconds)
        def work(self, run: Run[Nothing]) -> None:
            pass

    return Slow


def test_a_step_s_task_has_the_longest_limit_of_all_versions():
    """With the first one's limit, the new version's longer step would be interrupted at each try."""
    with registry.isolated():
        declare(1, 60.0)
        declare(2, 600.0)
        tasks.register()

    task = current_app.tasks["slow_versions.work"]
    assert (task.soft_time_limit, task.time_limit) == (600, 605)


class Elsewhere:
    """A project's router that sends what does not name its database somewhere else."""

    def db_for_write(self, model: object, **hints: object) -> str | None:
        """Rows of the engine name theirs."""
        return None if hints.get("instance") else "nowhere"


@pytest.mark.django_db(transaction=True)
def test_rows_are_written_to_the_engine_s_database_whatever_a_router_says():
    with registry.isolated(), virtual(), override_settings(DATABASE_ROUTERS=[Elsewhere()]):
        run = api.start(declare(1, 60.0), {})
        api.cancel(run.pk, reason="no")

    assert WorkflowRun.objects.get(pk=run.pk).ended_at is not None
