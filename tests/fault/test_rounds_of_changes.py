"""What happened before a wait does not happen again after it, whatever comes in between (R23)."""

from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from durableflows import AlreadyDecided, api, dispatch
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepRun, WorkflowRun
from tests.support.workers import fleet, wait_for
from tests.worker_app.waits import Rounds

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

WISHES = ["cheaper", "sooner", "in blue"]


def test_a_letter_and_a_call_before_the_wait_are_made_once_through_three_rounds(
    tmp_path: Path, django_user_model: type[User]
):
    """R23: a worker dies before the wait and in the second round; messages and answers of the first come again late."""
    boss = django_user_model.objects.create_superuser("boss")
    with fleet(tmp_path, TEST_KILL_FOLDER=str(tmp_path)) as ships:
        ships.start()
        die_at_next_settlement(tmp_path)  # of `prepare`: letter and call are made, and nothing is settled
        run_id = api.start(Rounds, {"folder": str(tmp_path)}).pk
        for number, wish in enumerate(WISHES, start=1):
            asked = next_request(run_id, number)
            if number == 2:
                die_at_next_settlement(tmp_path)  # of `revise`
            answer(asked, "reject", boss, wish)
        last = next_request(run_id, len(WISHES) + 1)
        repeat_everything_before(last, boss)
        answer(last, "approve", boss, "fine")
        wait_for(lambda: WorkflowRun.objects.get(pk=run_id).ended_at, seconds=30, what="the run to end")

    assert lines(tmp_path, "rounds.letter") == lines(tmp_path, "rounds.quote") == 1
    assert lines(tmp_path, "revise") == len(WISHES) + 1  # one of them was killed
    assert StepRun.objects.get(run_id=run_id, name="revise", visit=2).lost_workers == 1
    run = WorkflowRun.objects.get(pk=run_id)
    assert run.state == RunState.SUCCEEDED
    assert isinstance(run.result, dict)
    assert run.result["wishes"] == WISHES
    assert run.result["letter"] == run.data["letter"] != ""
    assert run.result["quote"] == run.data["quote"] != ""
    assert_history_shows_rounds(run_id)


def die_at_next_settlement(folder: Path) -> None:
    """Whoever of the workers settles next, dies at it."""
    (folder / "SETTLE_BEFORE_COMMIT").touch()


def next_request(run_id: UUID, number: int) -> ApprovalRequest:
    requests = ApprovalRequest.objects.filter(run_id=run_id, state=ApprovalState.OPEN, step__visit=number)
    wait_for(requests.exists, seconds=30, what=f"request number {number}")
    return requests.get()


def answer(request: ApprovalRequest, verdict: str, boss: User, comment: str) -> None:
    api.answer(request.pk, verdict, by=boss, facts_digest=request.facts_digest, comment=comment)


def repeat_everything_before(last: ApprovalRequest, boss: User) -> None:
    """Each message that there was, and each answer, once more: nothing of it does anything."""
    before = RunEvent.objects.filter(run=last.run_id).count()
    for step in StepRun.objects.filter(run=last.run_id):
        assert dispatch.publish(f"rounds.{step.name}", (str(step.run_id), str(step.pk)), None) == ""
    for request in ApprovalRequest.objects.filter(run=last.run_id).exclude(pk=last.pk):
        answer(request, "reject", boss, "again")
        with pytest.raises(AlreadyDecided, match="already rejected by boss"):
            answer(request, "approve", boss, "now yes")
    wait_for(lambda: dispatch.queued_messages(None) == 0, seconds=30, what="the messages to be taken")
    assert RunEvent.objects.filter(run=last.run_id).count() == before


def lines(folder: Path, name: str) -> int:
    return len((folder / name).read_text().splitlines())


def assert_history_shows_rounds(run_id: UUID) -> None:
    decisions = ApprovalDecision.objects.filter(request__run=run_id).order_by("at")
    verdicts = [("reject", wish) for wish in WISHES] + [("approve", "fine")]
    assert list(decisions.values_list("verdict", "comment")) == verdicts
    answered = RunEvent.objects.filter(run=run_id, kind="approval.answered").order_by("sequence")
    assert [event.data["verdict"] for event in answered] == [verdict for verdict, _ in verdicts]
    told = "\n".join(line.text for line in api.explain(run_id).lines)
    assert all(comment in told for _, comment in verdicts)
