"""A line that is cut at each point of a mail, before a real SMTP server: class, ledger, sends, end and mails (R13).

The server is aiosmtpd, in the demo's catcher, which answers "taken" only when a mail is on disk. What it holds is the
books: what the engine believes is compared with that.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from customer_ops.effects import send_mail
from durableflows.testing import virtual
from tests.support.adapters import Seen, declared, line, play
from tests.support.cutting import POINTS, Cut, cut_line
from tests.support.desk import make_request, usd
from tests.support.mail_office import BACKEND, Office, open_office

pytestmark = pytest.mark.django_db

RESENT: dict[str, Any] = {"key_window": timedelta(hours=2)}
"""A project that would rather have a second mail than none."""

# Before the text has left, nothing can have been taken.
NEVER = line("NeverSent", "PLANNED", "CONFIRMED", sends=2, books=1)
NOT_YET = line("Transient", "PLANNED", "CONFIRMED", sends=2, books=1)

CUTS: list[tuple[Cut, Seen]] = [
    (Cut("connect", before=True), NEVER),
    (Cut("connect"), NEVER),
    (Cut("EHLO", before=True), NOT_YET),
    (Cut("EHLO"), NOT_YET),
    (Cut("MAIL", before=True), NOT_YET),
    (Cut("MAIL"), NOT_YET),
    (Cut("RCPT", before=True), NOT_YET),
    (Cut("RCPT"), NOT_YET),
    (Cut("DATA", before=True), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=0)),
    (Cut("DATA"), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=0)),
    (Cut("text", before=True), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=0)),
    (Cut("text"), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=1)),
    (Cut("QUIT", before=True), line("receipt", "CONFIRMED", "CONFIRMED", sends=1, books=1)),
    (Cut("QUIT"), line("receipt", "CONFIRMED", "CONFIRMED", sends=1, books=1)),
    (Cut("connect", silent=True), NEVER),
    (Cut("RCPT", silent=True), NOT_YET),
    (Cut("text", before=True, silent=True), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=0)),
    (Cut("text", silent=True), line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=1)),
    (Cut("QUIT", silent=True), line("receipt", "CONFIRMED", "CONFIRMED", sends=1, books=1)),
]

CUTS_AND_RESENT: list[tuple[Cut, Seen]] = [
    (Cut("DATA"), line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=2, books=1)),
    (Cut("text", before=True), line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=2, books=1)),
    (Cut("text"), line("UnknownOutcome", "UNKNOWN", "CONFIRMED", sends=2, books=2)),
]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path / "office") as office:
        yield office


@pytest.fixture
def smtp(settings: LazySettings, office: Office) -> LazySettings:
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = BACKEND, "127.0.0.1"
    settings.EMAIL_PORT = office.port
    return settings


def seen(office: Office, *, is_silent: bool = False, **other: Any) -> Seen:
    """What one mail goes through."""
    request = make_request(usd("10.00"))
    with virtual() as world:
        arguments = {"template": "rejected", "request_id": request.pk}
        return play(world, declared(send_mail, is_silent=is_silent, **other), arguments, books=office.mails)


def test_every_point_of_a_mail_is_cut() -> None:
    assert {cut.point for cut, _ in CUTS} == set(POINTS)


@pytest.mark.parametrize(("cut", "expected"), CUTS, ids=str)
def test_a_mail_whose_line_is_cut(smtp: LazySettings, office: Office, cut: Cut, expected: Seen) -> None:
    """S3.6: in doubt exactly when the text had left, and then for a person; never sent twice by itself."""
    with cut_line("127.0.0.1", office.port, cut) as between:
        smtp.EMAIL_PORT = between.port

        assert seen(office, is_silent=cut.silent) == expected


@pytest.mark.parametrize(("cut", "expected"), CUTS_AND_RESENT, ids=str)
def test_a_mail_that_may_be_sent_twice_is_sent_again_under_its_message_id(
    smtp: LazySettings, office: Office, cut: Cut, expected: Seen
) -> None:
    with cut_line("127.0.0.1", office.port, cut) as between:
        smtp.EMAIL_PORT = between.port

        assert seen(office, **RESENT) == expected
    assert len({letter.message_id for letter in office.store.letters()}) == 1


REFUSALS: list[tuple[str, Seen]] = [
    ("RCPT 451 4.3.0 later", NOT_YET),
    ("RCPT 550 5.1.1 nobody", line("Permanent", "REJECTED", "REJECTED", sends=1, books=0)),
    ("TEXT 451 4.3.0 later", NOT_YET),
    ("TEXT 554 5.7.1 no", line("Permanent", "REJECTED", "REJECTED", sends=1, books=0)),
    ("TEXT cut-before", line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=0)),
    ("TEXT cut-after", line("UnknownOutcome", "UNKNOWN", "UNKNOWN", sends=1, books=1)),
]


@pytest.mark.parametrize(("order", "expected"), REFUSALS)
def test_a_mail_that_the_server_treats_badly(smtp: LazySettings, office: Office, order: str, expected: Seen) -> None:
    office.script.add(order)

    assert seen(office) == expected
