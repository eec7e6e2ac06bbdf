"""Steps that catch everything and go on, and one whose effect kills its own process once its intent is stored."""

import os
import time
from datetime import timedelta
from pathlib import Path

from durableflows import EffectCall, Retry, Run, Workflow, WorkflowState, effect, step

TRIES = 2


class HungState(WorkflowState):
    """Where the step leaves its marks."""

    folder: str


def mark(folder: str) -> None:
    """Write a start down."""
    with (Path(folder) / "starts").open("a") as starts:
        starts.write(f"{os.getpid()} {time.time()}\n")


def spin() -> None:
    """Go on for ever, whatever is raised: only the end of the process ends it, or a file that the test makes."""
    while True:
        try:
            time.sleep(0.05)
        except BaseException:  # noqa: BLE001 - that is the case
            continue


class Stubborn(Workflow[HungState]):
    """A step without effects that does not end."""

    name, version = "stubborn", 1
    deadline = timedelta(days=1)

    @step(start=True, end=True, timeout_seconds=2, retry=Retry(attempts=TRIES, base_seconds=0.5, cap_seconds=0.5))
    def spin(self, run: Run[HungState]) -> None:
        mark(run.state.folder)
        spin()


@effect(name="sinks.drop", provider="sinks", receipt=str, left_to_person=True, settle_seconds=8.0, timeout_seconds=1.0)
def drop(call: EffectCall, *, folder: str) -> str:
    """Neither keys nor a lookup, and no answer either."""
    mark(folder)
    spin()
    return ""


class Sink(Workflow[HungState]):
    """A step whose effect does not end once its intent is stored."""

    name, version = "sink", 1
    deadline = timedelta(days=1)

    @step(start=True, end=True, effects=(drop,), timeout_seconds=10)
    def drop(self, run: Run[HungState]) -> None:
        run.effect(drop, folder=run.state.folder)


@effect(
    name="venoms.bite", provider="venoms", receipt=str, left_to_person=True, settle_seconds=8.0, timeout_seconds=1.0
)
def bite(call: EffectCall, *, folder: str) -> str:
    """Neither keys nor a lookup; it kills its process."""
    mark(folder)
    os.kill(os.getpid(), 9)
    return ""


class Venom(Workflow[HungState]):
    """A step that kills its process each time its effect is under way."""

    name, version = "venom", 1
    deadline = timedelta(days=1)

    @step(start=True, end=True, effects=(bite,))
    def bite(self, run: Run[HungState]) -> None:
        run.effect(bite, folder=run.state.folder)


class Lazy(Workflow[HungState]):
    """The same as Stubborn, in a pool that cannot end it: it ends by itself after a while, and wants to go on."""

    name, version = "lazy", 1
    deadline = timedelta(days=1)

    @step(start=True, to="after", timeout_seconds=1)
    def doze(self, run: Run[HungState]) -> None:
        mark(run.state.folder)
        stop_at = time.monotonic() + 8.0
        while time.monotonic() < stop_at and not (Path(run.state.folder) / "go").exists():
            time.sleep(0.05)  # stands for a call without a time-out

    @step(end=True)
    def after(self, run: Run[HungState]) -> None:
        run.note("woken up")
