"""Requests are decided in Django's admin: once, on what was shown, and in time (R10, R22)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from durableflows import api, clock
from durableflows.models import ApprovalDecision, ApprovalRequest, RunEvent, StepRun
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.pages import Ask, Browse, People, address, answer, result, rows, said, shown_in, text

pytestmark = pytest.mark.django_db


def test_a_manager_approves(asked: ApprovalRequest, manager: User, browse: Browse):
    """B.6, S3.20."""
    response = answer(browse(manager), asked)

    assert response.status_code == 302
    assert response["Location"] == result(asked)
    assert "You approved “ Bonus for Ada ”" in said(response)
    decision = ApprovalDecision.objects.get()
    assert (decision.actor, decision.verdict, decision.door, decision.origin) == (
        manager,
        "approve",
        "admin",
        "127.0.0.1",
    )
    assert ApprovalRequest.objects.get().state == "APPROVED"
    assert StepRun.objects.filter(run=asked.run_id, name="pay").exists()


def test_a_manager_rejects_with_a_comment(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked, "reject", comment="too much")

    assert ApprovalDecision.objects.get().comment == "too much"
    assert StepRun.objects.filter(run=asked.run_id, name="apologise").exists()
    page = text(client.get(address(asked)))
    assert "too much" in page
    assert "This is closed" in page
    assert 'name="verdict"' not in page


def test_two_must_approve_where_two_are_needed(ask: Ask, manager: User, person: People, browse: Browse):
    asked = ask(quorum=2)

    assert "1 of 2" in said(answer(browse(manager), asked))
    assert ApprovalRequest.objects.get().state == "OPEN"
    assert "You approved" in said(answer(browse(person("second", PERMISSION)), asked))
    assert ApprovalRequest.objects.get().state == "APPROVED"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"verdict": ""}, "Choose approve or reject"),
        ({"verdict": "APPROVED"}, "Choose approve or reject"),
        ({"facts_digest": ""}, "did not say which facts"),
        ({"comment": "x" * 4001}, "4000"),
        ({"comment": "a\x00b"}, "Null characters"),
    ],
)
def test_what_is_no_answer_is_refused(
    fields: dict[str, str], words: str, asked: ApprovalRequest, manager: User, browse: Browse
):
    before = rows()
    response = browse(manager).post(
        address(asked), {"verdict": "approve", "facts_digest": asked.facts_digest, **fields}
    )

    assert response.status_code == 400
    assert words in text(response)
    assert rows() == before


def test_a_second_person_is_told_who_decided_and_when(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    answer(browse(manager), asked)
    before = rows()

    response = answer(browse(person("second", PERMISSION)), asked, "reject")

    decision = ApprovalDecision.objects.get()
    assert response.status_code == 409
    assert f"Already approved by manager at {decision.at:%Y-%m-%d %H:%M}" in text(response)
    assert rows() == before


def test_the_same_answer_again_is_friendly(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)
    before = rows()

    response = answer(client, asked)

    assert response.status_code == 302
    assert "You had already approved" in said(response)
    assert rows() == before


def test_the_opposite_answer_afterwards_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)
    before = rows()

    assert "Already approved by manager" in text(answer(client, asked, "reject"))
    assert rows() == before


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_one_of_many_answers_at_once_decides(ask: Ask, person: People, browse: Browse):
    people = [person(f"manager{number}", PERMISSION) for number in range(3)]
    asked = ask()
    clients = [browse(people[0]), browse(people[0]), browse(people[1]), browse(people[2])]
    start = threading.Barrier(len(clients))

    def click(client: Client, verdict: str) -> int:
        start.wait(10)
        try:
            return int(answer(client, asked, verdict).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(clients)) as threads:
        codes = list(threads.map(click, clients, ["approve", "approve", "approve", "reject"]))

    decision = ApprovalDecision.objects.get()
    expected = [302 if client_of == decision.actor else 409 for client_of in (people[0], *people)]
    assert codes == expected
    assert StepRun.objects.filter(run=asked.run_id, name__in=["pay", "apologise"]).count() == 1
    assert RunEvent.objects.filter(run=asked.run_id, kind="approval.answered").count() == 1


def test_changed_facts_are_shown_side_by_side(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    posted = shown_in(client, asked)
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}

    response = client.post(address(asked), {"verdict": "approve", "comment": "fine by me", **posted})

    page = text(response)
    assert response.status_code == 409
    assert "<del><bdi>USD 600.00</bdi></del>" in page
    assert "<ins><bdi>USD 900.00</bdi></ins>" in page
    assert "fine by me" in page
    assert not ApprovalDecision.objects.exists()
    assert answer(client, ApprovalRequest.objects.get()).status_code == 302


def test_a_page_older_than_a_change_that_another_met_shows_both_values(
    asked: ApprovalRequest, manager: User, person: People, browse: Browse
):
    client, other = browse(manager), browse(person("second", PERMISSION))
    posted = shown_in(client, asked)
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}
    answer(other, asked)

    page = text(client.post(address(asked), {"verdict": "approve", **posted}))

    assert "<del><bdi>USD 600.00</bdi></del>" in page
    assert "<ins><bdi>USD 900.00</bdi></ins>" in page


@pytest.mark.parametrize("shown", ["", "{", "[]", '{"amount": 1}', "[" * 5000, '{"a": NaN}'])
def test_made_up_shown_facts_are_not_believed(shown: str, asked: ApprovalRequest, manager: User, browse: Browse):
    response = answer(browse(manager), asked, facts_digest="0" * 64, shown=shown)

    assert response.status_code == 409
    assert "<del>" not in text(response)
    assert not ApprovalDecision.objects.exists()


def test_facts_that_cannot_be_computed_decide_nothing(asked: ApprovalRequest, manager: User, browse: Browse):
    before, client = rows(), browse(manager)
    SHOWN["broken"] = True

    response = answer(client, asked, comment="fine by me")

    assert response.status_code == 409
    assert "cannot be computed now" in text(response)
    assert "fine by me" in text(response)
    assert rows() == before


def test_an_expired_request_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    ApprovalRequest.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    before, client = rows(), browse(manager)

    response = answer(client, asked)

    assert response.status_code == 409
    assert "expired" in text(response)
    assert rows() == before
    assert 'name="verdict"' not in text(client.get(address(asked)))


def test_a_request_of_a_cancelled_run_is_refused(asked: ApprovalRequest, manager: User, browse: Browse):
    api.cancel(asked.run_id, reason="changed his mind")

    response = answer(browse(manager), asked)

    assert response.status_code == 409
    assert "Already closed" in text(response)
