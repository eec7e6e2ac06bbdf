"""Two releases of one workflow: pay becomes pay_out, a check is put before it, note goes, `amount` becomes `cents`."""

from datetime import timedelta
from typing import Any

from durableflows import Facts, Retry, Run, StepRef, Workflow, WorkflowState, approval, migration, step
from durableflows.core.definition import EffectDefinition


class Old(WorkflowState):
    """State of version 1."""

    amount: int
    ask: bool = False
    receipt_id: str | None = None


class New(WorkflowState):
    """State of version 2."""

    schema_version = 2

    cents: int
    ask: bool = False
    receipt_id: str | None = None


def facts(run: Run[Any]) -> Facts:
    """The same facts in both releases."""
    return Facts(binding={"amount": run.state.amount if isinstance(run.state, Old) else run.state.cents // 100})


def first_release(pay_it: EffectDefinition[Any]) -> type[Workflow[Old]]:
    """begin -> (sign_off ->) pay -> note."""

    class Paying(Workflow[Old]):
        name, version, deadline = "paying", 1, timedelta(days=30)

        @step(start=True, to=("sign_off", "pay"))
        def begin(self, run: Run[Old]) -> StepRef:
            return self.sign_off if run.state.ask else self.pay

        sign_off = approval(
            title="Pay {amount}",
            shows=facts,
            permission="durableflows.answer_approval",
            approved="pay",
            rejected="note",
        )

        @step(to="note", effects=(pay_it,), retry=Retry(attempts=5, base_seconds=600, cap_seconds=600))
        def pay(self, run: Run[Old]) -> None:
            run.state.receipt_id = run.effect(pay_it, amount=run.state.amount).id

        @step(end=True)
        def note(self, run: Run[Old]) -> None:
            run.note("paid by version 1")

    return Paying


def second_release(pay_it: EffectDefinition[Any], *, with_migration: bool = True) -> type[Workflow[New]]:
    """begin -> check -> (sign_off ->) pay_out."""

    def to_cents(self: Any, data: dict[str, Any]) -> dict[str, Any]:
        amount = data.pop("amount")
        return {**data, "cents": amount * 100}

    class Paying(Workflow[New]):
        name, version, deadline = "paying", 2, timedelta(days=30)

        if with_migration:
            from_1 = migration(from_version=1, steps={"pay": "pay_out", "note": "close"})(to_cents)

        @step(start=True, to="check")
        def begin(self, run: Run[New]) -> None: ...

        @step(to=("sign_off", "pay_out"))
        def check(self, run: Run[New]) -> StepRef:
            return self.sign_off if run.state.ask else self.pay_out

        sign_off = approval(
            title="Pay {amount}",
            shows=facts,
            permission="durableflows.answer_approval",
            approved="pay_out",
            rejected="close",
        )

        @step(to="close", effects=(pay_it,), retry=Retry(attempts=5, base_seconds=600, cap_seconds=600))
        def pay_out(self, run: Run[New]) -> None:
            run.state.receipt_id = run.effect(pay_it, amount=run.state.cents // 100).id

        @step(end=True)
        def close(self, run: Run[New]) -> None:
            run.note("paid by version 2")

    return Paying
