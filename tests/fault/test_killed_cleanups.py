"""Real workers that die by SIGKILL at each boundary of a run that fails and cleans up: given back once, and ended."""

from pathlib import Path

import pytest

from durableflows import api, doctor
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.models import RunEvent, StepRun, WorkflowRun
from tests.support.books import Books
from tests.support.workers import fleet, wait_for
from tests.worker_app.giving_back import Loan

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

IN_THE_CLEANUP = [
    Boundary.EFFECT_BEFORE_RESERVE,
    Boundary.EFFECT_AFTER_RESERVE,
    Boundary.EFFECT_AFTER_ANSWER,
    Boundary.EFFECT_AFTER_RECEIPT,
    Boundary.SETTLE_BEFORE_COMMIT,
]
AT_ITS_BEGINNING = [Boundary.CLEANUP_BEFORE_COMMIT, Boundary.CLEANUP_BEFORE_SEND]


def test_a_worker_that_dies_at_a_boundary_of_a_clean_up_leaves_it_to_others(tmp_path: Path):
    """P3, P6, P10: one fleet for all, so that the whole takes as long as one start of a worker."""
    orders = tmp_path / "kill"
    orders.mkdir()
    with fleet(tmp_path, TEST_KILL_FOLDER=str(orders)) as ships:
        ships.start(children=2)
        for number, boundary in enumerate([*IN_THE_CLEANUP, *AT_ITS_BEGINNING]):
            folder = tmp_path / f"loan{number}"
            folder.mkdir()
            if boundary in AT_ITS_BEGINNING:
                (orders / boundary.name).touch()
            else:  # the main path comes by there too
                (folder / "order").write_text(str(orders / boundary.name))

            run = api.start(Loan, {"folder": str(folder)})

            wait_for(
                WorkflowRun.objects.filter(pk=run.pk, ended_at__isnull=False).exists,
                seconds=60,
                what=f"the run to end after a death at {boundary!s}",
            )
            ended = WorkflowRun.objects.get(pk=run.pk)
            assert not (orders / boundary.name).exists(), f"nobody died at {boundary!s}"
            assert not (folder / "order").exists()
            lost = StepRun.objects.filter(run=run, name="read" if boundary in AT_ITS_BEGINNING else "give_back")
            if boundary is not Boundary.CLEANUP_BEFORE_SEND:  # the step before it has settled
                assert lost.get().lost_workers == 1, str(boundary)
            assert (ended.state, ended.error_text) == (RunState.FAILED, "a page is missing"), str(boundary)
            assert ended.cleanup_error == "", str(boundary)
            books = Books(folder, "shelf")
            assert [len(list(books.acts(what))) for what in ("taken", "given")] == [1, 1], str(boundary)
            assert RunEvent.objects.filter(run=run, kind="run.cleanup_began").count() == 1, str(boundary)
            assert StepRun.objects.filter(run=run, of_cleanup=True).count() == 1, str(boundary)
    assert [finding for finding in doctor.examine() if finding.severity == "broken"] == []
