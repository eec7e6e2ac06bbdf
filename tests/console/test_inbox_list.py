"""The inbox lists what a person came for: in words, soonest first, found and paged, at the same cost however long."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableflows import api, clock
from durableflows.models import ApprovalRequest
from durableflows.reading import window
from tests.support.bonus import OTHER_PERMISSION
from tests.support.pages import HOSTILE, Ask, Browse, inbox_address, is_inert, text

pytestmark = pytest.mark.django_db

INBOX = "/durableflows/inbox/"
NAMES = ("Ada", "Bo", "Cy", "Di", "Ed", "Fay")


def listed(page: str) -> list[str]:
    """The customers in the order in which they are listed."""
    found = [(page.index(f"Bonus for {name}"), name) for name in NAMES if f"Bonus for {name}" in page]
    return [name for _, name in sorted(found)]


def test_it_says_in_words_what_waits(asked: ApprovalRequest, manager: User, browse: Browse):
    page = text(browse(manager).get(INBOX)).replace("\N{NO-BREAK SPACE}", " ")

    said = ("Bonus for Ada", "USD 600.00", "asker", "less than a minute ago", "in 1 day, 23 hours", "waiting")
    for words in (*said, inbox_address(asked), "1 request waits for you.", "Waiting for me (1)"):
        assert words in page


@pytest.mark.parametrize("name", ["binding", "context"])
def test_a_request_that_somebody_has_edited_keeps_no_other_from_being_shown(
    name: str, ask: Ask, manager: User, operator: User, browse: Browse
):
    ask("Ada")
    edited = ask("Bo")
    ApprovalRequest.objects.filter(pk=edited.pk).update(**{name: ["what?"]})

    assert listed(text(browse(manager).get(INBOX))) == ["Ada", "Bo"]
    assert browse(operator).get("/admin/durableflows/approvalrequest/", {"standing": "all"}).status_code == 200


def test_it_opens_for_who_is_no_member_of_staff(asked: ApprovalRequest, manager: User, browse: Browse):
    User.objects.filter(pk=manager.pk).update(is_staff=False)

    assert "Bonus for Ada" in text(browse(manager).get(INBOX))


@pytest.mark.parametrize(
    ("show", "shown"),
    [
        ("", ["Cy"]),
        ("mine", ["Cy"]),
        ("team", ["Ada", "Cy"]),
        ("overdue", ["Ada", "Ed"]),
        ("by_me", ["Fay"]),
        ("asked", ["Bo", "Ed"]),
        ("all", [*NAMES]),
        ("of nobody's making", ["Cy"]),
    ],
)
def test_it_is_narrowed_by_where_requests_stand(
    show: str, shown: list[str], one_of_each: None, manager: User, browse: Browse
):
    page = text(browse(manager).get(INBOX, {"show": show} if show else {}))

    assert sorted(listed(page)) == shown


@pytest.mark.parametrize(
    ("sort", "shown"), [("", "Bo Ada Cy"), ("soonest", "Bo Ada Cy"), ("newest", "Cy Bo Ada"), ("oldest", "Ada Bo Cy")]
)
def test_it_is_sorted(sort: str, shown: str, ask: Ask, manager: User, browse: Browse):
    for days, name in ((2, "Ada"), (1, "Bo"), (3, "Cy")):
        ApprovalRequest.objects.filter(pk=ask(name).pk).update(expires_at=clock.now() + timedelta(days=days))

    assert listed(text(browse(manager).get(INBOX, {"sort": sort}))) == shown.split()


@pytest.mark.parametrize("query", ["ada", "ASKER", "ada bonus", "USD", "id"])
def test_requests_are_found_by_words_of_title_facts_and_asker_and_by_id(
    query: str, ask: Ask, manager: User, browse: Browse
):
    asked, _other = ask("Ada"), ask("Bo")

    page = text(browse(manager).get(INBOX, {"q": str(asked.pk) if query == "id" else query}))

    assert "Ada" in listed(page)
    assert ("Bo" in listed(page)) == (query in ("ASKER", "USD"))


def test_a_search_looks_through_everything_that_the_person_may_see(ask: Ask, manager: User, browse: Browse):
    closed, hidden = ask("Ada"), ask("Bo")
    api.answer(closed.pk, "reject", by=manager, facts_digest=closed.facts_digest)
    ApprovalRequest.objects.filter(pk=hidden.pk).update(permission=OTHER_PERMISSION)

    assert listed(text(browse(manager).get(INBOX, {"q": "bonus"}))) == ["Ada"]


def test_the_workflow_is_chosen(ask: Ask, manager: User, browse: Browse):
    ask("Ada")
    client = browse(manager)

    assert listed(text(client.get(INBOX, {"workflow": "bonus"}))) == ["Ada"]
    assert listed(text(client.get(INBOX, {"workflow": "another"}))) == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "Nothing waits for you."),
        ({"show": "team"}, "Nothing is open in your team."),
        ({"show": "overdue"}, "No request is overdue."),
        ({"show": "by_me"}, "You have decided nothing yet."),
        ({"q": "nobody"}, "Nothing was found for “<bdi>nobody</bdi>”"),
    ],
)
def test_an_empty_list_says_what_is_empty(query: dict[str, str], words: str, asked: ApprovalRequest, browse: Browse):
    page = text(browse(User.objects.get(username="asker")).get(INBOX, query))

    assert words in page
    assert "Bonus for Ada" not in page


def test_a_vote_given_no_longer_waits_for_me_and_is_counted(ask: Ask, manager: User, browse: Browse):
    asked, client = ask(quorum=2), browse(manager)
    api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)

    assert listed(text(client.get(INBOX))) == []
    assert "1 of 2 approved" in text(client.get(INBOX, {"show": "team"}))


@pytest.mark.parametrize("sort", ["soonest", "newest", "oldest"])
def test_pages_follow_each_other_there_and_back_without_a_gap(
    sort: str, ask: Ask, manager: User, browse: Browse, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(window, "PAGE", 2)
    for name in NAMES[:5]:
        ask(name)
    ApprovalRequest.objects.update(expires_at=clock.now() + timedelta(days=1))  # ties are told apart by id
    client = browse(manager)

    first = client.get(INBOX, {"sort": sort})
    second = client.get(INBOX + first.context["later"])
    third = client.get(INBOX + second.context["later"])
    back = client.get(INBOX + third.context["earlier"])
    start = client.get(INBOX + back.context["earlier"])

    names = [*NAMES[:5]] if sort != "newest" else [*NAMES[:5]][::-1]
    assert [listed(text(page)) for page in (first, second, third)] == [names[:2], names[2:4], names[4:]]
    assert (third.context["later"], start.context["earlier"]) == ("", "")
    assert listed(text(back)) == names[2:4]
    assert listed(text(start)) == names[:2]


def test_a_page_that_has_emptied_leads_back(ask: Ask, manager: User, browse: Browse, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window, "PAGE", 1)
    ask("Ada")
    ask("Bo")
    client = browse(manager)
    later = client.get(INBOX).context["later"]
    ApprovalRequest.objects.update(state="CLOSED", closed_at=clock.now())

    assert "There is nothing on this page any more." in text(client.get(INBOX + later))


@pytest.mark.parametrize("name", ["show", "q", "workflow", "sort", "after", "before", "nothing"])
@pytest.mark.parametrize("value", ["%00", "%ED%A0%80", "9" * 30, f"{'9' * 17}.{'a' * 32}", "-1", "'", "%F0%9F%98%80"])
def test_no_address_fails(name: str, value: str, asked: ApprovalRequest, manager: User, browse: Browse):
    """R30."""
    status = browse(manager).get(f"{INBOX}?{name}={value}").status_code

    assert status == (400 if value == "%00" and name != "q" else 200)


@pytest.mark.parametrize("show", ["mine", "team", "overdue", "by_me", "asked", "all"])
def test_it_asks_the_database_no_more_for_many_rows(
    show: str, ask: Ask, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    def make(name: str) -> None:
        asked = ask(name, by=manager) if show == "asked" else ask(name, quorum=2)
        if show == "by_me":
            api.answer(asked.pk, "approve", by=manager, facts_digest=asked.facts_digest)
        if show == "overdue":
            ApprovalRequest.objects.update(ladder_position=1)

    make("the first")
    client = browse(manager)
    with django_assert_max_num_queries(14) as few:
        client.get(INBOX, {"show": show})
    for number in range(9):
        make(f"No. {number}")
    with django_assert_max_num_queries(len(few)) as many:
        page = text(client.get(INBOX, {"show": show}))

    assert len(many) == len(few)
    assert page.count("Bonus for No.") == 9


def test_it_does_not_load_what_runs_remember(
    asked: ApprovalRequest, manager: User, browse: Browse, django_assert_max_num_queries: Any
):
    """R31."""
    client = browse(manager)
    with django_assert_max_num_queries(14) as queries:
        client.get(INBOX, {"show": "all"})

    assert not [one["sql"] for one in queries.captured_queries if '"durableflows_workflowrun"."data"' in one["sql"]]


def test_hostile_text_is_inert(ask: Ask, manager: User, browse: Browse):
    """R28."""
    ask(HOSTILE)
    ApprovalRequest.objects.update(requester_name=HOSTILE)
    client = browse(manager)

    for query in ({}, {"q": HOSTILE}, {"show": HOSTILE, "workflow": HOSTILE, "sort": HOSTILE, "after": HOSTILE}):
        response = client.get(INBOX, query)
        assert is_inert(text(response))
        assert "default-src 'self'" in response["Content-Security-Policy"]


def test_strangers_are_sent_to_log_in_and_come_back(asked: ApprovalRequest):
    response = Client().get(f"{INBOX}?show=team")

    assert response["Location"] == f"/login/?next={quote(f'{INBOX}?show=team')}"


def test_the_badge_counts_what_waits(ask: Ask, manager: User, browse: Browse):
    ask("Ada")
    ask("Bo")

    assert browse(manager).get(f"{INBOX}badge/").json() == {"waiting": 2, "words": "2"}
    assert browse(User.objects.get(username="asker")).get(f"{INBOX}badge/").json() == {"waiting": 0, "words": "0"}
    assert Client().get(f"{INBOX}badge/").status_code == 401


def test_no_browser_keeps_a_page_after_a_log_out(asked: ApprovalRequest, manager: User, browse: Browse):
    for address in (INBOX, f"{INBOX}badge/", inbox_address(asked)):
        assert "no-store" in browse(manager).get(address)["Cache-Control"]
