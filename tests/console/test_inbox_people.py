"""Beside answering, people ask back, hand over, reply, withdraw and lend their rights, where it is theirs to do."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings

from durableflows import api, links
from durableflows.models import ApprovalDecision, ApprovalRequest, Delegation, RequestNote
from tests.support.offices import Office, answer, office, person
from tests.support.pages import HOSTILE, Browse, inbox_address, is_inert, text

pytestmark = pytest.mark.django_db(transaction=True)

DELEGATIONS = "/durableflows/inbox/delegations/"


@pytest.fixture
def desk() -> Iterator[Office]:
    with office() as made:
        yield made


def send(user: User | None, request: ApprovalRequest, page: str, **fields: str) -> Any:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client.post(inbox_address(request, page), fields)


def days(desk: Office, first: int, last: int) -> dict[str, str]:
    today = desk.world.clock.now().date()
    return {"starts": f"{today + timedelta(days=first)}", "until": f"{today + timedelta(days=last)}"}


def test_a_question_is_asked_seen_and_replied_to(desk: Office, browse: Browse):
    request = desk.asked()

    assert send(desk.bo, request, "ask", text="Which order?")["Location"].endswith("?done=question")
    page = text(browse(desk.ada).get(inbox_address(request, "asked")))
    assert "<bdi>bo</bdi> asks you" in page
    assert "Which order?" in page
    assert send(desk.ada, request, "reply", text="The second.")["Location"].endswith("?done=reply")

    for user, name in ((desk.bo, "decision"), (desk.ada, "asked")):
        page = text(browse(user).get(inbox_address(request, name)))
        assert "The second." in page
        assert "asks you" not in page
    assert [note.kind for note in RequestNote.objects.all()] == ["question", "reply"]


def test_a_request_is_handed_to_a_colleague(desk: Office, browse: Browse):
    request = desk.asked()
    page = text(browse(desk.bo).get(inbox_address(request)))
    assert '<option value="cy">' in page

    send(desk.bo, request, "assign", to="cy", reason="She knows the customer.")

    assert ApprovalRequest.objects.get().assignee == desk.cy
    assert "put before you" in text(browse(desk.cy).get("/durableflows/inbox/"))
    assert "put before <bdi>cy</bdi>" in text(browse(desk.bo).get("/durableflows/inbox/"))
    assert "She knows the customer." in text(browse(desk.cy).get(inbox_address(request)))


@pytest.mark.parametrize(
    ("to", "words"),
    [("nobody", "There is nobody of this name"), ("", "Say who."), ("ada", "It cannot be given to ada")],
)
def test_a_hand_over_that_cannot_be_says_why_and_keeps_what_was_typed(desk: Office, to: str, words: str):
    request = desk.asked()

    response = send(desk.bo, request, "assign", to=to, reason="take this one")

    assert response.status_code == 422
    assert words in text(response)
    assert "take this one" in text(response)
    assert ApprovalRequest.objects.get().assignee is None


def test_who_asked_withdraws(desk: Office, browse: Browse):
    request = desk.asked()

    response = send(desk.ada, request, "withdraw", reason="Not needed any more.")
    desk.world.run_until_idle()

    assert response["Location"].endswith("?done=withdraw")
    assert ApprovalRequest.objects.get().state == "CLOSED"
    page = text(browse(desk.ada).get(response["Location"]))
    assert "You have withdrawn it" in page
    assert "Withdraw what you asked for" not in page


@pytest.mark.parametrize(
    ("who", "page"),
    [("ada", "ask"), ("ada", "assign"), ("bo", "reply"), ("bo", "withdraw"), ("di", "reply"), ("di", "withdraw")],
)
def test_what_is_not_theirs_to_do_is_neither_offered_nor_done(desk: Office, browse: Browse, who: str, page: str):
    request = desk.asked()
    user = getattr(desk, who)
    fields = {"text": "x", "reason": "x", "to": "cy"}

    shown = text(browse(user).get(inbox_address(request)))
    response = send(user, request, page, **fields)

    assert inbox_address(request, page) not in shown
    assert response.status_code in (404, 422)
    assert not RequestNote.objects.exists()
    assert ApprovalRequest.objects.get().state == "OPEN"


@pytest.mark.parametrize("page", ["ask", "assign", "reply", "withdraw"])
def test_a_look_says_nothing_and_strangers_do_nothing(desk: Office, browse: Browse, page: str):
    """R24, R25."""
    request, eve = desk.asked(), person("eve")
    fields = {"text": "x", "reason": "x", "to": "cy"}

    for method in ("get", "head", "options"):
        for user in (desk.bo, desk.ada):
            getattr(browse(user), method)(inbox_address(request, page))
    stranger = send(None, request, page, **fields)
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(desk.bo)

    assert stranger["Location"].startswith("/login/?next=")
    assert "unsent" in stranger["Location"]
    assert send(eve, request, page, **fields).status_code == 404
    assert forged.post(inbox_address(request, page), fields).status_code == 403
    assert not RequestNote.objects.exists()


def test_after_a_decision_nothing_of_it_is_offered_and_it_says_so(desk: Office, browse: Browse):
    request = desk.asked()
    answer(request, desk.cy)

    page = text(browse(desk.bo).get(inbox_address(request)))
    response = send(desk.bo, request, "ask", text="Which order?")

    assert "Instead of an answer" not in page
    assert response.status_code == 422
    assert not RequestNote.objects.exists()


def test_rights_are_lent_for_some_days_and_taken_back(desk: Office, browse: Browse):
    request, eve = desk.asked(), person("eve")
    client = browse(desk.bo)

    made = client.post(DELEGATIONS, {"taker": "eve", "reason": "I am away.", **days(desk, 0, 3)})

    assert made["Location"] == f"{DELEGATIONS}?done=lend"
    page = text(browse(eve).get(inbox_address(request)))
    assert "You answer for <bdi>bo</bdi>, who has lent you the right." in page
    assert 'value="approve"' in page
    assert "in force" in text(browse(eve).get(DELEGATIONS))
    lent = Delegation.objects.get()
    ended = browse(eve).post(f"{DELEGATIONS}{lent.pk}/end/", {"reason": "He is back."})
    assert ended["Location"] == f"{DELEGATIONS}?done=end"
    assert browse(eve).get(inbox_address(request)).status_code == 404
    assert "ended by eve" in text(client.get(DELEGATIONS))


@pytest.mark.parametrize(
    ("starts", "until", "words"),
    [
        (date(2090, 7, 6), date(2090, 7, 17), "from Thu 6 Jul 2090 to Mon 17 Jul 2090, included: away"),
        (date(2090, 7, 6), date(2090, 7, 6), "on Thu 6 Jul 2090: away"),
        (
            datetime(2090, 7, 6, 8, tzinfo=UTC),
            datetime(2090, 7, 7, tzinfo=UTC),
            "from Thu 6 Jul 2090 10:00 until Fri 7 Jul 2090 02:00 CEST: away",
        ),
    ],
)
@override_settings(TIME_ZONE="Europe/Berlin")
def test_days_are_said_as_they_were_given(desk: Office, browse: Browse, starts: date, until: date, words: str):
    api.delegate(desk.cy, by=desk.bo, starts=starts, until=until, reason="away")

    page = re.sub("<[^>]+>", "", text(browse(desk.bo).get(DELEGATIONS)))

    assert words in page


def test_who_answers_for_another_is_named_with_both(desk: Office, browse: Browse):
    request, eve = desk.asked(), person("eve")
    api.delegate(eve, by=desk.bo, until=desk.world.clock.now() + timedelta(days=2), reason="away")

    browse(eve).post(inbox_address(request), {"verdict": "approve", "facts_digest": request.facts_digest})

    assert ApprovalDecision.objects.get().for_person == desk.bo
    assert "<bdi>eve</bdi></strong> for <bdi>bo</bdi>" in text(browse(desk.cy).get(inbox_address(request)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"taker": "nobody"}, "There is nobody of this name"),
        ({"taker": "bo"}, "Nobody lends a right to oneself"),
        ({"until": "2001-01-01"}, "would be over before it begins"),
        ({"until": "soon"}, "Enter a valid date"),
        ({"until": "9999-12-31"}, "366 days at most"),
        ({"starts": "0001-01-01"}, "366 days at most"),
        ({"reason": ""}, "Say why."),
        ({"reason": "a\x00b"}, "Null characters"),
    ],
)
def test_what_cannot_be_lent_says_why(desk: Office, browse: Browse, fields: dict[str, str], words: str):
    given = {"taker": "cy", "reason": "away", **days(desk, 0, 3), **fields}

    response = browse(desk.bo).post(DELEGATIONS, given)

    assert response.status_code == 422
    assert words in text(response)
    assert not Delegation.objects.exists()


def test_nobody_ends_what_others_have_lent(desk: Office, browse: Browse):
    lent = api.delegate(desk.cy, by=desk.bo, until=desk.world.clock.now() + timedelta(days=2), reason="away")

    assert browse(desk.ada).post(f"{DELEGATIONS}{lent.pk}/end/", {"reason": "x"}).status_code == 404
    assert browse(desk.bo).post(f"{DELEGATIONS}{lent.pk}/end/", {"reason": ""}).status_code == 422
    assert Delegation.objects.get().ended_at is None


def test_hostile_words_are_inert(desk: Office, browse: Browse):
    """R28."""
    request = desk.asked(HOSTILE)
    pages = [send(desk.bo, request, "ask", text=HOSTILE), send(desk.ada, request, "reply", text=HOSTILE)]
    send(desk.bo, request, "assign", to="cy", reason=HOSTILE)
    pages += [send(desk.bo, request, "assign", to=HOSTILE, reason=HOSTILE)]
    pages += [browse(desk.bo).post(DELEGATIONS, {"taker": HOSTILE, "reason": HOSTILE, **days(desk, 0, 1)})]
    api.delegate(desk.cy, by=desk.bo, until=desk.world.clock.now() + timedelta(days=2), reason=HOSTILE)
    pages += [browse(desk.bo).get(DELEGATIONS), browse(desk.bo).get(inbox_address(request))]
    pages += [browse(desk.ada).get(inbox_address(request, "asked"))]

    assert [page.status_code for page in pages] == [302, 302, 422, 422, 200, 200, 200]
    assert [number for number, page in enumerate(pages) if not is_inert(text(page))] == []


def test_a_mail_that_is_older_than_the_facts_says_what_has_changed(desk: Office, browse: Browse):
    request = desk.asked()
    links.mint(request, desk.bo, desk.world.clock.now())
    link = request.links.filter(person=desk.bo).latest("created_at")
    ApprovalRequest.objects.update(binding={"amount": 7, "to": "Ada"})

    page = text(browse(desk.bo).get(f"{inbox_address(request)}?link={link.pk}"))

    assert "What has changed since the mail" in page
    assert "<del><bdi>5</bdi></del>" in page
    assert "<ins><bdi>7</bdi></ins>" in page
    assert "since the mail" not in text(browse(desk.cy).get(f"{inbox_address(request)}?link={link.pk}"))


@pytest.mark.parametrize("page", ["decision", "ask", "assign", "reply", "withdraw"])
def test_a_form_needs_its_token_also_where_the_project_asks_for_none(desk: Office, page: str):
    """R24: the engine's pages do not rely on what stands in MIDDLEWARE."""
    asked = desk.asked()
    client = Client(enforce_csrf_checks=True)
    client.force_login(desk.ada if page in ("reply", "withdraw") else desk.bo)
    given = {"verdict": "approve", "facts_digest": asked.facts_digest, "text": "so", "to": "cy", "reason": "so"}

    with override_settings(MIDDLEWARE=[one for one in settings.MIDDLEWARE if "csrf" not in one.lower()]):
        response = client.post(inbox_address(asked, page), given)

    asked.refresh_from_db()
    assert response.status_code == 403
    assert (asked.state, asked.assignee, asked.decisions.count(), asked.notes.count()) == ("OPEN", None, 0, 0)
