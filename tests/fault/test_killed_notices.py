"""Real workers that die by SIGKILL with a notice in hand: who asks is heard, and nobody is reminded twice."""

from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import override_settings

from durableflows import api, clock
from durableflows.boundaries import Boundary
from durableflows.core.states import RunState
from durableflows.models import ApprovalRequest, Notification, WorkflowRun
from durableflows.services import notices
from tests.support.workers import fleet, wait_for
from tests.worker_app.telling import Asking

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.worker, pytest.mark.slow]

LINES = "tests.worker_app.telling.Lines"
LIMIT = 30.0


@pytest.fixture
def boss() -> User:
    user = User.objects.create_user("boss", "boss@example.com")
    user.user_permissions.add(Permission.objects.get(codename="answer_approval"))
    return user


def told(folder: Path) -> list[list[str]]:
    """Each notice that was given: to whom, what, and its id."""
    file = folder / "told"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def wait_for_death(orders: Path, boundary: Boundary) -> None:
    wait_for(lambda: not (orders / boundary.name).exists(), seconds=LIMIT, what=f"a death at {boundary!s}")


def end_its_time(kind: str) -> None:
    """The dead worker's time with the notice is over: not waited for, but set."""
    rows = Notification.objects.filter(kind=kind, taken_until__isnull=False)
    wait_for(rows.exists, seconds=LIMIT, what="the notice to be in somebody's hand")
    now = clock.now()
    rows.update(taken_until=now, due_at=now)
    over = Notification.objects.filter(kind=kind, taken_until__isnull=True).exclude(notices.OPEN)
    wait_for(over.exists, seconds=LIMIT, what=f"the notice ({kind}) to be over")


@pytest.mark.parametrize("boundary", [Boundary.NOTICE_TAKEN, Boundary.NOTICE_GIVEN], ids=["before it", "after it"])
@override_settings(DURABLEFLOWS={"NOTIFIERS": [LINES]})
def test_a_worker_that_dies_with_a_notice_in_hand(tmp_path: Path, boss: User, boundary: Boundary):
    """What asks is given again, under the same id; a reminder that may have been given is not."""
    orders, was_given = tmp_path / "kill", boundary is Boundary.NOTICE_GIVEN
    orders.mkdir()
    environment = {"TEST_KILL_FOLDER": str(orders), "TEST_NOTIFIERS": LINES, "TEST_TOLD": str(tmp_path / "told")}
    with fleet(tmp_path, **environment) as ships:
        ships.start(children=2)
        (orders / boundary.name).touch()
        run = api.start(Asking, {})
        wait_for_death(orders, boundary)
        end_its_time("asked")
        asked = [line for line in told(tmp_path) if line[1] == "asked"]

        (orders / boundary.name).touch()
        ApprovalRequest.objects.update(remind_at=clock.now())
        wait_for_death(orders, boundary)
        end_its_time("reminder")
        reminders = [line for line in told(tmp_path) if line[1] == "reminder"]

        request = ApprovalRequest.objects.get(run=run)
        api.answer(request.pk, "approve", by=boss, facts_digest=request.facts_digest)
        ended = WorkflowRun.objects.filter(pk=run.pk, ended_at__isnull=False)
        wait_for(ended.exists, seconds=LIMIT, what="the run to end")

    assert len(asked) == (2 if was_given else 1)
    assert {line[2] for line in asked} == {str(Notification.objects.get(kind="asked").pk)}
    assert len(reminders) == (1 if was_given else 0)
    assert Notification.objects.get(kind="reminder").error == notices.IN_DOUBT
    assert WorkflowRun.objects.get(pk=run.pk).state == RunState.SUCCEEDED
