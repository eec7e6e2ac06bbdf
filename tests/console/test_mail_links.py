"""Links in mails: they open the page after log-in, decide nothing, and leave their token nowhere (R24)."""

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core import mail
from django.db import connection
from django.test import Client, RequestFactory, override_settings

from durableflows import clock, links
from durableflows.models import ApprovalDecision, ApprovalLink, ApprovalRequest, RunEvent
from durableflows.views.link import FollowLink
from tests.support.offices import SETTINGS, Office, answer, office

pytestmark = pytest.mark.django_db(transaction=True)

METHODS = ("get", "head", "options", "post", "put", "delete", "patch")
READS = ("get", "head", "options")


@pytest.fixture
def desk() -> Iterator[Office]:
    with (
        office() as made,
        override_settings(DURABLEFLOWS=SETTINGS | {"NOTIFIERS": ["durableflows.notifiers.MailNotifier"]}),
    ):
        mail.outbox = []
        yield made


def link_for(name: str) -> str:
    """The address in the mail to somebody, without its host."""
    [one] = [one for one in mail.outbox if one.to == [f"{name}@example.com"]]
    [line] = [line for line in str(one.body).splitlines() if line.startswith("https://")]
    return urlsplit(line).path


def token_in(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def everything() -> tuple[object, ...]:
    """What opening a link may not change."""
    asked = ApprovalRequest.objects.get()
    link = ApprovalLink.objects.get(person__username="bo")
    counts = (ApprovalDecision.objects.count(), RunEvent.objects.count(), Session.objects.count())
    return (asked.state, asked.row_version, link.used_at, *counts)


def test_opening_it_five_times_by_every_method_changes_nothing_and_it_still_works(desk: Office):
    """R24: mail scanners open links, logged out and with the approver's own session."""
    desk.asked()
    path, inside = link_for("bo"), logged_in(desk.bo)
    seen = everything()

    for client in (Client(), inside):
        for method in METHODS * 5:
            response = getattr(client, method)(path)
            assert response.status_code == 302
            assert token_in(path) not in response["Location"]

    assert everything() == seen
    assert inside.get(path)["Location"].startswith(f"/durableflows/inbox/{ApprovalRequest.objects.get().pk}/?link=")


def test_who_is_not_logged_in_logs_in_and_comes_to_the_page(desk: Office):
    request = desk.asked()
    client = Client()

    response = client.get(link_for("bo"))
    assert urlsplit(response["Location"]).path == "/login/"
    response = client.post(response["Location"], {"username": "bo", "password": "x"})

    link = ApprovalLink.objects.get(person=desk.bo)
    assert response["Location"] == f"/durableflows/inbox/{request.pk}/?link={link.pk}"
    page = client.get(response["Location"])
    assert page.status_code == 200
    assert b"Pay 5 to Ada" in page.content


@pytest.mark.parametrize("method", METHODS)
def test_no_other_site_and_no_cache_learns_where_it_came_from(desk: Office, method: str):
    desk.asked()

    response = getattr(Client(), method)(link_for("bo"))

    assert response["Referrer-Policy"] == "no-referrer"
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize("kind", ["unknown", "over", "very long", "hostile"])
def test_a_link_that_is_none_leads_to_the_inbox_and_says_nothing_more(desk: Office, kind: str):
    request = desk.asked()
    path = link_for("bo")
    if kind == "over":
        desk.world.clock.move_to(request.expires_at)
    else:
        wrong = {"unknown": "x" * 43, "very long": "x" * 5000, "hostile": "%0d%0aSet-Cookie:x"}[kind]
        path = path.replace(token_in(path), wrong)

    response = logged_in(desk.bo).get(path)

    assert (response.status_code, response["Location"]) == (302, "/durableflows/inbox/?link=over")


def test_the_token_is_in_the_mail_alone(desk: Office, caplog: pytest.LogCaptureFixture):
    """Hashed at rest, in no log line, no task message, no event, no session and no address that follows."""
    caplog.set_level(logging.DEBUG)
    desk.asked()
    path = link_for("bo")
    token = token_in(path)
    for client in (Client(), logged_in(desk.bo), Client(enforce_csrf_checks=True)):
        for method in METHODS:
            getattr(client, method)(path)
            getattr(client, method)(path + "x")

    assert token not in caplog.text
    assert all(token not in repr(message) for message in desk.world.sent)
    assert token not in dumped()
    assert ApprovalLink.objects.filter(token_digest=links.digest_of(token)).count() == 1


def dumped() -> str:
    """All that the database holds, as text."""
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        texts = []
        for name in names:
            cursor.execute(f'SELECT t::text FROM "{name}" t')
            texts += [row[0] for row in cursor.fetchall()]
    return "\n".join(texts)


def test_an_error_in_the_view_does_not_log_the_token(
    desk: Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    desk.asked()
    path = link_for("bo")

    def away(*_: object) -> None:
        raise LookupError("the database is away")

    monkeypatch.setattr(links, "find", away)
    response = Client(raise_request_exception=False).get(path)

    assert response.status_code == 500
    assert "Internal Server Error" in caplog.text
    assert token_in(path) not in caplog.text


def test_a_link_gives_no_right(desk: Office):
    """Somebody else's link: who follows it is who logs in, and sees and does what that person may."""
    request = desk.asked()
    path = link_for("bo")
    stranger = User.objects.create_user("eve")

    followed = logged_in(stranger).get(path)["Location"]

    assert logged_in(stranger).get(followed).status_code == 404
    assert (
        logged_in(stranger).post(followed, {"verdict": "approve", "facts_digest": request.facts_digest}).status_code
        == 404
    )
    assert not ApprovalDecision.objects.exists()


def test_who_follows_a_link_is_known_by_it_only_as_its_own_person_at_its_own_request(desk: Office):
    first, second = desk.asked("Ada"), desk.asked("Eve")
    link = ApprovalLink.objects.get(person=desk.bo, request=first)

    assert links.followed(link.pk, first, desk.bo) == link
    assert links.followed(str(link.pk), first, desk.bo) == link
    for wrong in ((link.pk, second, desk.bo), (link.pk, first, desk.cy), ("no id", first, desk.bo)):
        assert links.followed(*wrong) is None


def test_a_link_keeps_what_its_mail_showed(desk: Office):
    """Bound to run, version, facts and person."""
    request = desk.asked()

    link = ApprovalLink.objects.get(person=desk.bo)

    assert (link.request, link.run_version, link.facts_digest, link.binding) == (
        request,
        request.run_version,
        request.facts_digest,
        request.binding,
    )
    assert link.expires_at == request.expires_at


def decide(client: Client, address: str, request: ApprovalRequest) -> Any:
    return client.post(address, {"verdict": "approve", "facts_digest": request.facts_digest})


def test_the_page_that_it_leads_to_decides_by_a_form_and_says_by_which_door(desk: Office):
    request = desk.asked()
    client = logged_in(desk.bo)
    page = client.get(link_for("bo"))["Location"]

    assert decide(client, page, request).status_code == 302

    vote = ApprovalDecision.objects.get()
    assert (vote.actor, vote.door) == (desk.bo, "mail link")
    assert ApprovalLink.objects.get(person=desk.bo).used_at == clock.now()


def test_without_a_token_of_the_form_nothing_is_decided(desk: Office):
    """R24: CSRF; a token in the address alone does not count."""
    request = desk.asked()
    client = Client(enforce_csrf_checks=True)
    client.force_login(desk.bo)
    page = client.get(link_for("bo"))["Location"]

    assert decide(client, page, request).status_code == 403
    assert decide(client, f"{page}&csrfmiddlewaretoken=x", request).status_code == 403
    assert not ApprovalDecision.objects.exists()


def test_after_the_decision_it_still_opens_the_page_which_says_so(desk: Office):
    request = desk.asked()
    path = link_for("bo")
    answer(request, desk.cy)

    client = logged_in(desk.bo)
    page = client.get(client.get(path)["Location"])

    assert page.status_code == 200
    assert b"approved by cy" in page.content.lower() or b"cy" in page.content


@pytest.mark.parametrize("spelled", ["a-b_c-0123456789", "a%2Db%5Fc%2D0123456789"], ids=["as it is", "escaped"])
def test_no_error_report_has_the_token_however_it_was_spelled(rf: RequestFactory, spelled: str):
    """P14: servers hand on the raw address beside the one that they have read."""
    request = rf.get(f"/durableflows/inbox/link/{spelled}/")
    request.META |= {"RAW_URI": f"/durableflows/inbox/link/{spelled}/?x", "REQUEST_URI": f"http://testserver/{spelled}"}

    FollowLink.as_view()(request, token="a-b_c-0123456789")

    assert not [name for name, value in request.META.items() if "0123456789" in str(value)]
    assert "0123456789" not in request.build_absolute_uri()
