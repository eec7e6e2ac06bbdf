"""Real workers that report to Sentry, with all of its own integrations: what is lost and tried again is no issue."""

import json
from pathlib import Path
from typing import Any

import pytest

from durableflows import api
from durableflows.core.states import RunState
from durableflows.models import WorkflowRun
from tests.support.workers import fleet, wait_for
from tests.worker_app.workflows import Poison

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]


def sent_into(folder: Path) -> list[dict[str, Any]]:
    lines = [line for page in folder.glob("sentry-*") for line in page.read_text().splitlines()]
    return [one for one in map(json.loads, lines) if isinstance(one, dict)]


def test_a_step_that_kills_its_workers_is_one_issue_when_a_person_is_needed_and_the_ticker_checks_in(tmp_path: Path):
    watched = {"TEST_WATCHERS": '["durableflows.watchers.sentry.Issues"]', "TEST_SENTRY": str(tmp_path)}
    with fleet(tmp_path, **watched) as ships:
        ships.start(children=1)
        run = api.start(Poison, {"folder": str(tmp_path)})
        wait_for(
            lambda: WorkflowRun.objects.filter(pk=run.pk, state=RunState.PARKED).exists(), seconds=60, what="the end"
        )
        wait_for(lambda: [one for one in sent_into(tmp_path) if "fingerprint" in one], seconds=30, what="its issue")

    sent = sent_into(tmp_path)
    issues = [one for one in sent if one.get("level") in ("error", "fatal")]
    assert [one.get("fingerprint") for one in issues] == [["durableflows", "poison", "swallow", "needs a person"]]
    assert {one["status"] for one in sent if one.get("type") == "check_in"} == {"ok"}
