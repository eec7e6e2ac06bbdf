"""Real workers that die by SIGKILL at each boundary of an undo, and of an effect in our own database."""

from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from durableflows import api, doctor
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.models import RunEvent, SideEffect, StepRun, WorkflowRun
from tests.support.books import Books
from tests.support.workers import fleet, wait_for
from tests.worker_app.undoing import HireAndDismiss

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

IN_THE_UNDO = [
    Boundary.UNDO_BEFORE_COMMIT,
    Boundary.UNDO_BEFORE_SEND,
    Boundary.EFFECT_BEFORE_RESERVE,
    Boundary.EFFECT_AFTER_RESERVE,
    Boundary.EFFECT_AFTER_ANSWER,
    Boundary.EFFECT_AFTER_RECEIPT,
    Boundary.TOGETHER_BEFORE_COMMIT,
]
ON_THE_WAY = [Boundary.TOGETHER_BEFORE_COMMIT, Boundary.EFFECT_AFTER_RECEIPT]


def test_a_worker_that_dies_at_a_boundary_of_an_undo_leaves_it_to_others(tmp_path: Path):
    """P2, P3, P6, P10: one fleet for all, so that the whole takes as long as one start of a worker."""
    orders = tmp_path / "kill"
    orders.mkdir()
    with fleet(tmp_path, TEST_KILL_FOLDER=str(orders)) as ships:
        ships.start(children=2)
        stories = [*((one, True) for one in IN_THE_UNDO), *((one, False) for one in ON_THE_WAY)]
        for number, (boundary, is_undo) in enumerate(stories):
            folder = tmp_path / f"hire{number}"
            folder.mkdir()
            if is_undo:  # the main path comes by there too
                (folder / "order").write_text(str(orders / boundary.name))
            else:
                (orders / boundary.name).touch()

            run = api.start(HireAndDismiss, {"folder": str(folder), "name": f"person{number}"})

            wait_for(
                WorkflowRun.objects.filter(pk=run.pk, ended_at__isnull=False).exists,
                seconds=60,
                what=f"the run to end after a death at {boundary!s}",
            )
            ended = WorkflowRun.objects.get(pk=run.pk)
            assert not (orders / boundary.name).exists(), f"nobody died at {boundary!s}"
            assert not (folder / "order").exists()
            assert (ended.state, ended.alert) == (RunState.COMPENSATED, ""), str(boundary)
            books = Books(folder, "agency")
            assert [len(list(books.acts(what))) for what in ("hired", "dismissed")] == [1, 1], str(boundary)
            assert not get_user_model().objects.filter(username=f"person{number}").exists(), str(boundary)
            assert RunEvent.objects.filter(run=run, kind="run.undo_began").count() == 1, str(boundary)
            assert StepRun.objects.filter(run=run, of_cleanup=True).count() == 2, str(boundary)
            together = SideEffect.objects.filter(run=run, provider="staff")
            assert [row.send_count for row in together] == [1, 1], str(boundary)
    assert [finding for finding in doctor.examine() if finding.severity == "broken"] == []
