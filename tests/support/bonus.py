"""A small workflow that asks a person; a test may change its facts between showing and answering."""

from datetime import timedelta
from typing import Any

from durableflows import Facts, Money, Run, Workflow, WorkflowState, approval, step

PERMISSION = "auth.change_group"
OTHER_PERMISSION = "auth.delete_group"


class BonusState(WorkflowState):
    """What a bonus run remembers."""

    amount: Money
    customer: str = "Ada"


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

        @step(end=True)
        def pay(self, run: Run[BonusState]) -> None: ...

        @step(end=True)
        def apologise(self, run: Run[BonusState]) -> None: ...

    return Bonus
