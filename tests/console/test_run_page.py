"""The pages of one run: how it stands, its steps in time, its diagram, its ledger, its state and its history."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows import Money, api
from durableflows.core.keys import new_id
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.reading import run_page
from durableflows.runner import run_step
from tests.support.pages import HOSTILE, Ask, Browse, People, is_inert, text

pytestmark = pytest.mark.django_db

PAGES = ("", "ledger/", "people/", "state/", "history/")


def address(run_id: Any, page: str = "") -> str:
    return f"/durableflows/runs/{run_id}/{page}"


@pytest.fixture
def client(operator: User, browse: Browse) -> Client:
    return browse(operator)


@pytest.fixture
def paid(asked: ApprovalRequest, manager: User) -> WorkflowRun:
    """A run that has come to its end."""
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, comment="go on")
    assert run_step(asked.run_id, StepRun.objects.get(run=asked.run_id, name="pay").pk)
    return WorkflowRun.objects.get(pk=asked.run_id)


def words_of(page: str) -> str:
    """What is read on a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", page[page.index("<main") :]).split())


def test_the_top_says_why_it_stands_there_and_what_comes(asked: ApprovalRequest, client: Client):
    words = words_of(text(client.get(address(asked.run_id))))

    assert "Waiting for a decision since" in words
    assert re.search(r"Next, \w{3} .* the request expires and is rejected", words)
    assert "asker" in words


def test_where_others_keep_its_trace_and_its_errors_is_a_link_for_who_may_see_its_values(
    asked: ApprovalRequest, client: Client, asker: User, browse: Browse, settings: Any
):
    templates = {
        "Trace": "https://jaeger.example.com/trace/{trace}",
        "Errors": "https://sentry.example.com/?q={run}&w=1",
    }
    settings.DURABLEFLOWS = {**settings.DURABLEFLOWS, "RUN_LINKS": templates}
    errors, trace = (
        f"https://sentry.example.com/?q={asked.run_id}&amp;w=1",
        f"https://jaeger.example.com/trace/{'ab' * 16}",
    )

    page = text(client.get(address(asked.run_id)))
    assert f'<a href="{errors}" rel="noreferrer">Errors</a>' in page
    assert "Trace" not in words_of(page)

    WorkflowRun.objects.filter(pk=asked.run_id).update(trace_context={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
    assert f'<a href="{trace}" rel="noreferrer">Trace</a>' in text(client.get(address(asked.run_id)))
    assert "example.com" not in text(browse(asker).get(address(asked.run_id)))


def test_each_step_is_a_lane_on_a_line_of_time(paid: WorkflowRun, client: Client):
    response = client.get(address(paid.pk))
    page = text(response)

    assert [lane.step.name for lane in response.context["chart"].lanes] == ["prepare", "ask", "pay"]
    for lane in response.context["chart"].lanes:
        assert all(0 <= bar.x <= bar.x + bar.width <= 1000 for bar in lane.bars)
    assert page.count('class="df-line-of-time"') == 3
    assert "style=" not in page
    assert "<script>" not in page


def test_the_diagram_is_the_declaration_with_the_way_that_was_gone(paid: WorkflowRun, client: Client):
    response = client.get(address(paid.pk))
    diagram = response.context["diagram"]

    assert {node.name: node.look for node in diagram.nodes} == {
        "prepare": "good",
        "ask": "good",
        "pay": "good",
        "apologise": "ahead",
    }
    assert sum(line.is_gone for line in diagram.lines) == 2
    words = words_of(text(response))
    assert "ask (done) leads to pay when approved, or apologise when rejected" in words
    assert "apologise (not reached) leads to the end" in words


def test_a_workflow_that_is_not_known_here_is_shown_without_a_diagram(paid: WorkflowRun, client: Client):
    WorkflowRun.objects.filter(pk=paid.pk).update(version=77)

    assert "does not know bonus version 77" in text(client.get(address(paid.pk)))


def test_of_many_requests_and_signals_the_newest_are_shown(
    asked: ApprovalRequest, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_page, "ROWS_SHOWN", 1)
    old = ApprovalRequest.objects.get(pk=asked.pk)
    old.pk, old.title = UUID(int=7), "the first one"
    ApprovalRequest.objects.filter(pk=asked.pk).update(state="CLOSED")  # one of a step is open at a time
    old.save(force_insert=True)
    for name in ("first", "second"):
        api.signal(asked.run_id, name)

    words = words_of(text(client.get(address(asked.run_id, "people/"))))

    assert asked.title in words
    assert "the first one" not in words
    assert "The newest 1 requests are shown." in words
    assert "second" in words


def test_the_ledger_shows_receipts_sends_and_sums_and_masks_secrets(paid: WorkflowRun, client: Client):
    page = text(client.get(address(paid.pk, "ledger/")))

    for words in ("bonus.give", "b_1", "happened", SideEffect.objects.get(run=paid).key):
        assert words in page
    assert "key-1234567890" not in page


def test_sums_of_the_ledger_are_of_all_effects_and_count_an_undo_with_what_it_undoes(
    paid: WorkflowRun, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("durableflows.reading.run_ledger.ROWS_SHOWN", 1)
    given = {"amount": {"amount_minor": 60000, "currency": "USD"}}
    SideEffect.objects.filter(run=paid).update(arguments=given, state="UNDOING")
    undo = SideEffect.objects.get(run=paid)
    undo.undoes_id, undo.pk, undo.key, undo.operation = undo.pk, new_id(), "k", "undo"
    SideEffect.objects.bulk_create([undo])

    assert client.get(address(paid.pk, "ledger/")).context["money"] == [
        ("Unknown or under way", (Money(60000, "USD"),))
    ]
    assert api.preview("cancel", paid.pk).money["unknown"] == (Money(60000, "USD"),)

    SideEffect.objects.filter(run=paid).update(state="CONFIRMED")
    SideEffect.objects.filter(run=paid, undoes=None).update(state="UNDONE")
    assert client.get(address(paid.pk, "ledger/")).context["money"] == [("Undone", (Money(60000, "USD"),))]


def test_people_and_signals_are_shown(paid: WorkflowRun, client: Client):
    api.signal(start_another(), "paid", {"amount": 5, "password": "hunter2"}, dedup_key="one")
    other = WorkflowRun.objects.exclude(pk=paid.pk).get()

    page = words_of(text(client.get(address(paid.pk, "people/"))))
    assert "Bonus for Ada" in page
    assert "manager approved" in page
    page = words_of(text(client.get(address(other.pk, "people/"))))
    assert "amount: 5" in page
    assert "hunter2" not in page


def start_another() -> Any:
    return api.start("bonus", {"amount": {"amount_minor": 5, "currency": "USD"}, "customer": "Bo"}, version=1).pk


def test_state_is_shown_with_its_seal_its_changes_and_its_limits(asked: ApprovalRequest, client: Client):
    api.pause(asked.run_id, reason="wait")
    api.edit(asked.run_id, reason="wrong name", changes={"customer": "Bo"})

    page = words_of(text(client.get(address(asked.run_id, "state/"))))

    assert "The seal on this checkpoint holds" in page
    assert "Customer Bo" in page
    assert "Checkpoint 1," in page
    assert "changed by the system : wrong name" in page
    assert "Customer Ada → became Bo" in page
    assert "USD 600.00" in page


def test_a_state_that_was_changed_from_outside_is_said_to_be(asked: ApprovalRequest, client: Client):
    WorkflowRun.objects.filter(pk=asked.run_id).update(data=[HOSTILE])

    for page in PAGES:
        response = client.get(address(asked.run_id, page))
        assert response.status_code == 200
        assert is_inert(text(response))
    assert "The seal does not match" in text(client.get(address(asked.run_id, "state/")))


def test_history_says_whether_it_is_as_it_was_written(paid: WorkflowRun, client: Client):
    assert "The chain holds" in text(client.get(address(paid.pk, "history/")))

    RunEvent.objects.filter(run=paid, sequence=2).update(actor_name="somebody")

    assert "event 2" in text(client.get(address(paid.pk, "history/")))
    assert "The history is not as it was written" in text(client.get(address(paid.pk, "history/")))


def test_a_long_history_is_paged_and_checked_when_asked(paid: WorkflowRun, client: Client, monkeypatch: Any):
    monkeypatch.setattr(run_page, "EVENTS_SHOWN", 3)
    monkeypatch.setattr(run_page, "CHECKED_AT_ONCE", 3)
    total = paid.event_sequence

    page = text(client.get(address(paid.pk, "history/")))
    assert "The chain holds" not in page
    assert f'href="?before={total - 2}#df-events"' in page
    assert "The chain holds" in text(client.get(address(paid.pk, "history/"), {"check": "1"}))
    older = client.get(address(paid.pk, "history/"), {"before": total - 2})
    assert [event.sequence for event, _ in older.context["events"]] == [total - 3, total - 4, total - 5]
    assert client.get(address(paid.pk, "history/"), {"before": "99999999999"}).status_code == 200


def test_who_started_it_sees_how_it_stands_and_no_values(paid: WorkflowRun, asker: User, browse: Browse):
    client = browse(asker)

    pages = {page: words_of(text(client.get(address(paid.pk, page)))) for page in PAGES}

    assert "Customer hidden" in pages["state/"]
    assert "customer: hidden" in pages["ledger/"]
    for page in ("ledger/", "state/", "history/"):
        assert "Ada" not in pages[page].replace("Bonus for Ada", ""), page


def test_nobody_else_sees_it(paid: WorkflowRun, person: People, browse: Browse):
    client = browse(person("nobody"))

    for page in PAGES:
        assert client.get(address(paid.pk, page)).status_code == 404
    WorkflowRun.objects.filter(pk=paid.pk).update(tenant="north")
    assert browse(person("operator", "durableflows.operate_run")).get(address(paid.pk)).status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_a_page_takes_few_queries(
    page: str, asked: ApprovalRequest, client: Client, django_assert_max_num_queries: Any
):
    StepRun.objects.filter(pk=asked.step_id).update(state="READY", held_by="bank", held_for="breaker")
    client.get(address(asked.run_id, page))

    with django_assert_max_num_queries(14):
        assert client.get(address(asked.run_id, page)).status_code == 200


def test_hostile_words_are_words_everywhere(ask: Ask, manager: User, client: Client):
    asked = ask(HOSTILE)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest, comment=HOSTILE)
    run_step(asked.run_id, StepRun.objects.get(run=asked.run_id, name="pay").pk)
    WorkflowRun.objects.filter(pk=asked.run_id).update(alert=HOSTILE, owner_name=HOSTILE[:150], labels={"x": HOSTILE})

    for page in PAGES:
        assert is_inert(text(client.get(address(asked.run_id, page)))), page
