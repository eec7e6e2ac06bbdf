"""One step with whatever body a test wants: for what people write and should not have written."""

from collections.abc import Callable
from datetime import timedelta

from durableflows import Retry, Run, Workflow, step
from durableflows.models import StepRun, WorkflowRun
from tests.support.flows import PayState

Body = Callable[[Run[PayState]], object]


def workflow(body: Body, *effects: object, tries: int = 4) -> type[Workflow[PayState]]:
    """One step with this body, then the end."""

    class Hostile(Workflow[PayState]):
        """Does what its body wants."""

        name, version = "hostile", 1
        deadline = timedelta(days=3)

        @step(start=True, to="done", effects=effects, retry=Retry(attempts=tries, within=timedelta(hours=20)))  # type: ignore[arg-type]
        def work(self, run: Run[PayState]) -> None:
            body(run)

        @step(end=True)
        def done(self, run: Run[PayState]) -> None:
            run.note("done")

    return Hostile


def work_of(run: WorkflowRun) -> StepRun:
    return StepRun.objects.get(run=run, name="work")


def fresh(run: WorkflowRun) -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run.pk)


def is_done(run: WorkflowRun) -> bool:
    return StepRun.objects.filter(run=run, name="done").exists()
