"""After an answer a page says what was decided, what happens next and where to go on; whatever became of the answer."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import reverse

from durableflows import api, clock
from durableflows.models import ApprovalDecision, ApprovalRequest
from tests.support.bonus import PERMISSION, SHOWN
from tests.support.pages import HOSTILE, LIST, Ask, Browse, People, address, answer, is_inert, result, rows, said, text

pytestmark = pytest.mark.django_db

ELSEWHERE = (
    *("https://other.example", "//other.example", "///other.example", "/\\other.example", "http:other.example"),
    *("javascript:alert(1)", "https://testserver@other.example", "/x\r\nLocation: https://other.example"),
    *("%2F%2Fother.example", "%252F%252Fother.example"),
)


def test_it_says_what_was_decided_and_what_comes(ask: Ask, manager: User, browse: Browse):
    asked, other = ask("Ada"), ask("Bo")

    response = answer(browse(manager), asked, comment="go on")
    page = text(response.client.get(response["Location"]))

    assert "You approved “ Bonus for Ada ”" in said(response)
    for words in ("go on", "The run goes on by itself", "pay waits for a worker", "Next request:", "Bonus for Bo"):
        assert words in page
    for link in (address(other), address(asked), LIST):
        assert f'href="{link}"' in page


def test_a_rejection_is_called_one(asked: ApprovalRequest, manager: User, browse: Browse):
    words = said(answer(browse(manager), asked, "reject"))

    assert "You rejected “ Bonus for Ada ”" in words
    assert "It will not be carried out." in words
    assert "Nothing else waits for you." in words


def test_a_reload_decides_nothing_and_says_the_same(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)
    before = rows()

    for method in ("get", "head", "get"):
        assert getattr(client, method)(result(asked)).status_code == 200
    assert client.post(result(asked), {"verdict": "reject"}).status_code == 405

    assert rows() == before


def test_a_repeat_says_that_nothing_was_done_again(asked: ApprovalRequest, manager: User, browse: Browse):
    client = browse(manager)
    answer(client, asked)

    words = said(answer(client, asked))

    assert "You had already approved" in words
    assert "Nothing was done again." in words


def test_too_late_says_who_decided_and_leads_on(ask: Ask, manager: User, person: People, browse: Browse):
    asked, other = ask("Ada"), ask("Bo")
    answer(browse(manager), asked)

    response = answer(browse(person("second", PERMISSION)), asked, "reject")
    page = text(response)

    assert response.status_code == 409
    for words in ("Your answer came too late", "Already approved by manager", "Nothing was changed.", address(other)):
        assert words in page


def test_expired_says_so_and_leads_on(ask: Ask, manager: User, browse: Browse):
    asked, other = ask("Ada"), ask("Bo")
    ApprovalRequest.objects.filter(pk=asked.pk).update(expires_at=clock.now() - timedelta(seconds=1))

    page = text(answer(browse(manager), asked))

    assert "This request expired" in page
    assert address(other) in page


def test_not_allowed_says_why_and_leads_on(ask: Ask, person: People, browse: Browse):
    both = person("both", PERMISSION)
    own, other = ask("Ada", by=both), ask("Bo")

    response = answer(browse(both), own)
    page = text(response)

    assert response.status_code == 403
    for words in ("You may not decide this", "You asked for this yourself", "Nothing was changed.", address(other)):
        assert words in page


def test_who_has_not_decided_is_led_to_the_request(asked: ApprovalRequest, manager: User, browse: Browse):
    response = browse(manager).get(result(asked))

    assert response.status_code == 302
    assert response["Location"] == address(asked)


def test_a_result_of_others_is_not_there(asked: ApprovalRequest, manager: User, person: People, browse: Browse):
    answer(browse(manager), asked)

    assert browse(person("nobody")).get(result(asked)).status_code == 403
    assert Client().get(result(asked))["Location"].startswith("/admin/login/")


def test_a_vote_on_facts_that_changed_is_no_result_any_more(ask: Ask, manager: User, person: People, browse: Browse):
    asked, client = ask(quorum=2), browse(manager)
    answer(client, asked)
    SHOWN["amount"] = {"amount_minor": 90000, "currency": "USD"}
    answer(browse(person("second", PERMISSION)), asked)

    assert ApprovalDecision.objects.get().voided_at is not None
    assert client.get(result(asked))["Location"] == address(asked)
    page = text(client.get(address(asked)))
    assert "no longer counts: the facts changed" in page
    assert 'value="approve"' in page


@pytest.mark.parametrize("target", ELSEWHERE)
def test_no_page_leads_to_another_site(target: str, ask: Ask, manager: User, browse: Browse):
    """R29."""
    asked, client = ask(), browse(manager)
    query = {"next": target, "return_to": target, "_changelist_filters": target}

    opened = client.get(f"{LIST}{asked.pk}/change/", query)
    unknown = client.get(f"{LIST}?e=1", query)
    decided = client.post(
        f"{address(asked)}?{urlencode(query)}", {"verdict": "approve", "facts_digest": asked.facts_digest, **query}
    )
    elsewhere = client.get(reverse("admin:durableflows_workflowrun_change", args=[asked.pk]), query)
    logged_in = Client().post("/admin/login/", {"username": "manager", "password": "x", "next": target})

    assert (opened["Location"], decided["Location"]) == (address(asked), result(asked))
    assert logged_in.status_code == 302
    for response in (unknown, elsewhere, logged_in):
        assert leads_home(response), response["Location"]


def leads_home(response: Any) -> bool:
    """Where a browser would go: it takes a backslash for a slash, and relative targets as of this page."""
    target = response.get("Location", "/").replace("\\", "/")
    whole = urlsplit(urljoin("http://testserver/admin/login/", target))
    return (whole.scheme, whole.netloc) == ("http", "testserver") and not set(target) & set("\r\n")


def test_after_the_log_in_a_page_of_ours_is_shown(asked: ApprovalRequest, manager: User):
    form = {"username": "manager", "password": "x", "next": address(asked)}

    assert Client().post("/admin/login/", form)["Location"] == address(asked)


def test_hostile_text_is_inert_in_log_messages_title_and_filters(
    asked: ApprovalRequest, person: People, browse: Browse
):
    """R28, at the places of Django's own that show texts of ours."""
    root = person("root", is_superuser=True)
    ApprovalRequest.objects.update(title=HOSTILE, requester_name=HOSTILE)
    LogEntry.objects.create(
        user=root,
        content_type=ContentType.objects.get_for_model(ApprovalRequest),
        object_id=str(asked.pk),
        object_repr=HOSTILE,
        action_flag=CHANGE,
        change_message=HOSTILE,
    )
    client = browse(root)
    pages = [
        client.get("/admin/"),
        client.get(f"{LIST}{asked.pk}/history/", follow=True),
        client.get(LIST, {"workflow": HOSTILE, "standing": HOSTILE, "q": HOSTILE, "p": "9" * 30}),
        client.get("/admin/durableflows/workflowrun/", {"state": HOSTILE, "workflow": HOSTILE, "q": "\x00"}),
        client.get(f"/admin/durableflows/workflowrun/{HOSTILE}/change/", follow=True),  # a message: no such row
        client.get(address(asked)),
        answer(client, asked),
        client.get(address(asked)),
    ]

    assert [page.status_code for page in pages] == [200, 200, 200, 200, 200, 200, 302, 200]
    assert [number for number, page in enumerate(pages) if not is_inert(text(page))] == []
    assert "<title>&lt;/script&gt;" in text(pages[5])


def test_pages_ask_the_database_little(ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries: Any):
    asked, client = ask(), browse(manager)
    for number in range(5):
        ask(f"No. {number}")
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)

    with django_assert_max_num_queries(14):
        assert client.get(result(asked)).status_code == 200
