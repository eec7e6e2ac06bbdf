"""A step that writes down each start and then waits until the test lets it go."""

import os
import time
from datetime import timedelta
from pathlib import Path

from durableflows import Run, Workflow, WorkflowState, step
from durableflows.boundaries import Boundary, install
from tests.worker_app import errands as errands  # noqa: PLC0414 - found by autodiscovery here
from tests.worker_app import giving_back as giving_back  # noqa: PLC0414
from tests.worker_app import hung as hung  # noqa: PLC0414
from tests.worker_app import storm as storm  # noqa: PLC0414
from tests.worker_app import telling as telling  # noqa: PLC0414
from tests.worker_app import traced as traced  # noqa: PLC0414
from tests.worker_app import undoing as undoing  # noqa: PLC0414
from tests.worker_app import waits as waits  # noqa: PLC0414
from tests.worker_app import weak as weak  # noqa: PLC0414

HOLD_SECONDS = 30.0


class HeldState(WorkflowState):
    """Where the step leaves its marks."""

    folder: str


class Held(Workflow[HeldState]):
    """hold (waits for the file `go`) -> end."""

    name, version = "held", 1
    deadline = timedelta(days=1)

    @step(start=True, to="finish", timeout_seconds=60)
    def hold(self, run: Run[HeldState]) -> None:
        folder = Path(run.state.folder)
        with (folder / "starts").open("a") as starts:
            starts.write(f"{os.getpid()} {time.time()}\n")
        stop_at = time.monotonic() + HOLD_SECONDS
        while not (folder / "go").exists() and time.monotonic() < stop_at:
            time.sleep(0.02)  # stands for work; the test waits on the marks

    @step(end=True)
    def finish(self, run: Run[HeldState]) -> None:
        run.note("held and let go")


class Poison(Workflow[HeldState]):
    """A step that kills its own process at each start."""

    name, version = "poison", 1
    deadline = timedelta(days=1)

    @step(start=True, end=True)
    def swallow(self, run: Run[HeldState]) -> None:
        with (Path(run.state.folder) / "starts").open("a") as starts:
            starts.write(f"{os.getpid()} {time.time()}\n")
        os.kill(os.getpid(), 9)


def _kill_where_told(boundary: Boundary) -> None:
    """Die by SIGKILL at a boundary that has a file of its name in the folder: once for each file."""
    order = Path(os.environ["TEST_KILL_FOLDER"]) / boundary.name
    try:
        order.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), 9)


if "TEST_KILL_FOLDER" in os.environ:
    install(_kill_where_told)
