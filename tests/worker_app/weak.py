"""A provider that is down, slow or up, as files in a folder say: for tests of the one probe."""

import os
import time
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from durableflows import EffectCall, NeverSent, Retry, Run, Workflow, WorkflowState, effect, step

HOLD_SECONDS = 20.0


class Answer(BaseModel, frozen=True):
    """A receipt."""

    id: str


class WeakState(WorkflowState):
    """Where the provider's files are."""

    folder: str


@effect(
    name="weak.ask",
    provider="weak",
    receipt=Answer,
    key_window=timedelta(hours=1),
    settle_seconds=30,
    timeout_seconds=25,
)
def ask(call: EffectCall, *, folder: str) -> Answer:
    """Refuse while the file `down` is there; write the start down and wait while `slow` is."""
    place = Path(folder)
    if (place / "down").exists():
        raise NeverSent("connection refused")
    with (place / "asked").open("a") as asked:
        asked.write(f"{os.getpid()} {call.key}\n")
    stop_at = time.monotonic() + HOLD_SECONDS
    while (place / "slow").exists() and time.monotonic() < stop_at:
        time.sleep(0.02)  # stands for the provider's work; the test waits on the marks
    return Answer(id=call.key)


class Weak(Workflow[WeakState]):
    """One step that asks."""

    name, version = "weak", 1
    deadline = timedelta(days=1)

    @step(start=True, end=True, effects=(ask,), retry=Retry(attempts=3, base_seconds=300, cap_seconds=300))
    def ask_it(self, run: Run[WeakState]) -> None:
        run.effect(ask, folder=run.state.folder)
