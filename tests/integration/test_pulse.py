"""A ticker that has itself stood still calls nobody dead: everybody's heartbeat is old then, for that reason alone."""

import time

import pytest

from durableflows.conf import settings
from durableflows.ticker import Pulse


def test_only_a_pulse_without_a_gap_of_the_stale_time_is_steady(monkeypatch: pytest.MonkeyPatch):
    """P2, P12: a machine that was stopped, or a database that was away."""
    moment = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pulse = Pulse()

    def beat_for(seconds: float) -> bool:
        nonlocal moment
        until = moment + seconds
        while moment < until:
            moment += settings().HEARTBEAT_SECONDS
            pulse.beat()
        return pulse.is_steady()

    assert not beat_for(settings().STALE_SECONDS / 2)
    assert beat_for(settings().STALE_SECONDS)
    moment += settings().STALE_SECONDS
    assert not pulse.is_steady()
    assert not beat_for(settings().HEARTBEAT_SECONDS)
    assert beat_for(settings().STALE_SECONDS)
