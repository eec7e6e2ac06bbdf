"""A small workflow around one effect, and a provider that a test scripts: books, lost answers, keys or none."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from durableflows import (
    CannotTell,
    EffectCall,
    Escalate,
    EventOutcome,
    EventReading,
    Facts,
    Found,
    NotFound,
    Retry,
    Run,
    StepRef,
    Workflow,
    WorkflowState,
    approval,
    effect,
    step,
)
from durableflows.core.definition import EffectDefinition


class PayState(WorkflowState):
    """What a payment run remembers."""

    amount: int
    receipt_id: str | None = None
    ask: bool = False


class PayReceipt(BaseModel, frozen=True):
    """What the provider answers."""

    id: str
    status: str = "done"


Body = dict[str, Any]
Fault = Callable[["Provider", EffectCall, int], PayReceipt]


@dataclass
class Provider:
    """Books of a payment provider. `faults` are used up one a send; without one it acts and answers."""

    keyed: bool = True
    faults: list[Fault] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    lookup_answers: list[object] = field(default_factory=list)
    known: dict[str, PayReceipt] = field(default_factory=dict)
    before_call: Callable[[EffectCall], None] | None = None

    def act(self, key: str, amount: int, status: str = "done") -> PayReceipt:
        """Move money, once a key when keys are honoured."""
        if self.keyed and key in self.known:
            return self.known[key]
        self.acts.append(key)
        receipt = PayReceipt(id=f"pay_{len(self.acts)}", status=status)
        self.known[key] = receipt
        return receipt

    def send(self, call: EffectCall, amount: int) -> PayReceipt:
        """Take a request."""
        self.sends.append(call.key)
        if self.before_call is not None:
            self.before_call(call)
        if self.faults:
            return self.faults.pop(0)(self, call, amount)
        return self.act(call.key, amount)

    def find(self, call: EffectCall) -> object:
        """Say whether a request with this key was carried out."""
        self.lookups.append(call.key)
        if self.lookup_answers:
            return self.lookup_answers.pop(0)
        found = self.known.get(call.key)
        return Found(found) if found else NotFound()


def act_then_raise(error: Exception) -> Fault:
    """The provider acts; the answer is `error`."""

    def fault(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        provider.act(call.key, amount)
        raise error

    return fault


def raise_without_acting(error: Exception) -> Fault:
    """Nothing happens but the error."""

    def fault(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        raise error

    return fault


def answer_pending(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
    """The provider accepts and is not done."""
    return provider.act(call.key, amount, status="pending")


def act_after(seconds: float) -> Fault:
    """Slow on the worker's own clock."""

    def fault(provider: Provider, call: EffectCall, amount: int) -> PayReceipt:
        time.sleep(seconds)
        return provider.act(call.key, amount)

    return fault


def pay_effect(
    provider: Provider,
    *,
    key_window: timedelta | None = timedelta(hours=24),
    with_lookup: bool = True,
    resend_when_absent: bool = False,
    event: Callable[..., EventReading | None] | None = None,
    undo: EffectDefinition[PayReceipt] | None = None,
) -> EffectDefinition[PayReceipt]:
    """An effect at this provider."""

    def find(call: EffectCall, *, amount: int) -> Found[PayReceipt] | NotFound | CannotTell:
        answer = provider.find(call)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Found | NotFound | CannotTell)
        return answer

    @effect(
        name="test.pay",
        provider="test",
        receipt=PayReceipt,
        lookup=find if with_lookup else None,
        key_window=key_window,
        settle_seconds=30,
        timeout_seconds=10,
        accepted=lambda receipt: receipt.status == "pending",
        accepted_within=timedelta(days=2),
        resend_when_absent=resend_when_absent,
        event=event,
        undo=undo,
    )
    def pay(call: EffectCall, *, amount: int) -> PayReceipt:
        return provider.send(call, amount)

    return pay


def told(status: str, *, key: str = "", ref: str = "pay_1", amount: int = 5, at: datetime | None = None) -> Body:
    """An event as this provider sends it: what `read_event` reads."""
    return {"key": key, "id": ref, "status": status, "amount": amount, "at": at.isoformat() if at else None}


def read_event(body: Mapping[str, Any]) -> EventReading | None:
    """The reader of this provider's events."""
    if "status" not in body:
        return None
    outcome = {"pending": EventOutcome.PENDING, "done": EventOutcome.HAPPENED, "failed": EventOutcome.FAILED}
    return EventReading(
        outcome=outcome[body["status"]],
        key=body["key"],
        reference=body["id"],
        receipt=None if body["status"] == "failed" else PayReceipt(id=body["id"], status=body["status"]),
        facts={"amount": body["amount"]},
        reason="the bank said no" if body["status"] == "failed" else "",
        at=datetime.fromisoformat(body["at"]) if body["at"] else None,
    )


def pay_workflow(
    provider: Provider,
    pay_it: EffectDefinition[PayReceipt] | None = None,
    *,
    facts: Callable[[], dict[str, object]] | None = None,
    retry: Retry | None = None,
    quorum: int = 1,
    body: Callable[[Run[PayState]], None] | None = None,
    recheck: Callable[[Run[PayState]], bool | str | None] | None = None,
) -> type[Workflow[PayState]]:
    """assess -> (sign_off ->) pay -> done. Declare it inside `registry.isolated()`."""
    used = pay_it or pay_effect(provider)
    tries = retry or Retry(attempts=4, base_seconds=2, cap_seconds=60, within=timedelta(hours=20))
    shown = facts or (lambda: {"to": "Ada"})

    def show(run: Run[PayState]) -> Facts:
        return Facts(binding={"amount": run.state.amount, **shown()}, context={"why": "a test"})

    class Pay(Workflow[PayState]):
        """Pay somebody."""

        name, version = "pay", 1
        deadline = timedelta(days=14)

        @step(start=True, to=("sign_off", "pay"))
        def assess(self, run: Run[PayState]) -> StepRef:
            return self.sign_off if run.state.ask else self.pay

        sign_off = approval(
            title="Pay {amount} to {to}",
            shows=show,
            permission="durableflows.answer_approval",
            approved="pay",
            rejected="turned_down",
            quorum=quorum,
            expires=timedelta(days=3),
            on_expiry=Escalate("durableflows.operate_run", then="deny"),
        )

        @step(to="done", effects=(used,), retry=tries, recheck=recheck, on_refused="turned_down" if recheck else None)
        def pay(self, run: Run[PayState]) -> None:
            if body is not None:
                body(run)
            run.state.receipt_id = run.effect(used, amount=run.state.amount).id

        @step(end=True)
        def done(self, run: Run[PayState]) -> None:
            run.note("paid")

        @step(end=True)
        def turned_down(self, run: Run[PayState]) -> None:
            run.note("turned down")

    return Pay
