"""One small workflow that waits in each way there is; its state names the way."""

from datetime import timedelta
from uuid import UUID

from durableflows import (
    Retry,
    Run,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    api,
    child,
    each,
    sleep,
    step,
    wait_for,
)
from durableflows.testing import World

WAYS = ("timer", "signal", "signal in time", "child", "branches", "turn")


class Way(WorkflowState):
    """How the run waits."""

    way: str = "timer"


def waiting_workflow() -> type[Workflow[Way]]:
    """begin -> a wait -> go_on -> done. Declare it inside `registry.isolated()`."""

    class Waiting(Workflow[Way]):
        """Waits as its state says."""

        name, deadline = "waiting", timedelta(days=30)

        @step(start=True, to=("go_on", "late", "slow", "gather"))
        def begin(self, run: Run[Way]) -> StepReturn:
            two_days = timedelta(days=2)
            ways: dict[str, StepReturn] = {
                "timer": sleep(two_days, then=self.go_on),
                "signal": wait_for("begin", then=self.go_on),
                "signal in time": wait_for("begin", then=self.go_on, timeout=two_days, on_timeout=self.late),
                "child": child("waiting", {"way": "signal"}, then=self.go_on),
                "branches": (self.slow, self.gather),
                "turn": each(self.slow, ["a", "b"], key=str, limit=1, then=self.gather),
            }
            return ways[run.state.way]

        @step(to="gather", retry=Retry(attempts=3, base_seconds=3600, cap_seconds=3600))
        def slow(self, run: Run[Way]) -> None:
            raise Transient("not yet")

        @step(join=True, to="go_on")
        def gather(self, run: Run[Way]) -> None: ...

        @step(end=True)
        def late(self, run: Run[Way]) -> None: ...

        @step(end=True)
        def go_on(self, run: Run[Way]) -> None: ...

    return Waiting


def waiting(world: World, way: str) -> UUID:
    """A run that waits in this way."""
    run = api.start(waiting_workflow(), {"way": way})
    world.run_until_idle()
    return run.pk
