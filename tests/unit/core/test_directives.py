"""What a step returns: read against what the step declares; anything else is an error, never a success."""

import pytest

from durableflows import InvalidDefinition, InvalidState, StepRef, fail, succeed
from durableflows.core.directives import Fail, Goto, Succeed, directive_of

PAY, TELL, OTHER = StepRef("pay"), StepRef("tell"), StepRef("pya")


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
    ],
)
def test_a_way_out(returned: object, to: tuple[str, ...], *, end: bool, directive: object) -> None:
    assert directive_of(returned, step="assess", to=to, end=end) == directive


@pytest.mark.parametrize(
    ("returned", "to", "end", "says"),
    [
        (None, ("pay", "tell"), False, r"return self\.pay or self\.tell"),
        (None, ("pay",), True, r"return self\.pay or succeed\(\)"),
        (OTHER, ("pay",), False, r"'pya', which is not in its `to` \(pay\), did you mean 'pay'\?"),
        (PAY, (), True, r"`to` \(none\)"),
        ((PAY, PAY), ("pay",), False, "same step twice"),
        ((PAY, "tell"), ("pay", "tell"), False, "'tell' as a step"),
        ("pay", ("pay",), False, r"return self\.<step>"),
        (True, ("pay",), False, "returned True"),
        ((), ("pay",), False, "returned"),
        (Succeed, ("pay",), False, "returned"),
    ],
)
def test_anything_else_is_refused(returned: object, to: tuple[str, ...], *, end: bool, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says) as caught:
        directive_of(returned, step="assess", to=to, end=end)

    assert str(caught.value).startswith("step assess returned")


def test_a_result_must_be_json() -> None:
    with pytest.raises(InvalidState):
        directive_of(Succeed(object()), step="assess", to=(), end=True)  # type: ignore[arg-type]


def test_a_reference_cannot_be_called() -> None:
    with pytest.raises(InvalidDefinition, match=r"return the step, do not call it. Write `return self\.pay`"):
        PAY("run")
