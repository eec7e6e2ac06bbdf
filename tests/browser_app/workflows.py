"""What browser tests act on and the project's own workflow has not: a second version, and acts that can be undone."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from durableflows import (
    EffectCall,
    Facts,
    Money,
    Permanent,
    Run,
    Workflow,
    WorkflowState,
    approval,
    effect,
    migration,
    step,
)

DAY = timedelta(days=1)
ASKED = "durableflows.operate_run"


class GiftState(WorkflowState):
    """Who is given what."""

    customer: str
    amount: Money


class GiftOfToday(GiftState):
    """What it remembers since version 2."""

    campaign: str


class Sent(BaseModel):
    """What each provider answers."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: str


@effect(name="vouchers.withdraw", provider="vouchers", receipt=Sent, key_window=DAY)
def withdraw_voucher(call: EffectCall, *, receipt: Sent) -> Sent:
    """It is worth nothing from then on."""
    return Sent(id=f"withdrawn-{receipt.id}")


@effect(name="vouchers.issue", provider="vouchers", receipt=Sent, key_window=DAY, undo=withdraw_voucher)
def issue_voucher(call: EffectCall, *, customer: str, amount: Money) -> Sent:
    """It can be spent from then on."""
    return Sent(id=f"voucher-{call.key[-8:]}")


@effect(name="post.send", provider="post", receipt=Sent, key_window=DAY)
def send_parcel(call: EffectCall, *, customer: str, postage: Money) -> Sent:
    """Nobody gets a parcel back that is on its way."""
    return Sent(id=f"parcel-{call.key[-8:]}")


class Voucher(Workflow[GiftState]):
    """A voucher and a parcel, and books that are closed: it fails after both have left."""

    name, version = "voucher", 1
    deadline = 9 * DAY

    @step(start=True, to="post", effects=(issue_voucher,))
    def issue(self, run: Run[GiftState]) -> None:
        run.effect(issue_voucher, customer=run.state.customer, amount=run.state.amount)

    @step(to="enter", effects=(send_parcel,))
    def post(self, run: Run[GiftState]) -> None:
        run.effect(send_parcel, customer=run.state.customer, postage=Money(500, "USD"))

    @step(end=True)
    def enter(self, run: Run[GiftState]) -> None:
        raise Permanent("the books of this month are closed")


def _facts(run: Run[Any]) -> Facts:
    return Facts(binding={"customer": run.state.customer, "amount": run.state.amount})


class GiftOfBefore(Workflow[GiftState]):
    """Ask, then give: as it was."""

    name, version = "gift", 1
    deadline = 9 * DAY

    @step(start=True, to="ask")
    def prepare(self, run: Run[GiftState]) -> None: ...

    ask = approval(
        title="Gift for {customer}", shows=_facts, permission=ASKED, expires=3 * DAY, approved="give", rejected="give"
    )

    @step(end=True)
    def give(self, run: Run[GiftState]) -> None: ...


class Gift(Workflow[GiftOfToday]):
    """The same with another name for the question, and with one field more."""

    name, version = "gift", 2
    deadline = 9 * DAY

    @migration(from_version=1, steps={"ask": "sign_off"})
    def from_1(self, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "campaign": "spring"}

    @step(start=True, to="sign_off")
    def prepare(self, run: Run[GiftOfToday]) -> None: ...

    sign_off = approval(
        title="Gift for {customer}", shows=_facts, permission=ASKED, expires=3 * DAY, approved="give", rejected="give"
    )

    @step(end=True)
    def give(self, run: Run[GiftOfToday]) -> None: ...
