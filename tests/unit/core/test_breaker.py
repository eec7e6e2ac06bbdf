"""What an answer says about a provider's health, and what its breaker lets through (S3.12, R12)."""

from datetime import UTC, datetime, timedelta

import pytest

from durableflows import (
    AlreadyDone,
    CredentialsRefused,
    KeyConflict,
    KeyInUse,
    NeedsHuman,
    NeverSent,
    Permanent,
    Transient,
    UnknownOutcome,
)
from durableflows.core.breaker import (
    TOO_LATE,
    Breaker,
    BreakerState,
    Gate,
    Health,
    after_probe,
    counts,
    gate,
    has_tripped,
    health_of,
    held_until,
)
from durableflows.core.classify import answer_of

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
BEFORE, LATER = NOW - timedelta(seconds=1), NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NeverSent("connection refused"), Health.FAILED),
        (NeverSent("5 s too late", code=TOO_LATE), Health.UNTOLD),
        (UnknownOutcome("500"), Health.FAILED),
        (TimeoutError("10 s"), Health.FAILED),
        (ConnectionResetError("reset"), Health.FAILED),
        (KeyError("our own mistake"), Health.UNTOLD),
        (UnknownOutcome("answered 502", status=502), Health.FAILED),
        (UnknownOutcome("answered 409", status=409), Health.WELL),
        (Transient("answered 503; not processed", status=503), Health.FAILED),
        (Transient("answered 429; not processed", status=429), Health.UNTOLD),
        (AlreadyDone("already refunded", status=400), Health.WELL),
        (KeyInUse("still at it"), Health.WELL),
        (Permanent("card expired"), Health.WELL),
        (KeyConflict("other request"), Health.WELL),
        (Transient("429"), Health.UNTOLD),
        (NeedsHuman("look"), Health.UNTOLD),
        (CredentialsRefused("expired"), Health.UNTOLD),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_the_provider_s_own_failures_speak_against_it(error: Exception, said: Health):
    assert health_of(answer_of(error).kind, error) is said


@pytest.mark.parametrize(
    ("state", "until", "lets"),
    [
        (BreakerState.CLOSED, None, Gate.THROUGH),
        (BreakerState.OPEN, LATER, Gate.HOLD),
        (BreakerState.OPEN, NOW, Gate.PROBE),
        (BreakerState.HALF_OPEN, LATER, Gate.HOLD),
        (BreakerState.HALF_OPEN, BEFORE, Gate.PROBE),
        (BreakerState.PAUSED, None, Gate.HOLD),
    ],
)
def test_what_each_state_lets_through(state: BreakerState, until: datetime | None, lets: Gate):
    breaker = Breaker("payments", state, open_until=until, probe_until=until)

    assert gate(breaker, NOW) is lets


def test_a_paused_provider_is_never_tried_by_itself():
    assert gate(Breaker("payments", BreakerState.PAUSED), NOW + timedelta(days=400)) is Gate.HOLD


def test_when_to_look_again_is_never_in_the_past():
    assert held_until(Breaker("payments", BreakerState.OPEN, open_until=BEFORE), NOW) == NOW
    assert held_until(Breaker("payments", BreakerState.OPEN, open_until=LATER), NOW) == LATER
    assert held_until(Breaker("payments", BreakerState.PAUSED), NOW) == NOW


def test_what_began_before_the_breaker_changed_does_not_speak_about_it():
    changed = Breaker("payments", changed_at=NOW)

    assert not counts(changed, BEFORE, LATER)
    assert counts(changed, NOW, LATER)
    assert counts(Breaker("payments"), BEFORE, LATER)


def test_a_clock_that_is_set_back_makes_no_pause_longer_than_twice_and_no_breaker_deaf():
    opened = Breaker("payments", BreakerState.OPEN, changed_at=NOW, open_until=LATER)

    assert gate(opened, NOW - timedelta(seconds=30)) is Gate.HOLD
    assert gate(opened, NOW - timedelta(seconds=31)) is Gate.PROBE
    assert counts(Breaker("payments", changed_at=NOW), BEFORE - timedelta(hours=3), BEFORE)


@pytest.mark.parametrize(
    ("newest_first", "wanted", "trips"),
    [
        ("fff", 3, True),
        ("ff", 3, False),
        ("ffw", 3, False),
        ("wff", 3, False),
        ("fffw", 3, True),
        ("ffffff", None, False),
    ],
)
def test_failures_trip_only_in_a_row(newest_first: str, wanted: int | None, trips: bool):
    last = [Health.FAILED if letter == "f" else Health.WELL for letter in newest_first]

    assert has_tripped(last, wanted) is trips


def test_what_a_probe_s_answer_makes_of_the_breaker():
    assert after_probe(Health.WELL, NOW, 30) == (BreakerState.CLOSED, None)
    assert after_probe(Health.FAILED, NOW, 30) == (BreakerState.OPEN, NOW + timedelta(seconds=30))
    assert after_probe(Health.UNTOLD, NOW, 30) == (BreakerState.OPEN, NOW), "the next send is a probe at once"
