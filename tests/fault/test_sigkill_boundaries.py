"""Real workers that die by SIGKILL at each boundary they cross, and what is left of it: one refund, and a finished run.

The boundaries that a web process crosses (start, approval, cancel) are played in test_crash_boundaries.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_ops.models import RefundState
from customer_ops.sandbox.control import RunningSandbox, running_sandbox
from durableflows import Money, doctor
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.models import SideEffect, WorkflowRun
from tests.support.refunds import ask, make_charge, person, worker_environment
from tests.support.workers import fleet, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

IN_A_STEP = [
    Boundary.CLAIM_BEFORE_COMMIT,
    Boundary.CLAIM_AFTER_COMMIT,
    Boundary.EFFECT_BEFORE_RESERVE,
    Boundary.EFFECT_AFTER_RESERVE,
    Boundary.EFFECT_AFTER_ANSWER,
    Boundary.EFFECT_AFTER_RECEIPT,
    Boundary.SETTLE_BEFORE_COMMIT,
    Boundary.SETTLE_BEFORE_SEND,
]
IN_A_LOOKUP = [Boundary.LOOKUP_BEFORE_COMMIT, Boundary.LOOKUP_AFTER_COMMIT]
IN_A_TIMER = [Boundary.TIMER_BEFORE_COMMIT, Boundary.TIMER_AFTER_COMMIT]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[RunningSandbox]:
    with running_sandbox(books=tmp_path / "books.sqlite3") as running:
        yield running


def test_a_worker_that_dies_at_a_boundary_leaves_one_refund_and_a_run_that_goes_on(
    tmp_path: Path, sandbox: RunningSandbox
):
    """R14, S2.17, S3.49. One fleet for all, so that the whole takes as long as a few starts of a worker."""
    orders, agent = tmp_path / "kill", person("agent", "request_refund")
    orders.mkdir()
    environment = worker_environment(sandbox) | {"TEST_KILL_FOLDER": str(orders), "TEST_STALE_SECONDS": "6"}
    with fleet(tmp_path, **environment) as ships:
        ships.start(children=2)
        for number, boundary in enumerate([*IN_A_STEP, *IN_A_LOOKUP, *IN_A_TIMER]):
            charge = make_charge(sandbox, f"K-{number}", Money(4_000, "USD"))
            _arrange(sandbox, boundary, charge.provider_id)
            (orders / boundary.name).touch()

            request = ask(charge, Money(1_500, "USD"), agent)

            assert request.run_id is not None
            run = wait_for(
                WorkflowRun.objects.filter(pk=request.run_id, ended_at__isnull=False).first,
                seconds=60,
                what=f"the refund to end after a death at {boundary!s}",
            )
            assert run is not None
            assert not (orders / boundary.name).exists(), f"nobody died at {boundary!s}"
            request.refresh_from_db()
            rows = SideEffect.objects.filter(run=run, effect="payments.refund")
            made = sum(sandbox.books().refunds_of(row.key) for row in rows)
            assert (run.state, request.state, made) == (RunState.SUCCEEDED, RefundState.REFUNDED, 1), str(boundary)
    assert [finding for finding in doctor.examine() if finding.severity == "broken"] == []


def _arrange(sandbox: RunningSandbox, boundary: Boundary, charge: str) -> None:
    """Let the refund come by the boundary: a pending answer is looked up, a refused one waits for a timer."""
    if boundary in IN_A_LOOKUP:
        sandbox.fault("pending", path="/v1/refunds", charge=charge, then="succeeded", after_reads=1)
    if boundary in IN_A_TIMER:
        sandbox.fault("rate_limited", path="/v1/refunds", charge=charge, retry_after="1")
