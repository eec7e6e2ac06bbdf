"""Exception -> what it means: inside an effect the unknown is doubt, outside one it is an error in our code (R13)."""

import pytest

from durableflows import (
    AlreadyDone,
    ConcurrentChange,
    CredentialsRefused,
    InvalidDefinition,
    InvalidState,
    KeyConflict,
    KeyInUse,
    LimitReached,
    NeedsHuman,
    NeverSent,
    Permanent,
    ReserveInTransaction,
    StepFailure,
    Transient,
    UnknownOutcome,
)
from durableflows.core.classify import TEXT_LIMIT, answer_of, describe, failure_of
from durableflows.core.definition import StepDefinition, StepKind
from durableflows.core.outcomes import AnswerKind, FailureKind
from durableflows.errors import ChangedOutside, EffectOpen, LeaseLost, RunHalted

A, F = AnswerKind, FailureKind


class Declined(Exception):
    """A domain's own."""


class Busy(Declined):
    """A domain's own, more special."""


PLAIN = StepDefinition(name="pay", kind=StepKind.TASK)
MAPPED = StepDefinition(name="pay", kind=StepKind.TASK, permanent=(Declined,), transient=(ConnectionError,))

INSIDE = [
    (NeverSent("refused"), A.NOT_SENT),
    (Transient("429"), A.NOT_DONE),
    (Permanent("no"), A.REJECTED),
    (NeedsHuman("look"), A.NEEDS_HUMAN),
    (CredentialsRefused("key expired"), A.CREDENTIALS),
    (KeyConflict("other request"), A.CONFLICT),
    (KeyInUse("still working"), A.IN_USE),
    (AlreadyDone("already refunded"), A.ALREADY),
    (UnknownOutcome("read timed out"), A.UNKNOWN),
    (StepFailure("what?"), A.UNKNOWN),
    (ValueError("bug"), A.UNKNOWN),
    (ConnectionResetError("reset"), A.UNKNOWN),
    (TimeoutError("late"), A.UNKNOWN),
    (InvalidState("receipt"), A.UNKNOWN),
    (Declined("?"), A.UNKNOWN),
    (MemoryError(), A.UNKNOWN),
    (KeyboardInterrupt(), A.UNKNOWN),
    (SystemExit(1), A.UNKNOWN),
    (LeaseLost("x"), A.UNKNOWN),
    (RunHalted("x"), A.UNKNOWN),
    (EffectOpen("x", outcome=None), A.UNKNOWN),
]
OUTSIDE = [
    (NeverSent("refused"), F.NEVER_SENT),
    (Transient("429"), F.TRANSIENT),
    (Permanent("no"), F.PERMANENT),
    (NeedsHuman("look"), F.NEEDS_HUMAN),
    (CredentialsRefused("key expired"), F.NEEDS_HUMAN),
    (KeyConflict("other"), F.KEY_CONFLICT),
    (LimitReached("used up", limit="tool_calls"), F.LIMIT),
    (InvalidState("nan"), F.OUR_CODE),
    (ChangedOutside("the payload"), F.INTEGRITY),
    (InvalidDefinition("no such step"), F.OUR_CODE),
    (ReserveInTransaction("open"), F.OUR_CODE),
    (ConcurrentChange("lost"), F.OUR_CODE),
    (UnknownOutcome("of what?"), F.OUR_CODE),
    (AlreadyDone("what?"), F.OUR_CODE),
    (ValueError("bug"), F.OUR_CODE),
    (ConnectionError("reset"), F.OUR_CODE),
    (Declined("no"), F.OUR_CODE),
]


@pytest.mark.parametrize(("error", "kind"), INSIDE, ids=lambda value: type(value).__name__)
def test_inside_an_effect(error: BaseException, kind: AnswerKind):
    """S1.22, S2.7."""
    answer = answer_of(error)

    assert answer.kind is kind
    assert answer.error is not None
    assert answer.error.error_class.endswith(type(error).__name__)
    assert answer.receipt is None


@pytest.mark.parametrize(("error", "kind"), OUTSIDE, ids=lambda value: type(value).__name__)
def test_outside_an_effect(error: Exception, kind: FailureKind):
    """S1.22, S2.7."""
    assert failure_of(error, PLAIN).kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Declined("no"), F.PERMANENT),
        (Busy("no"), F.PERMANENT),
        (ConnectionError("reset"), F.TRANSIENT),
        (ConnectionResetError("reset"), F.TRANSIENT),
        (ValueError("bug"), F.OUR_CODE),
        (NeedsHuman("look"), F.NEEDS_HUMAN),
    ],
)
def test_a_step_maps_its_domain_s_exceptions(error: Exception, kind: FailureKind):
    assert failure_of(error, MAPPED).kind is kind
    assert answer_of(error).kind in (A.UNKNOWN, A.NEEDS_HUMAN), "the map is not for effects: doubt stays doubt"


@pytest.mark.parametrize("make", [Transient, NeverSent])
def test_what_the_provider_asked_for_is_kept(make: type[Transient]):
    error = make("later", retry_after_seconds=120)

    assert answer_of(error).retry_after_seconds == 120
    assert failure_of(error, PLAIN).retry_after_seconds == 120


def test_control_flow_is_no_exception():
    """P2, P6: `except Exception` in user code does not catch it."""
    for kind in (LeaseLost, RunHalted, EffectOpen):
        assert not issubclass(kind, Exception)


class Hostile(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (Hostile(), "Hostile (its text cannot be shown)"),
        (ValueError("x" * 9000), "x" * TEXT_LIMIT),
    ],
)
def test_a_text_can_always_be_stored(error: Exception, text: str):
    """R30."""
    assert describe(error).text == text


@pytest.mark.parametrize("bad", ["a\x00b", "a\ud800b"])
def test_text_that_a_database_refuses_is_marked(bad: str):
    """R30."""
    text = describe(ValueError(bad)).text

    assert "\x00" not in text
    text.encode("utf-8")


def test_secrets_are_masked_and_codes_kept():
    """P14."""
    info = describe(Permanent("POST /v1?api_key=sk_live_123 failed", code="card_expired"))

    assert "sk_live_123" not in info.text
    assert info.code == "card_expired"
    assert describe(KeyConflict("x")).code == "key_conflict"
