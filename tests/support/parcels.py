"""A workflow that operators are needed for: it packs, pays the carrier, and hands over; each of them can go wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from durableflows import (
    Budget,
    Facts,
    Money,
    Permanent,
    Retry,
    Run,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    effect,
    fail,
    step,
)
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import EffectCall
from tests.support.flows import PayReceipt, Provider


class Parcel(WorkflowState):
    """What the run remembers."""

    ask: bool = False
    rounds: int = 0
    paid: str = ""
    note_id: str = ""


@dataclass
class Depot:
    """The carrier, the mailer, and what goes wrong at the handover; how often each body ran."""

    carrier: Provider = field(default_factory=Provider)
    mailer: Provider = field(default_factory=Provider)
    handing: list[Exception] = field(default_factory=list)
    during: Callable[[str], object] | None = None
    ran: list[str] = field(default_factory=list)

    def run(self, name: str) -> None:
        """A body begins."""
        self.ran.append(name)
        if self.during is not None:
            self.during(name)


def paying(depot: Depot) -> EffectDefinition[PayReceipt]:
    """The carrier takes money."""

    @effect(name="post.pay", provider="post", receipt=PayReceipt, key_window=timedelta(hours=24), settle_seconds=30)
    def pay_carrier(call: EffectCall, *, amount: Money) -> PayReceipt:
        return depot.carrier.send(call, amount.amount_minor)

    return pay_carrier


def telling(depot: Depot) -> EffectDefinition[PayReceipt]:
    """The customer gets a mail."""

    @effect(name="post.tell", provider="mail", receipt=PayReceipt, key_window=timedelta(hours=24), settle_seconds=30)
    def tell_customer(call: EffectCall, *, text: str) -> PayReceipt:
        return depot.mailer.send(call, len(text))

    return tell_customer


def parcel_workflow(depot: Depot, *, limits: Budget | None = None, days: int = 10) -> type[Workflow[Parcel]]:
    """pack (again and again) -> (sign_off ->) pay -> hand_over -> tell. Declare it inside `registry.isolated()`."""

    pay_carrier, tell_customer = paying(depot), telling(depot)

    def show(run: Run[Parcel]) -> Facts:
        return Facts(binding={"rounds": run.state.rounds})

    class Send(Workflow[Parcel]):
        """Send a parcel."""

        name, deadline = "send", timedelta(days=days)
        budget = limits or Budget()

        sign_off = approval(
            title="Send it",
            shows=show,
            permission="durableflows.answer_approval",
            approved="pay",
            rejected="give_up",
            expires=timedelta(days=30),
        )

        @step(start=True, to=("pack", "sign_off", "pay"))
        def pack(self, run: Run[Parcel]) -> StepReturn:
            depot.run("pack")
            if run.state.rounds > 0:
                run.state.rounds -= 1
                return self.pack
            return self.sign_off if run.state.ask else self.pay

        @step(to="hand_over", effects=(pay_carrier,), retry=Retry(attempts=3, base_seconds=60))
        def pay(self, run: Run[Parcel]) -> None:
            depot.run("pay")
            run.state.paid = run.effect(pay_carrier, amount=Money(1250, "EUR")).id

        @step(to="tell", retry=Retry(attempts=2, base_seconds=60))
        def hand_over(self, run: Run[Parcel]) -> None:
            depot.run("hand_over")
            if depot.handing:
                raise depot.handing.pop(0)

        @step(end=True, effects=(tell_customer,))
        def tell(self, run: Run[Parcel]) -> None:
            depot.run("tell")
            run.state.note_id = run.effect(tell_customer, text="sent").id

        @step(end=True)
        def give_up(self, run: Run[Parcel]) -> StepReturn:
            return fail("nobody wants it sent")

    return Send


def lost_address() -> Permanent:
    """The handover fails for good."""
    return Permanent("the address does not exist")
