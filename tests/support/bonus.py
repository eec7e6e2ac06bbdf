"""A small workflow that asks a person; a test may change its facts between showing and answering."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from durableflows import EffectCall, Facts, Money, Run, Workflow, WorkflowState, approval, effect, step

PERMISSION = "auth.change_group"
OTHER_PERMISSION = "auth.delete_group"


class BonusState(WorkflowState):
    """What a bonus run remembers."""

    amount: Money
    customer: str = "Ada"


class Receipt(BaseModel):
    """What the bank answers."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    note: str


@effect(name="bonus.give", provider="bank", receipt=Receipt, key_window=timedelta(hours=24))
def give(call: EffectCall, *, customer: str, api_key: str) -> Receipt:
    call.check()
    return Receipt(id="b_1", note=f"for {customer}")


SHOWN: dict[str, Any] = {}
"""What a test changes about the facts between showing and answering."""


def declare(quorum: int = 1) -> type[Workflow[BonusState]]:
    def facts(run: Run[BonusState]) -> Facts:
        if SHOWN.get("broken"):
            raise LookupError("the customer is gone")
        binding = {"amount": run.state.amount, "customer": run.state.customer}
        return Facts(binding=binding | SHOWN, context={"loyal_since": "2019"})

    asked = approval(
        title="Bonus for {customer}",
        shows=facts,
        permission=PERMISSION,
        quorum=quorum,
        expires=timedelta(days=2),
        approved="pay",
        rejected="apologise",
    )

    class Bonus(Workflow[BonusState]):
        name, version = "bonus", quorum
        deadline = timedelta(days=9)

        @step(start=True, to="ask")
        def prepare(self, run: Run[BonusState]) -> None: ...

        ask = asked

        @step(end=True, effects=(give,))
        def pay(self, run: Run[BonusState]) -> None:
            run.effect(give, customer=run.state.customer, api_key="key-1234567890")

        @step(end=True)
        def apologise(self, run: Run[BonusState]) -> None: ...

    return Bonus
