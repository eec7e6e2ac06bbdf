"""Runs that wait: for time, for their next try, for a person; each start of a body leaves a mark in a file."""

import os
import time
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from durableflows import (
    EffectCall,
    Facts,
    Found,
    NotFound,
    Retry,
    Run,
    StepReturn,
    Transient,
    Workflow,
    WorkflowState,
    approval,
    effect,
    sleep,
    step,
    succeed,
)


class WaitState(WorkflowState):
    """`way`: timer, retry or neither; `seconds`: how long; `folder`: where the marks are left."""

    folder: str
    way: str = "none"
    seconds: float = 0.0


def mark(folder: str, name: str, text: str = "") -> None:
    """Leave a line in a file that the test reads."""
    with (Path(folder) / name).open("a") as marks:
        marks.write(f"{os.getpid()} {time.time()} {text}\n")


class Waits(Workflow[WaitState]):
    """begin -> (a timer -> woken) or (a try that fails -> another) -> end."""

    name, version = "waits", 1
    deadline = timedelta(days=60)

    @step(start=True, to=("woken", "again", "finish"))
    def begin(self, run: Run[WaitState]) -> StepReturn:
        mark(run.state.folder, "begin", run.id)
        if run.state.way == "timer":
            return sleep(timedelta(seconds=run.state.seconds), then=self.woken)
        return self.again if run.state.way == "retry" else self.finish

    @step(end=True)
    def woken(self, run: Run[WaitState]) -> None:
        mark(run.state.folder, "woken", run.id)

    @step(end=True, retry=Retry(attempts=3, base_seconds=0.1, cap_seconds=1, within=timedelta(days=50)))
    def again(self, run: Run[WaitState]) -> None:
        mark(run.state.folder, "again", run.id)
        if (Path(run.state.folder) / "again").read_text().count(run.id) == 1:
            raise Transient("later", retry_after_seconds=run.state.seconds)

    @step(end=True)
    def finish(self, run: Run[WaitState]) -> None:
        mark(run.state.folder, "finish", run.id)


class Slip(BaseModel, frozen=True):
    """What both providers answer."""

    id: str


class RoundState(WorkflowState):
    """`letter` and `quote`: what came before the wait; `wishes`: what was asked for in each round."""

    folder: str
    letter: str = ""
    quote: str = ""
    wishes: list[str] = []


def found(call: EffectCall, *, folder: str) -> Found[Slip] | NotFound:
    """Look the key up in the provider's books."""
    book = Path(folder) / call.effect
    return Found(Slip(id=call.key[:8])) if book.exists() and call.key in book.read_text() else NotFound()


@effect(name="rounds.letter", provider="post", receipt=Slip, lookup=found, key_window=None, settle_seconds=30)
def send_letter(call: EffectCall, *, folder: str) -> Slip:
    """Each call is a letter: this provider knows no keys."""
    mark(folder, "rounds.letter", call.key)
    return Slip(id=call.key[:8])


@effect(name="rounds.quote", provider="prices", receipt=Slip, lookup=found, key_window=None, settle_seconds=30)
def ask_price(call: EffectCall, *, folder: str) -> Slip:
    """Each call is a question: this provider knows no keys."""
    mark(folder, "rounds.quote", call.key)
    return Slip(id=call.key[:8])


def shown(run: Run[RoundState]) -> Facts:
    """What the person sees."""
    return Facts(binding={"quote": run.state.quote, "wishes": len(run.state.wishes)})


class Rounds(Workflow[RoundState]):
    """prepare (a letter, a question) -> sign_off -> revise -> sign_off ... -> done."""

    name, version = "rounds", 1
    deadline = timedelta(days=60)

    @step(start=True, to="sign_off", effects=(send_letter, ask_price))
    def prepare(self, run: Run[RoundState]) -> None:
        run.state.letter = run.effect(send_letter, folder=run.state.folder).id
        run.state.quote = run.effect(ask_price, folder=run.state.folder).id

    sign_off = approval(
        title="Take {quote} after {wishes} changes",
        shows=shown,
        permission="durableflows.answer_approval",
        approved="done",
        rejected="revise",
    )

    @step(to="sign_off")
    def revise(self, run: Run[RoundState]) -> None:
        mark(run.state.folder, "revise", run.id)
        run.state.wishes = [*run.state.wishes, run.decision(self.sign_off).comment]

    @step(end=True)
    def done(self, run: Run[RoundState]) -> StepReturn:
        return succeed({"letter": run.state.letter, "quote": run.state.quote, "wishes": list(run.state.wishes)})
