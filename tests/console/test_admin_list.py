"""Django's admin lists requests in words, and opens each on the page where it is decided."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableflows import api, clock
from durableflows.core import registry
from durableflows.models import ApprovalRequest
from tests.support.bonus import PERMISSION
from tests.support.pages import LIST, Ask, Browse, address, answer, text

pytestmark = pytest.mark.django_db


def test_the_list_says_in_words_what_waits(asked: ApprovalRequest, manager: User, browse: Browse):
    page = text(browse(manager).get(LIST)).replace("\N{NO-BREAK SPACE}", " ")

    said = ("Bonus for Ada", "USD 600.00", "Ada", "asker", "less than a minute ago", "in 1 day, 23 hours", "waiting")
    for words in (*said, address(asked), "1 request waits for you.", "Waiting for me (1)"):
        assert words in page


@pytest.mark.parametrize(
    ("standing", "shown"),
    [
        ("", ["Cy"]),
        ("mine", ["Cy"]),
        ("open", ["Bo", "Cy", "Ed"]),
        ("overdue", ["Ada", "Ed"]),
        ("by_me", ["Fay"]),
        ("decided", ["Di", "Fay"]),
        ("all", ["Ada", "Bo", "Cy", "Di", "Ed", "Fay"]),
        ("of nobody's making", ["Ada", "Bo", "Cy", "Di", "Ed", "Fay"]),
    ],
)
def test_the_list_is_filtered_by_where_requests_stand(
    standing: str, shown: list[str], one_of_each: None, manager: User, browse: Browse
):
    page = text(browse(manager).get(LIST, {"standing": standing} if standing else {}))

    names = ("Ada", "Bo", "Cy", "Di", "Ed", "Fay")
    assert [name for name in names if f"Bonus for {name}" in page] == shown


def test_what_waits_is_listed_soonest_first(ask: Ask, manager: User, browse: Browse):
    for days, name in ((3, "Cy"), (1, "Ada"), (2, "Bo")):
        ApprovalRequest.objects.filter(pk=ask(name).pk).update(expires_at=clock.now() + timedelta(days=days))

    page = text(browse(manager).get(LIST))

    places = [page.index(f"Bonus for {name}") for name in ("Ada", "Bo", "Cy")]
    assert places == sorted(places)
    assert "3 requests wait for you." in page


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "Nothing waits for you."),
        ({"standing": "overdue"}, "No request is overdue."),
        ({"standing": "by_me"}, "You have decided nothing yet."),
        ({"q": "nobody's"}, "Nothing was found."),
    ],
)
def test_an_empty_list_says_what_is_empty(query: dict[str, str], words: str, asked: ApprovalRequest, browse: Browse):
    asker = User.objects.get(username="asker")

    page = text(browse(asker).get(LIST, query)).replace("&#x27;", "'")

    assert words in page
    assert "Bonus for Ada" not in page


def test_a_vote_given_is_no_longer_waiting_for_me(ask: Ask, manager: User, browse: Browse):
    asked = ask(quorum=2)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)

    assert "Bonus for Ada" not in text(browse(manager).get(LIST, {"standing": "mine"}))


@pytest.mark.parametrize("query", ["ada", "asker", "id"])
def test_requests_are_found(query: str, ask: Ask, manager: User, browse: Browse):
    asked, _other = ask("Ada"), ask("Bo")
    found = text(browse(manager).get(LIST, {"q": str(asked.pk) if query == "id" else query}))

    assert "Bonus for Ada" in found
    assert ("Bonus for Bo" in found) == (query == "asker")


@pytest.mark.parametrize("standing", ["mine", "overdue", "by_me", "all"])
def test_the_list_asks_the_database_no_more_for_many_rows(
    standing: str, ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    first, client = ask("the first"), browse(manager)
    if standing == "overdue":
        ApprovalRequest.objects.update(ladder_position=1)
    if standing == "by_me":
        api.answer(first.pk, "reject", by=manager, facts_digest=first.facts_digest)

    with django_assert_max_num_queries(15) as few:
        client.get(LIST, {"standing": standing})
    for number in range(8):
        asked = ask(f"No. {number}")
        if standing == "by_me":
            api.answer(asked.pk, "reject", by=manager, facts_digest=asked.facts_digest)
    if standing == "overdue":
        ApprovalRequest.objects.update(ladder_position=1)
    with django_assert_max_num_queries(len(few)) as many:
        page = text(client.get(LIST, {"standing": standing}))

    assert len(many) == len(few)
    assert page.count("Bonus for No.") == 8


def test_a_request_opens_on_its_decision_page(asked: ApprovalRequest, manager: User, browse: Browse):
    response = browse(manager).get(f"{LIST}{asked.pk}/change/")

    assert response.status_code == 302
    assert response["Location"] == address(asked)


def test_the_page_says_what_is_decided(asked: ApprovalRequest, manager: User, browse: Browse):
    response = browse(manager).get(address(asked))
    page = text(response)

    for words in ("Bonus for Ada", "USD 600.00", "Loyal since", "2019", "asker", PERMISSION, "Nobody yet"):
        assert words in page
    assert "The run goes on with “pay”, which calls bonus.give at bank" in page
    assert "The run goes on with “apologise”" in page
    assert asked.facts_digest in page
    assert 'value="approve"' in page
    assert "default-src 'self'" in response["Content-Security-Policy"]


def test_the_page_asks_the_database_little(
    asked: ApprovalRequest, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    client = browse(manager)

    with django_assert_max_num_queries(14):
        client.get(address(asked))


def test_the_page_works_for_a_workflow_that_this_process_does_not_know(
    asked: ApprovalRequest, manager: User, browse: Browse
):
    client = browse(manager)
    with registry.isolated():
        page = client.get(address(asked))
        refused = answer(client, asked)

    assert page.status_code == 200
    assert refused.status_code == 409
    assert "No workflow" in text(refused)
    assert ApprovalRequest.objects.get().state == "OPEN"
