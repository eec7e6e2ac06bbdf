"""Short looks at a run's rows, as tests compare them."""

from durableflows.core.states import RunState, StepState
from durableflows.models import StepRun, WorkflowRun


def fresh(run: WorkflowRun) -> WorkflowRun:
    """The run as it is stored now."""
    return WorkflowRun.objects.get(pk=run.pk)


def state_of(run: WorkflowRun) -> RunState:
    """Where the run stands."""
    return RunState(fresh(run).state)


def steps_of(run: WorkflowRun) -> list[tuple[str, str, StepState]]:
    """Name, item and state of each step, oldest first."""
    rows = StepRun.objects.filter(run=run).order_by("id")
    return [(row.name, row.item_key, StepState(row.state)) for row in rows]


def how_often(run: WorkflowRun, name: str) -> int:
    """How many visits of a step there are."""
    return StepRun.objects.filter(run=run, name=name).count()
