"""A workflow as users write it: the design's example, typed, and what reading it gives."""

from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import timedelta
from decimal import Decimal
from types import new_class
from typing import Any, Generic, assert_type

import pytest
from pydantic import BaseModel, ConfigDict

from durableflows import (
    Budget,
    CannotTell,
    EffectCall,
    Escalate,
    Facts,
    Found,
    InvalidDefinition,
    Money,
    NotFound,
    Retry,
    Run,
    StepRef,
    StepReturn,
    Workflow,
    WorkflowState,
    approval,
    effect,
    step,
    succeed,
)
from durableflows.core import registry
from durableflows.core.definition import StepKind
from durableflows.core.state import S


class NotRefundable(Exception):  # the name that the design gives it
    pass


class RefundReceipt(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    id: str
    status: str


class RefundState(WorkflowState):
    request_id: int
    charge_id: str
    amount: Money
    refund_id: str | None = None


def find_refund(call: EffectCall, *, charge_id: str, amount: Money) -> Found[RefundReceipt] | NotFound | CannotTell:
    return CannotTell("index is behind")


@effect(
    name="payments.refund",
    provider="payments",
    receipt=RefundReceipt,
    lookup=find_refund,
    undo=None,
    key_window=timedelta(hours=24),
    settle_seconds=30,
    timeout_seconds=10,
    accepted=lambda receipt: receipt.status == "pending",
)
def refund_payment(call: EffectCall, *, charge_id: str, amount: Money) -> RefundReceipt:
    return RefundReceipt(id=call.key, status="succeeded")


@effect(name="mail.send", provider="mail", receipt=str)
def send_mail(call: EffectCall, *, template: str, request_id: int) -> str:
    return call.key


def refund_facts(run: Run[RefundState]) -> Facts:
    return Facts(binding={"amount": run.state.amount}, context={"order": run.state.request_id})


def still_refundable(run: Run[RefundState]) -> bool:
    return run.state.refund_id is None


def declare_refund() -> type[Workflow[RefundState]]:
    """The example of the design; mypy checks it as a user's file."""

    class Refund(Workflow[RefundState]):
        """Return a customer's money, with a manager's sign-off above the limit."""

        name, version = "refund", 1
        deadline = timedelta(days=14)
        budget = Budget(tool_calls=20, model_calls=10, cost_usd=Decimal("2.00"), iterations=50)

        @step(start=True, to=("sign_off", "pay"))
        def assess(self, run: Run[RefundState]) -> StepRef:
            assert_type(self.pay, StepRef)
            assert_type(self.sign_off, StepRef)
            return self.sign_off if run.state.amount > Money(50000, "USD") else self.pay

        sign_off = approval(
            title="Refund {amount} for order {order}",
            shows=refund_facts,
            permission="customer_ops.approve_refund",
            exclude_requester=True,
            quorum=1,
            expires=timedelta(days=3),
            on_expiry=Escalate("customer_ops.approve_any_refund", then="deny"),
            approved="pay",
            rejected="tell_customer",
        )

        @step(
            to="settle",
            queue="payments",
            effects=(refund_payment,),
            recheck=still_refundable,
            on_refused="tell_customer",
            permanent=(NotRefundable,),
            retry=Retry(attempts=6, base_seconds=2, cap_seconds=300, within=timedelta(hours=20)),
        )
        def pay(self, run: Run[RefundState]) -> None:
            receipt = run.effect(refund_payment, charge_id=run.state.charge_id, amount=run.state.amount)
            assert_type(receipt, RefundReceipt)
            run.state.refund_id = receipt.id

        @step(to="tell_customer", atomic=True)
        def settle(self, run):
            pass

        @step(end=True, effects=(send_mail,))
        def tell_customer(self, run: Run[RefundState]) -> StepReturn:
            assert_type(run.effect(send_mail, template="refund", request_id=run.state.request_id), str)
            return succeed() if run.decision(self.sign_off).approved else None

    return Refund


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with registry.isolated():
        yield


def test_the_example_is_read_into_a_definition() -> None:
    refund = declare_refund()
    definition = refund.definition

    assert (definition.name, definition.version, definition.start) == ("refund", 1, "assess")
    assert definition.doc == "Return a customer's money, with a manager's sign-off above the limit."
    assert definition.state_type is RefundState
    assert (definition.deadline, definition.budget.tool_calls) == (timedelta(days=14), 20)
    assert list(definition.steps) == ["assess", "sign_off", "pay", "settle", "tell_customer"]
    assert dict(definition.effects) == {"payments.refund": refund_payment, "mail.send": send_mail}
    assert isinstance(definition.workflow, refund)
    assert registry.get("refund") is definition


def test_steps_of_the_example() -> None:
    steps = declare_refund().definition.steps

    assert (steps["assess"].kind, steps["assess"].to, steps["assess"].start) == (
        StepKind.TASK,
        ("sign_off", "pay"),
        True,
    )
    assert (steps["pay"].queue, steps["pay"].permanent, steps["pay"].on_refused) == (
        "payments",
        (NotRefundable,),
        "tell_customer",
    )
    assert steps["pay"].leads_to == ("settle", "tell_customer")
    assert (steps["settle"].atomic, steps["settle"].retry) == (True, Retry())
    assert (steps["tell_customer"].end, steps["tell_customer"].effects) == (True, (send_mail,))


def test_approval_of_the_example() -> None:
    sign_off = declare_refund().definition.step("sign_off")
    spec = sign_off.approval

    assert spec is not None
    assert (sign_off.kind, sign_off.to, sign_off.function) == (StepKind.APPROVAL, ("pay", "tell_customer"), None)
    assert [rung.permission for rung in spec.ladder()] == ["customer_ops.approve_any_refund"]
    assert (spec.approved, spec.rejected, spec.quorum, spec.exclude_requester) == ("pay", "tell_customer", 1, True)


def test_task_names_and_unknown_steps() -> None:
    definition = declare_refund().definition

    assert definition.run_step_task_name("pay") == "refund.pay"
    with pytest.raises(InvalidDefinition, match="no step 'pya'"):
        definition.step("pya")


def test_a_step_function_gets_the_instance_and_gives_references() -> None:
    definition = declare_refund().definition
    assess = definition.step("assess").function

    class Fake:
        state = RefundState(request_id=1, charge_id="ch_1", amount=Money(50001, "USD"))

    assert assess is not None
    assert assess(definition.workflow, Fake()) == StepRef("sign_off")


def test_calling_a_reference_says_what_to_do() -> None:
    refund: Any = declare_refund()

    with pytest.raises(InvalidDefinition, match="return the step, do not call it"):
        refund.pay("run")


@pytest.mark.parametrize("target", ["class", "instance"])
def test_a_workflow_cannot_be_changed(target: str) -> None:
    refund: Any = declare_refund()

    with pytest.raises(InvalidDefinition, match=r"Refund\.total cannot be set.*run\.state.*return it, do not call it"):
        (refund if target == "class" else refund.definition.workflow).total = 1


def test_definitions_are_frozen() -> None:
    definition: Any = declare_refund().definition

    with pytest.raises(FrozenInstanceError):
        definition.name = "other"
    with pytest.raises(FrozenInstanceError):
        definition.step("pay").end = True
    with pytest.raises(TypeError):
        definition.steps["x"] = definition.step("pay")


def test_a_class_without_a_name_is_abstract_and_gives_its_steps() -> None:
    class Base(Workflow[S], Generic[S]):
        deadline = timedelta(days=1)

        @step(start=True, to="finish")
        def begin(self, run):
            return self.finish

        @step(end=True)
        def finish(self, run):
            pass

    class Concrete(Base[RefundState]):
        name = "concrete"

        @step(end=True)
        def finish(self, run):
            pass

    assert registry.known() == (("concrete", 1),)
    assert not hasattr(Base, "definition")
    assert Concrete.definition.state_type is RefundState
    assert list(Concrete.definition.steps) == ["begin", "finish"]
    assert "Concrete.finish" in repr(Concrete.definition.step("finish").function)


def test_versions_live_side_by_side() -> None:
    first = declare_refund()
    second: Any = new_class("RefundV2", (first,), {}, lambda body: body.update(name="refund", version=2))

    assert registry.known() == (("refund", 1), ("refund", 2))
    assert registry.get("refund") is second.definition
    assert registry.get("refund", 1) is first.definition
