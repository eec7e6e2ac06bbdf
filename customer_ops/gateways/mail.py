"""Mail to customers, through Django's mail settings: one message a call, with the Message-ID that its key gives.

Owns how far a mail got, said by the class of the error (`durableflows.errors`). A mail server knows no idempotency
keys and cannot be asked what it took, so what is lost after the text left is an unknown outcome. Called by the declared
effect; never retries, never touches the database.
"""

import contextlib
import smtplib
import socket
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from pydantic import BaseModel, ConfigDict

from durableflows import CredentialsRefused, EffectCall, NeverSent, Permanent, StepFailure, Transient, UnknownOutcome

LONGEST_TEXT = 200


class MailReceipt(BaseModel):
    """The server took the mail. Whether it was read, nobody knows."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    message_id: str


def message_id_of(call: EffectCall) -> str:
    """Give the Message-ID of a call: the same at each send, so that mail programs and people see one mail."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return f"<{call.key}@{domain}>"


def send(call: EffectCall, *, to: str, subject: str, body: str) -> MailReceipt:
    """Hand one mail to the server.

    Raises NeverSent: no connection; CredentialsRefused: our log-in; Transient: a 4xx answer, or the connection broke
    while nothing of the text had left; Permanent: a 5xx answer; UnknownOutcome: it broke after the text had left.
    """
    message_id = message_id_of(call)
    message = _compose(message_id, to=to, subject=subject, body=body)
    seconds = call.remaining_seconds()
    connection: BaseEmailBackend = get_connection(fail_silently=False, timeout=seconds)
    call.check()
    try:
        _open(connection)
        call.check()  # connecting may have taken long
        _hand_over(connection, message)
    finally:
        # Taken is taken: a server that hangs up instead of saying goodbye changes nothing.
        with contextlib.suppress(OSError, smtplib.SMTPException):
            connection.close()
    return MailReceipt(message_id=message_id)


def _compose(message_id: str, *, to: str, subject: str, body: str) -> EmailMessage:
    message = EmailMessage(subject=subject, body=body, to=[to], headers={"Message-ID": message_id})
    try:
        message.message()
    except ValueError as error:  # a line break in a header, an address that is none
        raise Permanent(f"the mail cannot be written: {error}", code="mail_malformed") from None
    return message


def _open(connection: BaseEmailBackend) -> None:
    try:
        connection.open()
    except smtplib.SMTPAuthenticationError as error:
        text = f"the mail server does not accept our log-in ({error.smtp_code})"
        raise CredentialsRefused(text, code="mail_login") from None
    except (OSError, smtplib.SMTPException) as error:
        # Unknown host, refused, time-out, a greeting that is none: no mail was begun.
        raise NeverSent(f"no connection to the mail server: {_kind(error)}", code="mail_connection") from None


def _hand_over(connection: BaseEmailBackend, message: EmailMessage) -> None:
    try:
        taken = connection.send_messages([message])
    except (OSError, smtplib.SMTPException) as error:
        raise _failure(error, has_text_left=has_text_left(connection)) from None
    if taken != 1:
        raise UnknownOutcome("the mail backend does not say that it took the mail", code="mail_not_counted")


def _failure(error: Exception, *, has_text_left: bool) -> StepFailure:
    """Say what a failed hand-over means. Only a clear answer of the server says "not taken" once the text has left."""
    code, answer = _answer(error)
    if 400 <= code < 600:
        kind = Permanent if code >= 500 else Transient
        return kind(f"the mail server answered {code} {answer}", code=f"smtp_{code}")
    if has_text_left:
        return UnknownOutcome(f"the mail server went away: {_kind(error)}", code="mail_dropped")
    return Transient(f"the mail server went away before the text: {_kind(error)}", code="mail_dropped")


def _answer(error: Exception) -> tuple[int, str]:
    """The server's refusal, (0, "") for none. Other errors of smtplib carry codes that it made up itself."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, answer = next(iter(error.recipients.values()))
        return code, _text(answer)
    if isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError):
        return error.smtp_code, _text(error.smtp_error)
    return 0, ""


def _text(answer: bytes | str) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return text[:LONGEST_TEXT]


def has_text_left(connection: BaseEmailBackend) -> bool:
    """Say whether the text of a mail may have left. Only `TellingBackend` knows; of others, assume it."""
    return bool(getattr(getattr(connection, "connection", None), "has_text_left", True))


def _kind(error: Exception) -> str:
    kinds = {socket.gaierror: "unknown host", ConnectionRefusedError: "refused", TimeoutError: "time-out"}
    return next((text for kind, text in kinds.items() if isinstance(error, kind)), type(error).__name__)
