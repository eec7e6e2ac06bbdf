"""Who tells people about requests: the shape of a notifier, the notice that it is given, and the one that sends mail.

`DURABLEFLOWS["NOTIFIERS"]` names classes. Each is made once and its `notify` is called by a worker, outside of any
transaction, with one notice for one person. What it raises is tried again, but for `Permanent`. A notice may come a
second time under the same id: after a crash nobody knows whether it was given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parseaddr
from functools import lru_cache
from typing import Any, Protocol, cast

from django.conf import settings as django_settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.utils.module_loading import import_string

from durableflows.errors import Permanent

LONGEST_SUBJECT = 150


@dataclass(frozen=True, slots=True)
class Notice:
    """What one person is told about one request. Its texts are harmless: one line each, nothing hidden in them.

    Shapes and units   id: the same for every try of this notice; kind: a value of `core.notices.NoticeKind`; subject: a
                       line; lines: sentences; facts: what is decided on, in words; link: where to look, for this person
                       alone, '' where there is none
    """

    id: str
    kind: str
    person: Any
    request_id: str
    subject: str
    title: str
    lines: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    expires_at: datetime | None = None


class Notifier(Protocol):
    """Anything that can tell a person something."""

    def notify(self, notice: Notice) -> None:
        """Tell `notice.person`. Raise `Permanent` when no further try can work, anything else to be called again."""


@lru_cache(maxsize=64)
def load(path: str) -> Notifier:
    """Make the notifier that the setting names. Raises ImportError, or TypeError when it is none."""
    made: object = import_string(path)()
    if not callable(getattr(made, "notify", None)):
        raise TypeError(f"{path} has no method notify(notice)")
    return cast(Notifier, made)


class MailNotifier:
    """Sends a mail through Django's mail settings, from DEFAULT_FROM_EMAIL, as text.

    The texts are the templates `durableflows/notices/subject.txt` and `body.txt`. Each try of a notice has the same
    Message-ID, so that mail programs show it once.
    """

    def notify(self, notice: Notice) -> None:
        """Send it. Raises Permanent for a person without an address, or with one that is none."""
        message = EmailMessage(
            subject=subject_line(render_to_string("durableflows/notices/subject.txt", {"notice": notice})),
            body=render_to_string("durableflows/notices/body.txt", {"notice": notice}),
            to=[address_of(notice.person)],
            headers={
                "Message-ID": f"<{notice.id}@{_domain()}>",
                "Auto-Submitted": "auto-generated",
                "X-Auto-Response-Suppress": "All",
            },
        )
        try:
            message.message()
        except ValueError as error:
            raise Permanent(f"the mail cannot be written: {type(error).__name__}") from None
        if message.send() != 1:
            raise RuntimeError("the mail backend does not say that it took the mail")


def address_of(person: Any) -> str:
    """The person's mail address. Raises Permanent when there is none that a mail can go to."""
    given = str(getattr(person, person.get_email_field_name(), "") or "").strip()
    if not given:
        raise Permanent("this person has no mail address")
    # One address, not a list of them: a comma or a line break would send the mail to somebody else too.
    if not re.fullmatch(r"[^\s,;<>]+@[^\s,;<>]+", given) or not given.isprintable():
        raise Permanent("this person's mail address is none")
    return given


def subject_line(text: str) -> str:
    """One line for a header, whatever a template made: a line break would begin another header."""
    flat = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return flat if len(flat) <= LONGEST_SUBJECT else f"{flat[: LONGEST_SUBJECT - 1]}…"


def _domain() -> str:
    return parseaddr(django_settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
