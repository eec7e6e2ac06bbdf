"""One send of an effect: too late means not sent."""

import time
from dataclasses import replace

import pytest

from durableflows import CannotTell, EffectCall, Found, NeverSent, NotFound

CALL = EffectCall(
    key="df_1",
    operation="payments.refund",
    effect="payments.refund",
    provider="payments",
    run_id="01912345-6789-7abc-8def-0123456789ab",
    step="pay",
    send=1,
    first_dispatched_at=None,
    timeout_seconds=10.0,
    send_by=0.0,
)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch):
    return lambda seconds: monkeypatch.setattr(time, "monotonic", lambda: seconds)


def test_check_passes_until_send_by(at) -> None:
    """Protocol, rule 2."""
    call = replace(CALL, send_by=100.0)
    at(100.0)

    call.check()


def test_check_refuses_after_send_by(at) -> None:
    """Protocol, rule 2: a stopped worker that wakes up late sends nothing."""
    call = replace(CALL, send_by=100.0)
    at(107.5)

    with pytest.raises(NeverSent, match=r"payments\.refund: 7\.5 s too late to send, nothing was sent"):
        call.check()


@pytest.mark.parametrize(("now", "left"), [(90.0, 9.0), (100.0, 9.0), (104.0, 5.0), (109.0, 0.0), (200.0, 0.0)])
def test_remaining_time_is_total_and_ends_before_the_engine_ends_the_call(at, now: float, left: float) -> None:
    """The limit strikes ten seconds after `send_by` at the latest: who gives up before can say what was sent."""
    call = replace(CALL, send_by=100.0)
    at(now)

    assert call.remaining_seconds() == left


def test_answers_compare_by_value() -> None:
    assert Found("re_1") == Found("re_1")
    assert NotFound() == NotFound()
    assert CannotTell("index is behind") != CannotTell("two matches")
