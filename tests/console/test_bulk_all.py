"""A verb on every run of a list: looked at and done in portions, with the sum first, and stopped at any time."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.test import Client

from durableflows import Money, api
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.reading.bulk import FAILED
from durableflows.reading.bulk_all import SALT
from durableflows.runner import run_step
from tests.console.test_run_page import words_of
from tests.support.pages import Browse, People, rows, text

pytestmark = pytest.mark.django_db

RUNS = "/durableflows/runs/"
ALL = f"{RUNS}bulk/all/"


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durableflows.reading.bulk_all.PORTION", 2)


@pytest.fixture
def client(operator: User, browse: Browse) -> Client:
    return browse(operator)


@pytest.fixture
def runs() -> list[WorkflowRun]:
    """Five of them, of which one is cancelled already."""
    state = {"amount": Money(60000, "USD"), "customer": "Ada"}
    made = [api.start("bonus", state, key=f"bonus-{number}", version=1) for number in range(5)]
    api.cancel(made[1].pk, reason="over")
    return made


def press(client: Client, page: Any, **more: str) -> Any:
    """Send the page's form on."""
    return client.post(ALL, {"course": page.context["carried"], **more})


def looked_through(client: Client, verb: str = "pause", back: str = "?sort=first") -> Any:
    """Look at all of a list, portion by portion, up to the question for a reason."""
    page = client.get(ALL, {"verb": verb, "back": back})
    while page.context["course"].phase == "look":
        page = press(client, page, next="yes")
    return page


def states(runs: list[WorkflowRun]) -> list[str]:
    return [str(WorkflowRun.objects.get(pk=run.pk).state) for run in runs]


def test_looking_through_a_list_does_nothing_and_says_what_all_of_it_comes_to(runs: list[WorkflowRun], client: Client):
    before = rows()

    page = looked_through(client)

    assert rows() == before
    words = words_of(text(page))
    assert "What it would do to 4 runs" in words
    assert "Left out, because it would be refused: 1" in words


def test_all_are_done_portion_by_portion_each_with_a_result_of_its_own(runs: list[WorkflowRun], client: Client):
    page = press(client, looked_through(client), reason="the provider asked for quiet")

    assert "2 of 4 gone through: 2 done" in words_of(text(page))
    page = press(client, page, next="yes")
    assert "4 of 5 done." in words_of(text(page))
    assert [(run.pk, tone) for run, tone, _ in page.context["ended"]] == [
        (runs[1].pk, "bad"),
        *((runs[number].pk, "good") for number in (0, 2, 3, 4)),
    ]
    assert states(runs) == ["PARKED", "CANCELLED", "PARKED", "PARKED", "PARKED"]
    reasons = {event.data["reason"] for event in RunEvent.objects.filter(kind="run.paused")}
    assert reasons == {"the provider asked for quiet"}


def test_who_stops_leaves_the_rest_as_it_was(runs: list[WorkflowRun], client: Client):
    page = press(client, looked_through(client), reason="quiet")

    page = press(client, page, stop="yes")

    assert "2 of 5 done." in words_of(text(page))
    assert words_of(text(page)).count("Not done: you stopped before it.") == 2
    assert states(runs) == ["PARKED", "CANCELLED", "PARKED", "PENDING", "PENDING"]


def test_a_run_that_has_changed_since_it_was_looked_at_is_left_alone(runs: list[WorkflowRun], client: Client):
    page = looked_through(client, "cancel")
    for name in ("prepare", "ask"):  # now somebody is asked, whose request a cancel would close
        assert run_step(runs[0].pk, StepRun.objects.get(run=runs[0], name=name).pk)

    page = press(client, page, reason="over")
    page = press(client, page, next="yes")

    assert states(runs) == ["WAITING_HUMAN", "CANCELLED", "CANCELLED", "CANCELLED", "CANCELLED"]
    assert "Not done: it has changed since you looked." in words_of(text(page))
    assert "3 of 5 done." in words_of(text(page))


def test_without_a_reason_nothing_is_done(runs: list[WorkflowRun], client: Client):
    page = looked_through(client)

    response = press(client, page, reason=" ")

    assert response.status_code == 400
    assert "Say why" in text(response)
    assert states(runs).count("PENDING") == 4


@pytest.mark.parametrize("back", ["?q=bonus-3", "?state=CANCELLED", "?workflow=other", "?q=%00"])
def test_it_is_the_list_that_was_looked_at(back: str, runs: list[WorkflowRun], client: Client):
    page = client.get(ALL, {"verb": "pause", "back": back})

    assert page.context["course"].total == {"?q=bonus-3": 1, "?state=CANCELLED": 1}.get(back, 0)
    assert page.status_code == 200


def test_a_long_list_is_cut_and_says_so(runs: list[WorkflowRun], client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("durableflows.reading.bulk_all.MOST", 3)

    page = client.get(ALL, {"verb": "pause", "back": ""})

    assert "all 3 runs of the list" in words_of(text(page))
    assert "the list has more" in words_of(text(page))


def test_nobody_carries_on_what_somebody_else_began_or_changed(
    runs: list[WorkflowRun], client: Client, operator: User, person: People, browse: Browse
):
    page = looked_through(client)
    other = browse(person("other", "durableflows.operate_run"))

    assert press(other, page, reason="quiet").status_code == 400
    assert client.post(ALL, {"course": page.context["carried"][:-1], "reason": "quiet"}).status_code == 400
    assert client.post(ALL, {"reason": "quiet"}).status_code == 400
    older = signing.dumps({"verb": "pause", "gone": 1}, salt=f"{SALT}.{operator.pk}", compress=True)
    assert client.post(ALL, {"course": older, "reason": "quiet"}).status_code == 400
    assert client.get(ALL, {"verb": "abandon", "back": ""}).status_code == 400
    assert browse(person("viewer", "durableflows.view_workflowrun")).get(ALL, {"verb": "pause"}).status_code == 403
    assert states(runs).count("PENDING") == 4


def test_a_right_that_goes_meanwhile_ends_it(runs: list[WorkflowRun], client: Client, operator: User):
    page = looked_through(client)
    operator.user_permissions.clear()

    assert press(client, page, reason="quiet").status_code == 403
    assert states(runs).count("PENDING") == 4


def test_a_run_that_goes_to_another_tenant_meanwhile_is_not_there(runs: list[WorkflowRun], client: Client):
    page = looked_through(client)
    WorkflowRun.objects.filter(pk=runs[0].pk).update(tenant="north")

    page = press(client, page, reason="quiet")
    page = press(client, page, next="yes")

    assert states(runs)[0] == "PENDING"
    assert "bonus-0" not in text(page)


def test_a_run_that_cannot_be_done_keeps_none_of_the_others_from_being_done(runs: list[WorkflowRun], client: Client):
    for number in (0, 2, 3, 4):
        api.pause(runs[number].pk, reason="quiet")
    WorkflowRun.objects.filter(pk=runs[2].pk).update(budget={"idle_seconds": "what?"})

    page = press(client, looked_through(client, "resume"), reason="they may")
    while page.context["course"].phase == "do":
        page = press(client, page, next="yes")

    assert states(runs) == ["PENDING", "CANCELLED", "PARKED", "PENDING", "PENDING"]
    assert (runs[2].pk, "bad", FAILED) in [(run.pk, tone, words) for run, tone, words in page.context["ended"]]


def test_a_run_that_nobody_can_read_keeps_none_of_the_others_from_being_looked_at(
    runs: list[WorkflowRun], client: Client
):
    WorkflowRun.objects.filter(pk=runs[2].pk).update(manifest={"cleanup": {"cancel": "x", "seconds": 1e300}})

    words = words_of(text(looked_through(client, "cancel")))

    assert "What it would do to 3 runs" in words
    assert "Left out, because it would be refused: 2" in words
