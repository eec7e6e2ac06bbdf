"""A workflow that goes on in each way there is, with effects at three kinds of providers: what real-process chaos runs.

begin -> items side by side, a charge then a signal, a timer then a child -> all joined -> sign-off -> ship -> close
"""

from datetime import timedelta
from decimal import Decimal

from django.contrib.auth.models import Group

from durableflows import (
    Budget,
    Facts,
    Retry,
    Run,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    child,
    each,
    sleep,
    step,
    succeed,
    wait_for,
)
from tests.worker_app.providers import buy_stamp, charge_card, send_parcel

PATIENT = Retry(attempts=15, base_seconds=0.3, cap_seconds=3)
HANDS = 3
"""How many branches add one to `hands`: a lost or doubled settlement shows in the sum."""


class StormState(WorkflowState):
    """`seconds`: the timer; `items`: keys of the items; `hands`: changed by several branches at once."""

    number: int
    seconds: float
    items: list[str]
    hands: int = 0
    stamped: int = 0
    paid: int = 0


class LeafState(WorkflowState):
    """Whose child it is."""

    parent: str
    number: int


class StormLeaf(Workflow[LeafState]):
    """One parcel, for its parent."""

    name, version = "storm_leaf", 1
    deadline = timedelta(days=1)
    budget = Budget(attempts=100, tool_calls=100)

    @step(start=True, end=True, effects=(send_parcel,), retry=PATIENT, timeout_seconds=15)
    def pack(self, run: Run[LeafState]) -> StepReturn:
        slip = run.effect(send_parcel, reference=f"{run.state.parent}.{run.state.number}.leaf")
        return succeed(slip.id)


def shown(run: Run[StormState]) -> Facts:
    """What the boss sees."""
    return Facts(binding={"number": run.state.number, "hands": run.state.hands})


class Storm(Workflow[StormState]):
    """Branches, items, a child, a timer, a signal, a sign-off, and effects in between."""

    name, version = "storm", 1
    deadline = timedelta(days=1)
    budget = Budget(attempts=500, tool_calls=500, model_calls=100, cost_usd=Decimal(10))

    @step(start=True, to=("stamp", "gathered", "charge", "remind"), retry=PATIENT)
    def begin(self, run: Run[StormState]) -> StepReturn:
        items = each(self.stamp, run.state.items, key=str, limit=2, failures="collect", then=self.gathered)
        return items, self.charge, sleep(timedelta(seconds=run.state.seconds), then=self.remind)

    @step(to="gathered", effects=(buy_stamp,), retry=PATIENT, timeout_seconds=15)
    def stamp(self, run: Run[StormState]) -> None:
        slip = run.effect(buy_stamp, reference=f"{run.id}.{run.state.number}.{run.item_key}")
        run.give_result(slip.id)

    @step(join=True, to="meet", retry=PATIENT)
    def gathered(self, run: Run[StormState]) -> None:
        run.state.stamped = sum(one.succeeded for one in run.results(self.stamp))
        run.state.hands += 1

    @step(to="paid", effects=(charge_card,), retry=PATIENT, timeout_seconds=15)
    def charge(self, run: Run[StormState]) -> StepReturn:
        run.effect(charge_card, reference=f"{run.id}.{run.state.number}.charge")
        return wait_for("paid", then=self.paid)

    @step(to="meet", retry=PATIENT)
    def paid(self, run: Run[StormState]) -> None:
        assert run.signal is not None
        run.state.paid += 1
        run.state.hands += 1

    @step(to="packed", retry=PATIENT)
    def remind(self, run: Run[StormState]) -> StepReturn:
        leaf = {"parent": run.id, "number": run.state.number}
        return child(StormLeaf, leaf, then=self.packed, on_failure=self.packed)

    @step(to="meet", retry=PATIENT)
    def packed(self, run: Run[StormState]) -> None:
        assert run.child is not None
        run.state.hands += 1

    @step(join=True, to="sign_off", retry=PATIENT)
    def meet(self, run: Run[StormState]) -> None:
        with run.model_call("small", estimate_usd=Decimal("0.02")) as call:
            call.cost_usd = Decimal("0.01")

    sign_off = approval(
        title="Ship {number}",
        shows=shown,
        permission="durableflows.answer_approval",
        approved="ship",
        rejected="close",
    )

    @step(to="close", effects=(send_parcel,), retry=PATIENT, timeout_seconds=15)
    def ship(self, run: Run[StormState]) -> None:
        run.effect(send_parcel, reference=f"{run.id}.{run.state.number}.ship")

    @step(end=True, atomic=True, retry=PATIENT)
    def close(self, run: Run[StormState]) -> StepReturn:
        Group.objects.create(name=f"closed {run.id}")  # unique: a second time would be an error
        return succeed({"hands": run.state.hands, "paid": run.state.paid, "stamped": run.state.stamped})
