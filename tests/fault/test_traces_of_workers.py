"""One trace over two days and two workers, of which the first is dead by then; a child's is linked (S3.41, S3.51)."""

import json
from pathlib import Path
from typing import Any

import pytest

from durableflows import api
from durableflows.core.states import RunState
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from tests.support.workers import fleet, wait_for
from tests.worker_app.traced import TWO_DAYS, Traced

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

CUSTOMER = "Ada Lovelace"


def spans_in(folder: Path) -> list[dict[str, Any]]:
    lines = [line for page in folder.glob("spans-*") for line in page.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda span: str(span["start_time"]))


def test_a_run_goes_on_under_its_trace_in_another_worker_two_days_later(tmp_path: Path):
    clock = tmp_path / "clock"
    watched = {"TEST_WATCHERS": '["durableflows.watchers.opentelemetry.Traces"]', "TEST_CLOCK": str(clock)}
    with fleet(tmp_path, TEST_SPANS=str(tmp_path), **watched) as ships:
        first = ships.start(children=1)
        run = api.start(Traced, {"customer": CUSTOMER})
        wait_for(lambda: len(spans_in(tmp_path)) >= 3, seconds=40, what="the spans of the first step")
        wait_for(lambda: StepRun.objects.filter(run=run, name="fetch").exists(), seconds=30, what="the wait")
        ships.kill(first)
        clock.write_text(str(TWO_DAYS.total_seconds() + 60))
        ships.start(children=1)
        wait_for(
            lambda: WorkflowRun.objects.filter(pk=run.pk, state=RunState.SUCCEEDED).exists(), seconds=60, what="the end"
        )
        wait_for(
            lambda: any(span["name"] == "step traced.finish" for span in spans_in(tmp_path)),
            seconds=10,
            what="its span",
        )

    spans = spans_in(tmp_path)
    by_name = {span["name"]: span for span in spans}
    mine = [span for span in spans if "traced_inner" not in span["name"]]
    assert len({span["context"]["trace_id"] for span in mine}) == 1
    assert {"run traced", "step traced.begin", "send traced.greet", "wait traced.fetch"} <= set(by_name)
    workers = StepAttempt.objects.filter(step__run=run).values_list("worker_name", flat=True)
    assert len(set(workers)) == 2
    ids = set(StepAttempt.objects.filter(step__run=run).values_list("trace_id", flat=True))
    assert {f"0x{trace_id}" for trace_id in ids} == {by_name["run traced"]["context"]["trace_id"]}
    assert by_name["wait traced.fetch"]["attributes"]["durableflows.wait.for"] == "timer"
    child_root, finish = by_name["run traced_inner"], by_name["step traced.finish"]
    assert [link["context"]["span_id"] for link in child_root["links"]] == [
        by_name["step traced.fetch"]["context"]["span_id"]
    ]
    assert child_root["context"]["span_id"] in [link["context"]["span_id"] for link in finish["links"]]
    assert CUSTOMER not in json.dumps(spans)
