"""A workflow that holds something outside and must give it back: it books a room, pays, and is confirmed.

Its clean-ups: a failure tells the front desk and then frees the room, a cancel frees it at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from durableflows import (
    Budget,
    EffectCall,
    Found,
    NotFound,
    Retry,
    Run,
    StepReturn,
    Workflow,
    WorkflowState,
    api,
    doctor,
    effect,
    step,
    succeed,
)
from durableflows.core.definition import EffectDefinition
from durableflows.doctor import Severity
from durableflows.models import RunEvent, WorkflowRun
from tests.support.bodies import Bodies
from tests.support.flows import PayReceipt, Provider


class Stay(WorkflowState):
    """What the run remembers."""

    nights: int = 2
    room: str = ""
    paid: str = ""
    freed: str = ""


@dataclass
class Hotel(Bodies):
    """Three providers, what happens while a body runs, and how often each body ran."""

    rooms: Provider = field(default_factory=Provider)
    bank: Provider = field(default_factory=Provider)
    desk: Provider = field(default_factory=Provider)
    leads: dict[str, Callable[[Any], StepReturn]] = field(default_factory=dict)


def at(provider: Provider, name: str, **options: object) -> EffectDefinition[PayReceipt]:
    """An effect at one of the providers, with keys and a lookup unless the test says otherwise."""

    def find(call: EffectCall, *, amount: int) -> Found[PayReceipt] | NotFound:
        answer = provider.find(call)
        assert isinstance(answer, Found | NotFound)
        return answer

    given = {"lookup": find, "key_window": timedelta(hours=24), "settle_seconds": 30, "timeout_seconds": 10, **options}

    @effect(name=name, provider="hotel", receipt=PayReceipt, **given)  # type: ignore[arg-type]
    def act(call: EffectCall, *, amount: int) -> PayReceipt:
        return provider.send(call, amount)

    return act


def stay_workflow(
    hotel: Hotel, *, within: timedelta = timedelta(hours=1), limits: Budget | None = None, **options: Any
) -> type[Workflow[Stay]]:
    """book -> pay -> confirm; after a failure tell_desk -> free, after a cancel free. For `registry.isolated()`."""
    book_room = at(hotel.rooms, "rooms.book")
    take_money = at(hotel.bank, "bank.take", **options)
    free_room = at(hotel.rooms, "rooms.free", **options)
    write_to_desk = at(hotel.desk, "desk.write")

    class BookStay(Workflow[Stay]):
        """Book a stay."""

        name, deadline = "stay", timedelta(days=3)
        budget = limits or Budget()
        on_failure, on_cancel = "tell_desk", "free"
        cleanup_within = within

        @step(start=True, to="pay", effects=(book_room,))
        def book(self, run: Run[Stay]) -> None:
            run.state.room = run.effect(book_room, amount=run.state.nights).id
            hotel.run("book")

        @step(to="confirm", effects=(take_money,), retry=Retry(attempts=3, base_seconds=60))
        def pay(self, run: Run[Stay]) -> None:
            hotel.run("pay")
            run.state.paid = run.effect(take_money, amount=run.state.nights).id

        @step(end=True)
        def confirm(self, run: Run[Stay]) -> None:
            hotel.run("confirm")

        @step(to="free", effects=(write_to_desk,))
        def tell_desk(self, run: Run[Stay]) -> None:
            hotel.run("tell_desk")
            run.effect(write_to_desk, amount=1)

        @step(end=True, to=("free", "later"), effects=(free_room,), retry=Retry(attempts=3, base_seconds=60))
        def free(self, run: Run[Stay]) -> StepReturn:
            hotel.run("free")
            if run.state.room:
                run.state.freed = run.effect(free_room, amount=run.state.nights).id
            return hotel.leads["free"](self) if "free" in hotel.leads else succeed()

        @step(end=True)
        def later(self, run: Run[Stay]) -> None:
            hotel.run("later")

    return BookStay


def broken() -> list[str]:
    return [f"{one.code}: {one.text}" for one in doctor.examine() if one.severity is not Severity.ATTENTION]


def start(hotel: Hotel, **options: object) -> WorkflowRun:
    return api.start(stay_workflow(hotel, **options), {})  # type: ignore[arg-type]


def cancel(run: WorkflowRun) -> WorkflowRun:
    return api.cancel(run.pk, reason="changed my mind")


def kinds(run: WorkflowRun) -> list[str]:
    return list(RunEvent.objects.filter(run=run).order_by("sequence").values_list("kind", flat=True))
