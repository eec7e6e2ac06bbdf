"""Pool children keep their database connection from step to step, and notice when it is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from durableflows import api
from durableflows.core.states import RunState
from durableflows.models import ApprovalRequest, StepAttempt, WorkflowRun
from tests.support.workers import Fleet, fleet, pool_children, wait_for
from tests.worker_app.errands import Errand

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]


@pytest.fixture
def ships(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as ships:
        yield ships


def bought(folder: Path) -> tuple[int, int]:
    """Send an errand until it asks: which process bought, and by which connection."""
    folder.mkdir()
    run = api.start(Errand, {"folder": str(folder)})
    wait_for(lambda: ApprovalRequest.objects.filter(run=run).exists(), seconds=40, what="the run to ask")
    (line,) = (folder / "buys").read_text().splitlines()
    pid, _, backend = (int(word) for word in line.split())
    return pid, backend


def test_a_pool_child_keeps_its_connection_from_step_to_step(ships: Fleet, tmp_path: Path):
    ships.start(children=1)

    seen = {bought(tmp_path / f"errand{number}") for number in range(4)}

    assert len(seen) == 1, f"process and connection of each step: {seen}"


def test_a_connection_that_was_cut_meanwhile_is_not_used_by_the_next_step(ships: Fleet, tmp_path: Path):
    (child,) = pool_children(ships.start(children=1))
    pid, backend = bought(tmp_path / "before")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])

    again, other = bought(tmp_path / "after")

    assert (pid, again) == (child, child)
    assert other != backend
    tries = list(StepAttempt.objects.values_list("step__name", "number", "outcome"))
    assert {number for _, number, _ in tries} == {1}, f"a step was tried again: {tries}"
    assert not WorkflowRun.objects.filter(state=RunState.PARKED).exists()
