"""Which effect an event is about, where a provider has several: by its reader and receipt, not by a name alone."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from durableflows import EffectCall, EventOutcome, EventReading, Run, Workflow, api, effect, step
from durableflows.core.definition import EffectDefinition
from durableflows.core.states import EffectState, RunState
from durableflows.models import ProviderEvent, SideEffect, WorkflowRun
from durableflows.testing import World
from tests.support.flows import PayReceipt, PayState
from tests.support.look import state_of

pytestmark = pytest.mark.django_db(transaction=True)


class Ticket(BaseModel, frozen=True):
    """Another kind of receipt of the same provider."""

    id: str
    desk: str


Reader = Callable[[Mapping[str, Any]], EventReading | None]


def read_all(body: Mapping[str, Any]) -> EventReading:
    """One reader for all that the provider tells."""
    receipt = PayReceipt(id=body["id"]) if body["kind"] == "pay" else Ticket(id=body["id"], desk="north")
    return EventReading(outcome=EventOutcome.HAPPENED, key=body["key"], reference=body["id"], receipt=receipt)


def read_payments(body: Mapping[str, Any]) -> EventReading | None:
    """A reader of one kind."""
    return read_all(body) if body["kind"] == "pay" else None


PENDING: dict[str, Any] = {"provider": "p", "accepted": lambda receipt: True, "accepted_within": timedelta(days=1)}


def open_ticket(reader: Reader | None) -> EffectDefinition[Ticket]:
    @effect(name="p.ticket", receipt=Ticket, event=reader, left_to_person=True, **PENDING)
    def ticket(call: EffectCall, *, amount: int) -> Ticket:
        return Ticket(id="17", desk="north")

    return ticket


def start(reader: Reader | None) -> WorkflowRun:
    """A run whose ticket is pending, and which pays after it; payments have a reader of their own, or the same."""
    ticket = open_ticket(reader)

    @effect(name="p.pay", receipt=PayReceipt, event=reader or read_payments, left_to_person=True, **PENDING)
    def pay(call: EffectCall, *, amount: int) -> PayReceipt:
        return PayReceipt(id="pay_1")

    class Serve(Workflow[PayState]):
        name, deadline = "serve", timedelta(days=9)

        @step(start=True, to="settle", effects=(ticket,))
        def ask(self, run: Run[PayState]) -> None:
            run.effect(ticket, amount=1)

        @step(end=True, effects=(pay,))
        def settle(self, run: Run[PayState]) -> None:
            run.effect(pay, amount=1)

    return api.start(Serve, {"amount": 1})


def tell(kind: str, name: str, *, key: str = "") -> ProviderEvent:
    body = {"kind": kind, "id": name, "key": key}
    return api.provider_event("p", f"{kind} {name}", body)


def test_one_reader_serves_effects_with_receipts_of_different_kinds(world: World):
    run = start(read_all)
    world.run_until_idle()
    first = tell("ticket", "17", key=SideEffect.objects.get(run=run).key)
    world.run_until_idle()

    second = tell("pay", "pay_1")
    world.run_until_idle()

    assert (first.verdict, second.verdict) == ("settled", "settled")
    assert (first.read_as, second.read_as) == (["p.ticket"], ["p.pay"])
    assert state_of(run) is RunState.SUCCEEDED


def test_a_name_is_one_of_its_own_kind_alone(world: World):
    """A payment that is called 17 too, and may be somebody else's, says nothing of our ticket 17."""
    run = start(None)
    world.run_until_idle()

    event = tell("pay", "17")

    assert event.verdict == "unmatched"
    assert SideEffect.objects.get(run=run).state == EffectState.ACCEPTED


def test_a_key_of_an_effect_of_another_kind_settles_nothing_and_is_loud(world: World):
    run = start(None)
    world.run_until_idle()
    row = SideEffect.objects.get(run=run)

    event = tell("pay", "17", key=row.key)

    assert (event.verdict, event.effect_id) == ("contradiction", row.pk)
    row.refresh_from_db()
    assert (row.state, row.receipt) == (EffectState.ACCEPTED, {"id": "17", "desk": "north"})
    assert "it was read as one of p.pay" in row.contradiction
    assert state_of(run) is RunState.WAITING


def test_what_is_read_anew_is_kept_beside_the_body_that_it_was_read_from(world: World):
    """The first one could not be read; the same id comes again with another body."""
    run = start(read_all)
    world.run_until_idle()
    api.provider_event("p", "evt", {"kind": "ticket"})
    assert ProviderEvent.objects.get().verdict == "unreadable"

    body = {"kind": "ticket", "id": "17", "key": SideEffect.objects.get(run=run).key}
    first = ProviderEvent.objects.get().body_digest
    event = api.provider_event("p", "evt", body)

    assert (event.verdict, event.copies, event.body) == ("settled", 2, body)
    assert event.body_digest != first
