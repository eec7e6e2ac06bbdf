"""A workflow into which texts and numbers come by each door, and the provider that it sends them to."""

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel

from durableflows import (
    EffectCall,
    Facts,
    Retry,
    Run,
    StepRef,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    effect,
    step,
    succeed,
)


class Box(WorkflowState):
    """Texts and numbers."""

    text: str = ""
    numbers: list[int | float] = []
    floats: list[float] = []


class Slip(BaseModel, frozen=True):
    """A receipt."""

    id: str


Body = Callable[[Run[Box]], StepReturn]
ITEM, CLOSE, HEARD, SIGN_OFF = (StepRef(name) for name in ("item", "close", "heard", "sign_off"))


class Outside:
    """The provider of one test: what it was sent, and how it answers."""

    sent: ClassVar[list[str]] = []
    answer: ClassVar[Callable[[], Slip]] = lambda: Slip(id="ok")
    shown: ClassVar[str] = ""


@effect(name="box.send", provider="box", receipt=Slip, key_window=timedelta(hours=24), settle_seconds=30)
def send(call: EffectCall, *, text: str) -> Slip:
    Outside.sent.append(text)
    return Outside.answer()


def show(run: Run[Box]) -> Facts:
    return Facts(binding={"text": Outside.shown})


def boxing(body: Body) -> type[Workflow[Box]]:
    """begin -> whatever the body says."""

    class Boxing(Workflow[Box]):
        name, deadline = "boxing", timedelta(days=30)
        sign_off = approval(
            title="About {text}",
            shows=show,
            permission="durableflows.answer_approval",
            approved="close",
            rejected="close",
        )

        @step(
            start=True,
            end=True,
            to=("sign_off", "item", "heard", "close"),
            effects=(send,),
            retry=Retry(attempts=2, base_seconds=2),
        )
        def begin(self, run: Run[Box]) -> StepReturn:
            return body(run)

        @step(to="close")
        def item(self, run: Run[Box]) -> None:
            run.give_result(run.item)

        @step(join=True, end=True)
        def close(self, run: Run[Box]) -> None: ...

        @step(end=True)
        def heard(self, run: Run[Box]) -> StepReturn:
            assert run.signal is not None
            return succeed(run.signal.payload)

    return Boxing


def putting(text: str) -> Body:
    """A body that puts a text into the state."""

    def body(run: Run[Box]) -> StepReturn:
        run.state.text = text
        return succeed()

    return body


def sending(text: str) -> Body:
    """A body that sends a text, and succeeds with the receipt."""
    return lambda run: succeed(run.effect(send, text=text).id)


def giving(value: str) -> Body:
    """A body that gives a result to a join."""

    def body(run: Run[Box]) -> StepReturn:
        run.give_result(value)
        return succeed()

    return body
