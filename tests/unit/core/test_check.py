"""Each mistake in a declaration is refused at import, naming class, step and cure."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from types import ModuleType, new_class
from typing import Any, cast

import pytest

from durableflows import (
    Approvers,
    Band,
    Budget,
    EffectCall,
    Escalate,
    Facts,
    Fallback,
    InvalidDefinition,
    Money,
    Retry,
    Workflow,
    WorkflowState,
    approval,
    effect,
    step,
)
from durableflows.core import registry


class State(WorkflowState):
    number: int = 0


@effect(name="payments.refund", provider="payments", receipt=str, key_window=timedelta(hours=24))
def refund_payment(call: EffectCall) -> str:
    return "re_1"


@effect(name="payments.refund", provider="other", receipt=str)
def other_refund(call: EffectCall) -> str:
    return "re_1"


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with registry.isolated():
        yield


BANDS = (Band(Money(5, "USD"), None), Band(None, Approvers("app.may")))
STRANGER: Any = "x"
NOT_ONE: Any = BaseException


def body(self, run):
    pass


def pays(self, run):
    run.effect(refund_payment)


def pays_in_lambda(self, run):
    return [run.effect(refund_payment) for _ in range(3)]


def declare(*bases: type, **members: object) -> type[Workflow[State]]:
    """Declare a workflow of one step that works, but for what the case changes (None deletes)."""
    good = {"name": "refund", "deadline": timedelta(days=1), "pay": step(start=True, end=True)(body)}
    namespace = {name: value for name, value in {**good, **members}.items() if value is not None}
    return new_class("Refund", bases or (Workflow[State],), {}, lambda target: target.update(namespace))


def ask(**options: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "title": "?",
        "shows": Facts,
        "permission": "app.may",
        "approved": "pay",
        "rejected": "pay",
        "start": True,
    }
    return {"ask": approval(**{**good, **options}), "pay": step(end=True)(body)}


def test_the_smallest_workflow_works() -> None:
    assert list(declare().definition.steps) == ["pay"]
    assert list(declare(version=2, **ask()).definition.steps) == ["pay", "ask"]


CLEAN = {"free": step(end=True)(body), "on_cancel": "free"}


def test_a_workflow_may_name_where_its_clean_up_begins() -> None:
    declared = declare(**CLEAN, tell=step(to="free")(body), on_failure="tell", cleanup_within=timedelta(minutes=5))

    assert (declared.definition.on_failure, declared.definition.on_cancel) == ("tell", "free")
    assert declared.definition.cleanup_within == timedelta(minutes=5)
    assert declare(version=2).definition.cleanup_within == timedelta(hours=1)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"on_failure": "tel", "tell": step(end=True)(body)},
            r"on_failure names 'tel', which is no step, did you mean",
        ),
        (
            {"on_cancel": body},
            r"Refund: on_cancel is <function .*: name the step that cleans up, on_cancel = 'give_back'",
        ),
        ({"on_cancel": ""}, r"Refund: on_cancel is '': name the step"),
        ({"on_cancel": "pay"}, r"Refund\.pay: it belongs to the clean-up and to the way from the start"),
        (
            {**CLEAN, "free": step(to="pay")(body)},
            r"Refund\.pay: it belongs to the clean-up and to the way from the start",
        ),
        (
            {"pay": step(start=True, end=True, on_failure="free")(body), **CLEAN},
            r"Refund\.free: it belongs to the clean-up and to the way from the start",
        ),
        (
            {**CLEAN, "free": step(to="ask")(body), "ask": ask(start=False, approved="done", rejected="done")["ask"]}
            | {"done": step(end=True)(body)},
            r"Refund\.ask: an approval in a clean-up: the run ends whatever anybody answers",
        ),
        ({**CLEAN, "free": step(end=True, join=True)(body)}, r"Refund\.free: join=True where a clean-up begins"),
        ({**CLEAN, "free": step(to="free")(body)}, r"Refund\.free: no way leads from here to a step with end=True"),
        ({**CLEAN, "cleanup_within": 60}, r"Refund: cleanup_within 60 is not a time span"),
        ({**CLEAN, "cleanup_within": timedelta(0)}, r"Refund: cleanup_within .* is not a time span"),
        ({"cleanup_within": timedelta(hours=2)}, r"Refund: cleanup_within without on_failure or on_cancel"),
    ],
)
def test_a_clean_up_that_cannot_work_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        declare(**members)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"name": "Refund!"}, r"Refund: name 'Refund!' is not a slug"),
        ({"name": ""}, r"Refund: name '' is not a slug"),
        ({"version": 0}, r"Refund: version 0 is not a whole number from 1"),
        ({"version": True}, r"Refund: version True"),
        ({"version": "1"}, r"Refund: version '1'"),
        ({"deadline": None}, r"Refund: a deadline is missing.*write deadline = timedelta\(days=14\)"),
        ({"deadline": None, "deadlin": timedelta(1)}, r"Refund: a deadline is missing, did you mean 'deadlin'\?"),
        ({"deadline": 14}, r"Refund: deadline 14 is not a time span"),
        ({"deadline": timedelta(0)}, r"Refund: deadline .* is not a time span"),
        ({"budget": 20}, r"Refund: budget 20 is not a Budget"),
        ({"pay": None}, r"Refund: it has no steps"),
        ({"pay": step(end=True)(body)}, r"Refund: no step has start=True: .* perhaps 'pay'"),
        ({"again": step(start=True, end=True)(body)}, r"several steps have start=True \(pay, again\)"),
        ({"Pay": step(end=True)(body)}, r"Refund\.Pay: this name cannot be a step"),
        ({"budget": step(end=True)(body)}, r"Refund: budget .* is not a Budget"),
        ({"definition": step(end=True)(body)}, r"Refund\.definition: this name cannot be a step"),
        (
            {"pay": step(start=True, to="setle")(body), "settle": step(end=True)(body)},
            r"'setle', which is no step, did you mean 'settle'\?",
        ),
        (
            {"pay": step(start=True, to="tell")(body), "tell": body},
            r"Refund\.pay: to names 'tell', which is a method without @step",
        ),
        (
            {"pay": step(start=True, end=True, on_failure="x")(body)},
            r"Refund\.pay: on_failure names 'x', which is no step",
        ),
        (
            {"pay": step(start=True, end=True, recheck=bool, on_refused="pey")(body)},
            r"on_refused names 'pey'.*did you mean 'pay'",
        ),
        ({"pay": step(start=True)(body)}, r"Refund\.pay: it leads nowhere"),
        ({"lost": step(end=True)(body)}, r"Refund\.lost: no way leads here from the start"),
        ({"pay": step(start=True, to="pay")(body)}, r"Refund\.pay: no way leads from here to a step with end=True"),
        ({"pay": step(start=True, end=True, join=True)(body)}, r"Refund\.pay: join=True at the start"),
        ({"pay": step(start=True, end=True, on_refused="pay")(body)}, r"Refund\.pay: on_refused without recheck"),
        ({"pay": step(start=True, end=True, timeout_seconds=0)(body)}, r"Refund\.pay: timeout_seconds=0"),
        ({"pay": step(start=True, end=True, queue="")(body)}, r"Refund\.pay: queue='' is no queue"),
        ({"pay": step(start=True, end=True, permanent=(STRANGER,))(body)}, r"Refund\.pay: permanent='x': exception"),
        ({"pay": step(start=True, end=True, permanent=NOT_ONE)(body)}, r"permanent=.*exception classes"),
        (
            {"pay": step(start=True, end=True, permanent=KeyError, transient=KeyError)(body)},
            r"KeyError is permanent and transient",
        ),
        ({"pay": step(start=True, end=True, effects=(STRANGER,))(body)}, r"Refund\.pay: effects='x'.*put @effect"),
        (
            {"pay": step(start=True, end=True, atomic=True, effects=(refund_payment,))(body)},
            r"Refund\.pay: atomic=True with effects",
        ),
        (
            {"pay": step(start=True, end=True)(pays)},
            r"Refund\.pay: it uses effect payments\.refund without declaring it",
        ),
        (
            {"pay": step(start=True, end=True, timeout_seconds=14.9, effects=(refund_payment,))(pays)},
            r"ends the step inside a call",
        ),
        (
            {"pay": step(start=True, end=True, effects=(refund_payment,), retry=Retry(within=timedelta(days=1)))(pays)},
            r"Refund\.pay: retry\.within=1 day, 0:00:00 is longer than effect payments\.refund can be sent again",
        ),
        (
            {"pay": step(start=True, end=True, effects=(refund_payment, other_refund))(pays)},
            r"two effects are named 'payments\.refund'",
        ),
        (ask(approved=""), r"Refund\.ask: approved is missing"),
        (ask(rejected=""), r"Refund\.ask: rejected is missing"),
        (ask(rejected="pya"), r"Refund\.ask: rejected names 'pya', which is no step, did you mean 'pay'"),
        (ask(title=""), r"Refund\.ask: title is missing"),
        (ask(shows=None), r"Refund\.ask: shows=None"),
        (ask(permission="approve"), r"Refund\.ask: permission 'approve' is not of the form"),
        (ask(on_expiry=Escalate("approve")), r"Refund\.ask: permission 'approve' is not of the form"),
        (ask(on_expiry="approve"), r"Refund\.ask: on_expiry='approve'"),
        (ask(quorum=0), r"Refund\.ask: quorum=0"),
        (ask(expires=timedelta(0)), r"Refund\.ask: expires must be longer"),
        (ask(expires=5), r"Refund\.ask: expires=5: a time span or Until"),
        (ask(on_expiry=Fallback("pya")), r"Refund\.ask: on_expiry names 'pya', which is no step, did you mean 'pay'"),
        (ask(permission=""), r"Refund\.ask: Approvers: nobody is named.*; or give bands"),
        (ask(groups="finance"), r"Refund\.ask: Approvers: groups='finance', a list of names"),
        (ask(permission="", people=["ada"], quorum=2), r"Refund\.ask: quorum=2 of 1 named: so many can never say yes"),
        (ask(quorum=2, on_expiry=Escalate(people=["ada"])), r"Refund\.ask: quorum=2 of 1 named"),
        (ask(bands=BANDS, amount="amount"), r"Refund\.ask: bands beside permission"),
        (ask(permission="", bands=BANDS), r"Refund\.ask: amount=None with bands"),
        (ask(permission="", bands=BANDS[:1], amount="amount"), r"Refund\.ask: .*the last one needs up_to=None"),
        (ask(permission="", bands=[Band(None, None)], amount="amount"), r"Refund\.ask: bands that ask nobody"),
        (ask(permission="", bands="all", amount="amount"), r"Refund\.ask: bands='all'"),
        (ask(permission="", bands=[Band(None, Approvers("may"))], amount="a"), r"Refund\.ask: permission 'may' is not"),
        (ask(remind=[5]), r"Refund\.ask: remind=\[5\]"),
        (ask(remind=[timedelta(0)]), r"Refund\.ask: remind="),
        (ask(remind=timedelta(1)), r"Refund\.ask: remind="),
        (ask(edits=dict), r"Refund\.ask: edits=<class 'dict'>: a pydantic model"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused(members: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        declare(**members)

    assert registry.known() == ()


def test_several_mistakes_are_named_at_once() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        declare(name="X", version=0, deadline=None)

    assert len(str(caught.value).splitlines()) == 3


def test_the_same_step_under_two_names_is_refused() -> None:
    pay = step(start=True, end=True)(body)

    with pytest.raises(InvalidDefinition, match="again: this is step 'pay' under a second name"):
        declare(pay=pay, again=pay)


def test_a_state_type_is_needed() -> None:
    with pytest.raises(InvalidDefinition, match=r"Refund: its state type is missing: write class Refund\(Workflow"):
        declare(Workflow)


def test_a_derived_class_needs_its_own_name() -> None:
    with pytest.raises(InvalidDefinition, match="without a name of its own"):
        declare(declare(), name=None)


def test_an_effect_of_an_enclosing_function_is_found_too() -> None:
    local = refund_payment

    def pays_locally(self, run):
        run.effect(local)

    with pytest.raises(InvalidDefinition, match=r"uses effect payments\.refund without declaring it"):
        declare(pay=step(start=True, end=True)(pays_locally))


effects = ModuleType("effects")
vars(effects)["refund"] = refund_payment


def pays_by_module(self, run):
    run.effect(effects.refund)


def pays_inside(self, run):
    def inner():
        return [run.effect(refund_payment) for _ in range(2)] or (lambda: run.effect(effects.refund))

    return inner()


def names_another_s_attribute(self, run):
    return run.state.refund, effects.__name__, effects.nothing_of_that_name


@pytest.mark.parametrize("body", [pays_by_module, pays_inside], ids=lambda body: body.__name__)
def test_an_effect_that_a_body_names_otherwise_is_found_too(body: Any) -> None:
    with pytest.raises(InvalidDefinition, match=r"uses effect payments\.refund without declaring it"):
        declare(pay=step(start=True, end=True)(body))

    declare(pay=step(start=True, end=True, effects=(refund_payment,))(body))


def test_what_is_only_called_like_an_effect_is_none() -> None:
    workflow = declare(pay=step(start=True, end=True)(names_another_s_attribute))

    assert workflow.definition.step("pay").effects == ()


async def waits(self, run): ...
def yields(self, run):
    yield


def without_run(self): ...
def with_more(self, run, more): ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (waits, "waits: a step is a plain `def`"),
        (yields, "yields: a step is a plain `def`"),
        (without_run, r"declare it as def without_run\(self, run\)"),
        (with_more, r"declare it as def with_more\(self, run\)"),
    ],
)
def test_a_step_body_is_called_with_the_run(function, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        step(end=True)(function)


def test_step_without_brackets() -> None:
    with pytest.raises(InvalidDefinition, match="@step without brackets"):
        step(cast("Any", body))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Retry(attempts=0), "attempts=0"),
        (lambda: Retry(attempts=cast("Any", 2.0)), "attempts=2.0"),
        (lambda: Retry(base_seconds=0), "base_seconds"),
        (lambda: Retry(base_seconds=10, cap_seconds=5), "cap_seconds"),
        (lambda: Retry(within=timedelta(0)), "within"),
        (lambda: Budget(tool_calls=-1), "tool_calls=-1"),
        (lambda: Budget(iterations=cast("Any", 1.5)), "iterations=1.5"),
        (lambda: Budget(cost_usd=cast("Any", 2.0)), "floats are not exact"),
        (lambda: Budget(cost_usd=Decimal("NaN")), "cost_usd"),
        (lambda: Escalate(""), "a permission is needed"),
        (lambda: Escalate("a.b", then=cast("Any", "approve")), "then='approve'"),
        (lambda: Escalate("a.b", expires=timedelta(0)), "expires"),
        (lambda: Escalate("a.b", quorum=0), "quorum=0"),
        (lambda: Escalate(groups=cast("Any", "board")), "a list of names"),
        (lambda: Fallback(""), "the name of a step"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(make, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        make()
