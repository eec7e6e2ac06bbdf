"""How far a mail got: each way that a mail server can fail has its class, and only one of them is doubt (R13)."""

import socket
import time

import pytest
from django.conf import LazySettings
from django.core import mail as django_mail

from customer_ops.gateways import mail
from durableflows import EffectCall, NeedsHuman, NeverSent, Permanent, StepFailure, Transient, UnknownOutcome
from tests.support import payments
from tests.support.smtp_server import DROP, STAY_SILENT, smtp_server


def call(*, timeout_seconds: float = 5.0, send_in_seconds: float = 60.0) -> EffectCall:
    """A send of one mail."""
    return payments.call("df_mail", timeout_seconds=timeout_seconds, send_in_seconds=send_in_seconds)


def send(given: EffectCall | None = None, *, to: str = "ada@example.com", subject: str = "Hello") -> mail.MailReceipt:
    """Send one mail."""
    return mail.send(given or call(), to=to, subject=subject, body="Dear Ada,\n.\nbye")


@pytest.fixture
def smtp(settings: LazySettings) -> LazySettings:
    """The project's own SMTP backend."""
    settings.EMAIL_BACKEND = "customer_ops.gateways.smtp.TellingBackend"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.DEFAULT_FROM_EMAIL = "Support <support@shop.example>"
    return settings


def test_a_mail_is_taken_under_the_id_that_its_key_gives(smtp: LazySettings) -> None:
    with smtp_server() as server:
        smtp.EMAIL_PORT = server.port
        first, second = send(), send()

    assert first == second == mail.MailReceipt(message_id="<df_mail@shop.example>")
    assert all("Message-ID: <df_mail@shop.example>" in text for text in server.texts)
    assert "Dear Ada,\r\n..\r\nbye" in server.texts[0]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"connect": DROP}, NeverSent),
        ({"connect": "554 go away"}, NeverSent),
        ({"EHLO": DROP}, Transient),
        ({"MAIL": "451 later"}, Transient),
        ({"MAIL": "550 not you"}, Permanent),
        ({"MAIL": DROP}, Transient),
        ({"RCPT": "450 busy"}, Transient),
        ({"RCPT": "421 closing"}, Transient),
        ({"RCPT": "550 no such user"}, Permanent),
        ({"RCPT": DROP}, Transient),
        ({"DATA": "451 no room"}, Transient),
        ({"DATA": "554 no mail today"}, Permanent),
        ({"text": "452 no room"}, Transient),
        ({"text": "552 too large"}, Permanent),
        ({"text": DROP}, UnknownOutcome),
        ({"text": "nonsense"}, UnknownOutcome),
        ({"text": "299 perhaps"}, UnknownOutcome),
    ],
    ids=str,
)
def test_a_failure_says_how_far_the_mail_got(
    smtp: LazySettings, answers: dict[str, str], kind: type[StepFailure]
) -> None:
    with smtp_server(**answers) as server:
        smtp.EMAIL_PORT = server.port
        with pytest.raises(StepFailure) as caught:
            send()

    assert type(caught.value) is kind


@pytest.mark.parametrize("ending", [DROP, "500 never heard of it", "nonsense"])
def test_a_mail_that_was_taken_is_taken_however_the_server_says_goodbye(smtp: LazySettings, ending: str) -> None:
    with smtp_server(QUIT=ending) as server:
        smtp.EMAIL_PORT = server.port

        assert send().message_id


@pytest.mark.parametrize(
    ("point", "kind"), [("connect", NeverSent), ("MAIL", Transient), ("text", UnknownOutcome)], ids=str
)
def test_silence_ends_with_the_time_of_the_call(smtp: LazySettings, point: str, kind: type[StepFailure]) -> None:
    with smtp_server(**{point: STAY_SILENT}) as server:
        smtp.EMAIL_PORT = server.port
        began_at = time.monotonic()
        with pytest.raises(StepFailure) as caught:
            send(call(timeout_seconds=0.5))

    assert type(caught.value) is kind
    assert time.monotonic() - began_at < 8


def test_nobody_listening_and_no_such_host_are_never_sent(smtp: LazySettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        smtp.EMAIL_PORT = free.getsockname()[1]
    with pytest.raises(NeverSent, match="refused"):
        send()

    smtp.EMAIL_HOST = "mail.invalid"
    with pytest.raises(NeverSent):
        send()


def test_too_late_is_never_sent(smtp: LazySettings) -> None:
    with smtp_server() as server:
        smtp.EMAIL_PORT = server.port
        with pytest.raises(NeverSent):
            send(call(send_in_seconds=-1))

    assert server.texts == []


def test_a_refused_log_in_is_for_a_person(smtp: LazySettings) -> None:
    smtp.EMAIL_HOST_USER, smtp.EMAIL_HOST_PASSWORD = "desk", "wrong password"
    with smtp_server(EHLO="250-hello\r\n250 AUTH PLAIN", AUTH="535 no") as server:
        smtp.EMAIL_PORT = server.port
        with pytest.raises(NeedsHuman) as caught:
            send()

    assert "wrong password" not in payments.all_text(caught.value)


def test_with_another_backend_every_break_is_doubt(smtp: LazySettings) -> None:
    smtp.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with smtp_server(RCPT=DROP) as server:
        smtp.EMAIL_PORT = server.port
        with pytest.raises(UnknownOutcome):
            send()


@pytest.mark.parametrize("fields", [{"subject": "a\r\nBcc: everybody@example.com"}, {"to": "ada@example.com\nx"}])
def test_a_line_break_in_a_header_is_permanent(fields: dict[str, str]) -> None:
    with pytest.raises(Permanent):
        send(**fields)  # type: ignore[arg-type]


def test_the_memory_of_a_test_takes_mails_too() -> None:
    send()

    assert [sent.extra_headers["Message-ID"] for sent in django_mail.outbox] == ["<df_mail@localhost>"]
