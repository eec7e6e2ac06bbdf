"""What a step returns: read against what the step declares; anything else is an error, never a success."""

from datetime import UTC, datetime, timedelta

import pytest

from durableflows import (
    InvalidDefinition,
    InvalidState,
    Run,
    StepRef,
    Workflow,
    WorkflowState,
    child,
    each,
    fail,
    sleep,
    step,
    succeed,
    wait_for,
)
from durableflows.core import registry
from durableflows.core.definition import StepDefinition, StepKind, WorkflowDefinition
from durableflows.core.directives import Fail, Goto, Succeed
from durableflows.core.returned import Place, directive_of
from durableflows.core.ways import Child, Each, Sleep, WaitFor

PAY, TELL, OTHER, GATHER = StepRef("pay"), StepRef("tell"), StepRef("pya"), StepRef("gather")
ONE_DAY = timedelta(days=1)


class Amount(WorkflowState):
    amount: int = 0


def declared() -> WorkflowDefinition:
    with registry.isolated():

        class Paying(Workflow[Amount]):
            name, deadline = "paying", timedelta(days=1)

            @step(start=True, to=("pay", "tell", "gather"))
            def assess(self, run: Run[Amount]) -> StepRef:
                return self.pay

            @step(to="gather")
            def pay(self, run: Run[Amount]) -> None: ...

            @step(to="gather")
            def tell(self, run: Run[Amount]) -> None: ...

            @step(join=True, end=True)
            def gather(self, run: Run[Amount]) -> None: ...

        return Paying.definition


WORKFLOW = declared()


def at(to: tuple[str, ...] = ("pay", "tell", "gather"), *, end: bool = False, is_item: bool = False) -> Place:
    return Place(StepDefinition(name="assess", kind=StepKind.TASK, to=to, end=end), WORKFLOW, is_item=is_item)


@pytest.mark.parametrize(
    ("returned", "to", "end", "directive"),
    [
        (None, ("pay",), False, Goto(("pay",))),
        (None, (), True, Succeed(None)),
        (PAY, ("pay", "tell"), False, Goto(("pay",))),
        ((TELL, PAY), ("pay", "tell"), False, Goto(("tell", "pay"))),
        ([PAY], ("pay",), True, Goto(("pay",))),
        (succeed({"id": 1}), ("pay",), False, Succeed({"id": 1})),
        (fail("no such charge"), (), True, Fail("no such charge")),
        (fail("refused with token=abcdef"), (), True, Fail("refused with token=[redacted]")),
        (sleep(ONE_DAY, then=PAY), ("pay",), False, Goto((), (Sleep("pay", ONE_DAY, None),))),
        (
            (TELL, wait_for("paid", then=PAY)),
            ("pay", "tell"),
            False,
            Goto(("tell",), (WaitFor("paid", "pay", None, None),)),
        ),
    ],
)
def test_a_way_out(returned: object, to: tuple[str, ...], *, end: bool, directive: object) -> None:
    assert directive_of(returned, at(to, end=end)) == directive


@pytest.mark.parametrize(
    ("returned", "to", "end", "says"),
    [
        (None, ("pay", "tell"), False, r"return self\.pay or self\.tell"),
        (None, ("pay",), True, r"return self\.pay or succeed\(\)"),
        (OTHER, ("pay",), False, r"'pya', which is not in its `to` \(pay\), did you mean 'pay'\?"),
        (PAY, (), True, r"`to` \(none\)"),
        ((PAY, PAY), ("pay",), False, "same step twice"),
        ((PAY, sleep(ONE_DAY, then=PAY)), ("pay",), False, "same step twice: pay"),
        ((PAY, "tell"), ("pay", "tell"), False, "'tell'"),
        ("pay", ("pay",), False, r"return self\.<step>"),
        (True, ("pay",), False, "returned True"),
        ((), ("pay",), False, "returned"),
        (Succeed, ("pay",), False, "returned"),
        (sleep(ONE_DAY, then=TELL), ("pay",), False, r"'tell' as then, which is not in its `to` \(pay\)"),
        (wait_for("paid", then=PAY, timeout=ONE_DAY, on_timeout=TELL), ("pay",), False, "'tell' as on_timeout"),
        (sleep(ONE_DAY, then=GATHER), ("gather",), False, "a join: put a step between them"),
    ],
)
def test_anything_else_is_refused(returned: object, to: tuple[str, ...], *, end: bool, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says) as caught:
        directive_of(returned, at(to, end=end))

    assert str(caught.value).startswith("step assess ")


def test_a_result_must_be_json() -> None:
    with pytest.raises(InvalidState):
        directive_of(Succeed(object()), at((), end=True))  # type: ignore[arg-type]


def test_a_reference_cannot_be_called() -> None:
    with pytest.raises(InvalidDefinition, match=r"return the step, do not call it. Write `return self\.pay`"):
        PAY("run")


def test_items_are_named_by_their_key_or_place() -> None:
    by_place = each(PAY, ["a", "b"], then=GATHER)
    by_key = each(PAY, [{"id": 7}], key=lambda item: str(item["id"]), then=GATHER, limit=2, failures="collect")

    assert directive_of(by_place, at()) == Goto((), (Each("pay", (("0", "a"), ("1", "b")), "gather", None, 0),))
    assert by_key == Each("pay", (("7", {"id": 7}),), "gather", 2, None)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: each(PAY, ["a", "a"], key=str, then=GATHER), InvalidState, "unique"),
        (lambda: each(PAY, ["a"], key=lambda item: "", then=GATHER), InvalidState, "not empty"),
        (lambda: each(PAY, [object()], then=GATHER), InvalidState, "item 0"),
        (lambda: each(PAY, range(1001), then=GATHER), InvalidState, "1001 items, at most 1000"),
        (lambda: each(PAY, ["a"], then=GATHER, limit=0), InvalidDefinition, "limit=0"),
        (lambda: each(PAY, ["a"], then=GATHER, failures="ignore"), InvalidDefinition, "failures='ignore'"),  # type: ignore[arg-type]
        (lambda: each(PAY, ["a"], then="gather"), InvalidDefinition, r"write then=self\.<step>"),  # type: ignore[arg-type]
        (lambda: sleep(timedelta(0), then=PAY), InvalidDefinition, "a time span is needed"),
        (lambda: sleep(5, then=PAY), InvalidDefinition, "a time span is needed"),  # type: ignore[arg-type]
        (lambda: sleep(datetime(2026, 1, 1), then=PAY), InvalidDefinition, "without a time zone"),  # noqa: DTZ001
        (lambda: wait_for("", then=PAY), InvalidDefinition, "a name of 1 to 100 characters"),
        (lambda: wait_for("paid", then=PAY, timeout=ONE_DAY), InvalidDefinition, "belong together"),
        (lambda: wait_for("paid", then=PAY, on_timeout=TELL), InvalidDefinition, "belong together"),
    ],
)
def test_a_wait_that_means_nothing_is_refused(make, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_items_need_a_join_that_gathers_them() -> None:
    with pytest.raises(InvalidDefinition, match="declare it with @step"):
        directive_of(each(PAY, ["a"], then=TELL), at())


def test_a_join_cannot_be_done_per_item() -> None:
    with pytest.raises(InvalidDefinition, match="a join cannot be done per item"):
        directive_of(each(GATHER, ["a"], then=GATHER), at())


def test_items_of_items_are_given_to_children() -> None:
    with pytest.raises(InvalidDefinition, match="start a child for each item"):
        directive_of(each(PAY, ["a"], then=GATHER), at(is_item=True))


def test_a_child_is_checked_before_anything_is_stored() -> None:
    with registry.isolated():
        registry.register(WORKFLOW)

        assert directive_of(child("paying", {"amount": 5}, then=PAY), at()) == Goto(
            (), (Child("paying", 1, {"amount": 5}, "pay", None),)
        )
        with pytest.raises(InvalidState, match="amount"):
            directive_of(child("paying", {"amount": "five"}, then=PAY), at())
        with pytest.raises(InvalidDefinition, match="did you mean 'paying'"):
            directive_of(child("payin", {}, then=PAY), at())
        with pytest.raises(InvalidDefinition, match="neither a workflow nor the name of one"):
            directive_of(child(Amount, {}, then=PAY), at())


def test_a_moment_is_kept_in_utc() -> None:
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)

    assert sleep(moment, then=PAY).due(datetime(2026, 1, 1, tzinfo=UTC)) == moment
