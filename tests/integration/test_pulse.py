"""A ticker that has itself stood still calls nobody dead: everybody's heartbeat is old then, for that reason alone."""

import time

import pytest
from django.db import OperationalError
from django.test import override_settings

from durableflows.conf import problems, settings
from durableflows.ticker import Outage, Pulse


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


@pytest.mark.parametrize("stale", [6.0, 30.0])
def test_whoever_waits_for_the_database_looks_again_before_others_may_call_it_dead(stale: float):
    """One may look a moment too early, and pause; the other one sees the database at once, and is steady soon."""
    with override_settings(DURABLEFLOWS={"STALE_SECONDS": stale}):
        outage = Outage()
        for _ in range(100):
            outage.note(OperationalError("connection refused"))
        assert outage.pause_seconds() >= 1.0
        assert outage.pause_seconds() + settings().HEARTBEAT_SECONDS < settings().STALE_SECONDS * 2 / 3


def test_a_stale_time_of_a_few_heartbeats_is_refused():
    assert problems({"STALE_SECONDS": 6.0}) == []
    (found,) = problems({"STALE_SECONDS": 5.0})
    assert "'STALE_SECONDS' is 5 and 'HEARTBEAT_SECONDS' 2" in found
    assert problems({"STALE_SECONDS": 5.0, "HEARTBEAT_SECONDS": 1.0}) == []
