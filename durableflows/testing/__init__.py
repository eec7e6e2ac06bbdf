"""For tests of workflows: time that a test moves, messages that a test carries, crashes at named boundaries, and
`faulttest`, which plays a workflow through all of them.

    def test_refund(db, user):
        with virtual(FakeClock()) as world:
            run = api.start(Refund, {...}, by=user)
            world.run_until_idle()
            ...

    def test_refund_survives_faults(db):
        report = faulttest(Refund, {"charge_id": "ch_1", "amount": Money(500, "USD")}, schedules=200)
        assert report.holds, report

The rows are the real ones; only the clock, the broker, the worker processes and the providers are played.
Works inside Django's TestCase and TransactionTestCase.
"""

from durableflows.boundaries import Boundary
from durableflows.testing.crashes import Crash, crash_at
from durableflows.testing.drive import faulttest
from durableflows.testing.faults import Behaviour, Schedule
from durableflows.testing.gateway import FlakyGateway
from durableflows.testing.report import Report
from durableflows.testing.scenarios import Scenario, scenario
from durableflows.testing.world import (
    FakeClock,
    World,
    effect_states,
    next_due,
    open_request,
    run_step,
    run_until_idle,
    virtual,
)

__all__ = [
    "Behaviour",
    "Boundary",
    "Crash",
    "FakeClock",
    "FlakyGateway",
    "Report",
    "Scenario",
    "Schedule",
    "World",
    "crash_at",
    "effect_states",
    "faulttest",
    "next_due",
    "open_request",
    "run_step",
    "run_until_idle",
    "scenario",
    "virtual",
]
