"""Mails about requests: one message for one person, safe whatever people have written, the same at each try."""

from collections.abc import Iterator
from email import message_from_bytes, policy
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import override_settings

from durableflows import Permanent, api
from durableflows.checks_notices import check_notices
from durableflows.models import Notification
from durableflows.notifiers import address_of, load, subject_line
from durableflows.testing import Boundary, Crash, crash_at
from tests.support.offices import SETTINGS, Office, office

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = "durableflows.notifiers.MailNotifier"
HOSTILE = [
    "\r\nBcc: eve@example.com\r\n\r\nHello",
    "\nSubject: something else",
    "\u2028X-Injected: 1",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202eadA ot 5\u202c",
    "\u2066hidden\u2069",
    "A\u200bd\u200ba",
    "{{ notice.link }}{% debug %}",
    "<script>alert(1)</script>",
    "x" * 300,
]


@pytest.fixture
def desk() -> Iterator[Office]:
    with office() as made, override_settings(DURABLEFLOWS=SETTINGS | {"NOTIFIERS": [MAIL]}):
        mail.outbox = []
        User.objects.filter(username="cy").update(is_active=False)
        yield made


def sent() -> Any:
    """The one mail that left, as a mail program reads it."""
    [one] = mail.outbox
    return message_from_bytes(one.message().as_bytes(), policy=policy.default)


def test_a_mail_says_what_where_and_that_opening_it_decides_nothing(desk: Office):
    desk.asked()

    message = sent()
    text = message.get_content()
    assert (message["To"], message["Subject"]) == ("bo@example.com", "To decide: Pay 5 to Ada")
    assert message.get_content_type() == "text/plain"
    assert message["Auto-Submitted"] == "auto-generated"
    assert {"Amount: 5", "To: Ada"} <= {*text.splitlines()}
    assert "\nhttps://desk.example.com/durableflows/inbox/link/" in text
    assert "Opening it decides nothing." in text


def test_each_try_has_the_same_message_id(desk: Office):
    desk.ask()
    with crash_at(Boundary.NOTICE_GIVEN), pytest.raises(Crash):
        desk.world.run_until_idle()
    desk.world.clock.advance(seconds=60)
    desk.world.run_until_idle()

    ids = [one.message()["Message-ID"] for one in mail.outbox]
    assert ids == [f"<{Notification.objects.get().pk}@localhost>"] * 2


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_header_no_second_recipient_and_hides_nothing(desk: Office, text: str):
    request = desk.asked(f"Ada{text}"[:200])
    api.ask_requester(request.pk, f"Is it{text}?"[:1000], by=desk.bo)
    desk.world.run_until_idle()

    assert {one.to[0] for one in mail.outbox} == {"ada@example.com", "bo@example.com"}
    wanted = {"Subject", "From", "To", "Message-ID", "Auto-Submitted", "X-Auto-Response-Suppress", "Date"}
    for one in mail.outbox:
        message = message_from_bytes(one.message().as_bytes(), policy=policy.default)
        assert {*message.keys()} - {"Content-Type", "MIME-Version", "Content-Transfer-Encoding"} <= wanted
        assert len(message["To"].addresses) == 1
        assert not message.get_all("Bcc")
        assert all(letter.isprintable() for letter in str(message["Subject"]))
        assert not any(letter in message.get_content() for letter in "\x00\x1b\u202e\u200b\u2066")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "bo",
        "bo@example.com, eve@example.com",
        "bo@example.com\nBcc: eve@example.com",
        "Bo <bo@example.com>",
        "a b@c",
    ],
)
def test_an_address_that_is_not_one_address_gets_nothing(desk: Office, address: str):
    User.objects.filter(username="bo").update(email=address)

    desk.asked()

    row = Notification.objects.get()
    assert mail.outbox == []
    assert row.dropped_at is not None
    assert "mail address" in row.error


def test_an_address_with_space_around_it_is_one():
    assert address_of(User(email=" bo@example.com ")) == "bo@example.com"
    with pytest.raises(Permanent):
        address_of(User(email="bo@exa\u202emple.com"))


def test_a_subject_is_one_line_that_is_not_too_long():
    assert subject_line("a\r\nBcc: eve@example.com") == "a Bcc: eve@example.com"
    assert len(subject_line("x" * 1000)) == 150


def test_without_an_address_of_the_project_there_is_no_link(desk: Office):
    with override_settings(DURABLEFLOWS={"NOTIFIERS": [MAIL]}):
        desk.asked()

    assert "http" not in sent().get_content()


def test_a_project_has_its_own_texts(desk: Office, tmp_path: Any, settings: Any):
    folder = tmp_path / "durableflows" / "notices"
    folder.mkdir(parents=True)
    (folder / "subject.txt").write_text("Please look:\n {{ notice.title|safe }}\n")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path, *settings.TEMPLATES[0]["DIRS"]]}]

    desk.asked()

    assert sent()["Subject"] == "Please look: Pay 5 to Ada"


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({"NOTIFIERS": [MAIL], "BASE_URL": "https://desk.example.com"}, []),
        ({"NOTIFIERS": [MAIL]}, ["durableflows.W017"]),
        (
            {"NOTIFIERS": ["tests.support.told_people.NoNotifier"], "BASE_URL": "https://x.eu"},
            ["durableflows.E009"],
        ),
        ({"NOTIFIERS": ["no.such.Thing"], "BASE_URL": "https://x.eu"}, ["durableflows.E009"]),
        ({"BASE_URL": "desk.example.com"}, ["durableflows.E010"]),
        ({"BASE_URL": "javascript:alert(1)"}, ["durableflows.E010"]),
        ({"BASE_URL": "https://desk.example.com/\r\nBcc: x"}, ["durableflows.E010"]),
        ({}, []),
    ],
)
def test_wrong_settings_are_found_at_the_start(given: dict[str, object], ids: list[str]):
    with override_settings(DURABLEFLOWS=given):
        assert [found.id for found in check_notices(None)] == ids


def test_a_notifier_is_made_once():
    assert load(MAIL) is load(MAIL)
