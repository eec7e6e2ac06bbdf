"""An order that comes by every boundary: it asks a person, waits, starts a child, pays, writes, and is taken back."""

from datetime import timedelta

from durableflows import (
    EffectCall,
    Facts,
    Found,
    NotFound,
    Retry,
    Run,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    child,
    effect,
    step,
    wait_for,
)
from durableflows.core.definition import EffectDefinition
from tests.support.flows import PayReceipt, Provider

TRIES = Retry(attempts=4, base_seconds=2, cap_seconds=60, within=timedelta(hours=20))


class OrderState(WorkflowState):
    """What the run remembers."""

    amount: int
    parts: list[str] = []
    receipt_id: str | None = None
    mail_id: str | None = None


def mail_effect(mails: Provider, *, keyed: bool, lookup: bool) -> EffectDefinition[PayReceipt]:
    """The second effect."""

    def find(call: EffectCall, *, amount: int) -> Found[PayReceipt] | NotFound:
        answer = mails.find(call)
        assert isinstance(answer, Found | NotFound)
        return answer

    window = timedelta(hours=24) if keyed else None

    @effect(name="test.mail", provider="mail", receipt=PayReceipt, lookup=find if lookup else None, key_window=window)
    def mail(call: EffectCall, *, amount: int) -> PayReceipt:
        return mails.send(call, amount)

    return mail


def return_effect(returns: Provider, *, keyed: bool, lookup: bool) -> EffectDefinition[PayReceipt]:
    """What undoes the payment."""

    def find(call: EffectCall, *, receipt: PayReceipt) -> Found[PayReceipt] | NotFound:
        answer = returns.find(call)
        assert isinstance(answer, Found | NotFound)
        return answer

    window = timedelta(hours=24) if keyed else None
    given = {"lookup": find if lookup else None, "key_window": window, "resend_when_absent": lookup}

    @effect(name="test.return", provider="test", receipt=PayReceipt, **given)  # type: ignore[arg-type]
    def pay_back(call: EffectCall, *, receipt: PayReceipt) -> PayReceipt:
        return returns.send(call, 5)

    return pay_back


def book_effect(books: Provider) -> EffectDefinition[PayReceipt]:
    """A row of our own database."""

    @effect(name="test.book", provider="books", receipt=PayReceipt, transactional=True)
    def book(call: EffectCall, *, amount: int) -> PayReceipt:
        return books.send(call, amount)

    return book


def helper_workflow() -> type[Workflow[OrderState]]:
    class Helper(Workflow[OrderState]):
        """The child: it does nothing, and ends."""

        name, version = "helper", 1
        deadline = timedelta(days=1)

        @step(start=True, end=True)
        def rest(self, run: Run[OrderState]) -> None: ...

    return Helper


def amount_of(run: Run[OrderState]) -> Facts:
    """What the manager sees."""
    return Facts(binding={"amount": run.state.amount})


def order_workflow(
    pay_it: EffectDefinition[PayReceipt], mail_it: EffectDefinition[PayReceipt], book_it: EffectDefinition[PayReceipt]
):
    helper = helper_workflow()

    class Order(Workflow[OrderState]):
        """Ask, pay, write."""

        name, version = "order", 1
        deadline = timedelta(days=14)
        on_cancel = "take_back"
        undo_on_cancel = True

        sign_off = approval(
            title="Pay {amount}",
            shows=amount_of,
            permission="durableflows.answer_approval",
            approved="pay",
            rejected="tell",
        )

        @step(start=True, to=("go_on", "sign_off"), effects=(book_it,))
        def assess(self, run: Run[OrderState]) -> StepReturn:
            run.note("assessed")
            run.effect(book_it, amount=run.state.amount)
            if "signal" in run.state.parts:
                return wait_for("begin", then=self.go_on)
            if "child" in run.state.parts:
                return child(helper, {"amount": 1}, then=self.go_on)
            return self.sign_off

        @step(to="sign_off")
        def go_on(self, run: Run[OrderState]) -> None:
            assert run.signal or run.child

        @step(to="tell", effects=(pay_it,), retry=TRIES)
        def pay(self, run: Run[OrderState]) -> None:
            run.state.receipt_id = run.effect(pay_it, amount=run.state.amount).id

        @step(end=True, effects=(mail_it,), retry=TRIES)
        def tell(self, run: Run[OrderState]) -> None:
            run.state.mail_id = run.effect(mail_it, amount=run.state.amount).id

        @step(end=True)
        def take_back(self, run: Run[OrderState]) -> None:
            run.note("taken back")

    return Order
