"""A workflow whose acts can be undone: a flight, a hotel and a letter, booked one after another or at once."""

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
    compensate,
    effect,
    step,
)
from durableflows.core.definition import EffectDefinition
from durableflows.models import SideEffect, WorkflowRun
from tests.support.bodies import Bodies
from tests.support.flows import PayReceipt, Provider


class Trip(WorkflowState):
    """What the run remembers."""

    nights: int = 2
    flight: str = ""
    hotel: str = ""
    letter: str = ""


@dataclass
class Agency(Bodies):
    """Providers of what is booked and of what undoes it, and what happens in which body."""

    flights: Provider = field(default_factory=Provider)
    hotels: Provider = field(default_factory=Provider)
    post: Provider = field(default_factory=Provider)
    undone: list[tuple[str, str, int]] = field(default_factory=list)
    unflights: Provider = field(default_factory=Provider)
    unhotels: Provider = field(default_factory=Provider)
    end: StepReturn = field(default_factory=lambda: compensate("no seats left"))


TIMES = {"key_window": timedelta(hours=24), "settle_seconds": 30, "timeout_seconds": 10}


def undo_at(agency: Agency, provider: Provider, name: str, **options: object) -> EffectDefinition[PayReceipt]:
    """An effect that takes a booking back, by its receipt."""

    def find(call: EffectCall, *, amount: int, receipt: PayReceipt) -> Found[PayReceipt] | NotFound:
        answer = provider.find(call)
        assert isinstance(answer, Found | NotFound)
        return answer

    @effect(name=name, provider="agency", receipt=PayReceipt, **{"lookup": find, **TIMES, **options})  # type: ignore[arg-type]
    def take_back(call: EffectCall, *, amount: int, receipt: PayReceipt) -> PayReceipt:
        agency.undone.append((name, receipt.id, amount))
        return provider.send(call, amount)

    return take_back


def at(
    provider: Provider, name: str, undo: EffectDefinition[PayReceipt] | None, **options: object
) -> EffectDefinition[PayReceipt]:
    """An effect at one of the providers, with keys and a lookup unless the test says otherwise."""

    def find(call: EffectCall, *, amount: int) -> Found[PayReceipt] | NotFound:
        answer = provider.find(call)
        assert isinstance(answer, Found | NotFound)
        return answer

    given = {"lookup": find, **TIMES, **options}

    @effect(name=name, provider="agency", receipt=PayReceipt, undo=undo, **given)  # type: ignore[arg-type]
    def act(call: EffectCall, *, amount: int) -> PayReceipt:
        return provider.send(call, amount)

    return act


def trip_workflow(
    agency: Agency,
    *,
    limits: Budget | None = None,
    within: timedelta = timedelta(days=1),
    cleanup: bool = False,
    **options: Any,
) -> type[Workflow[Trip]]:
    """fly -> sleep_over -> write -> confirm. For `registry.isolated()`. `options`: of the undo effects."""
    cancel_flight = undo_at(agency, agency.unflights, "flights.cancel", **options)
    cancel_hotel = undo_at(agency, agency.unhotels, "hotels.cancel", **options)
    book_flight = at(agency.flights, "flights.book", cancel_flight)
    book_hotel = at(agency.hotels, "hotels.book", cancel_hotel)
    send_letter = at(agency.post, "post.send", None)
    tries = Retry(attempts=3, base_seconds=60)

    class BookTrip(Workflow[Trip]):
        """Book a trip."""

        name, deadline = "trip", timedelta(days=3)
        budget = limits or Budget()
        undo_on_failure = undo_on_cancel = True
        undo_within = within
        on_failure = on_cancel = "tidy" if cleanup else None

        @step(start=True, to="sleep_over", effects=(book_flight,), retry=tries)
        def fly(self, run: Run[Trip]) -> None:
            run.state.flight = run.effect(book_flight, amount=run.state.nights).id
            agency.run("fly")

        @step(to="write", effects=(book_hotel,), retry=tries)
        def sleep_over(self, run: Run[Trip]) -> None:
            agency.run("sleep_over")
            run.state.hotel = run.effect(book_hotel, amount=run.state.nights).id

        @step(to="confirm", effects=(send_letter,), retry=tries)
        def write(self, run: Run[Trip]) -> None:
            run.state.letter = run.effect(send_letter, amount=1).id
            agency.run("write")

        @step(end=True, retry=tries)
        def confirm(self, run: Run[Trip]) -> StepReturn:
            agency.run("confirm")
            return agency.end

        if cleanup:

            @step(end=True)
            def tidy(self, run: Run[Trip]) -> None:
                agency.run("tidy")

    return BookTrip


def start(agency: Agency, **options: Any) -> WorkflowRun:
    return api.start(trip_workflow(agency, **options), {})


def books(run: WorkflowRun) -> dict[str, str]:
    """Effect -> its state."""
    return {row.effect: str(row.state) for row in SideEffect.objects.filter(run=run).order_by("id")}
