"""What a person sees of a mail. Foreign bytes come in, plain text comes out, and nothing in them may raise.

Owns the reading of headers and parts. Shows text as text: HTML is given as its source, files by name and size alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message

# The envelope, as the catcher writes it before each mail; the answer ends it.
SENDER, RECIPIENT, ANSWER = "Return-Path", "X-Original-To", "X-Catcher-Answer"
TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A part of a mail that is not shown."""

    name: str
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Letter:
    """One mail as it came. `recipients` and `sender` are the envelope's: who it was handed over for, and by whom."""

    key: str
    arrived_at: datetime | None
    sender: str
    recipients: list[str]
    refusal: str
    headers: list[tuple[str, str]]
    text: str
    is_html: bool
    attachments: list[Attachment]
    source: bytes

    @property
    def message_id(self) -> str:
        """The mail's own name, `<…@…>`; "" when it has none."""
        return self.header("Message-ID")

    @property
    def subject(self) -> str:
        """The subject; "" when it has none."""
        return self.header("Subject")

    def header(self, name: str) -> str:
        """The first header of a name."""
        return next((value for known, value in self.headers if known.lower() == name.lower()), "")


def read_letter(key: str, content: bytes, *, arrived_at: datetime | None) -> Letter:
    """Read a kept file: its envelope, then the mail."""
    message = message_from_bytes(content)
    envelope, headers = split_envelope([(name, _words(value)) for name, value in message.raw_items()])
    text, is_html = _text(message)
    answer = next((value for name, value in envelope if name == ANSWER), "")
    return Letter(
        key=key,
        arrived_at=arrived_at,
        sender=next((value for name, value in envelope if name == SENDER), ""),
        recipients=[value for name, value in envelope if name == RECIPIENT],
        refusal="" if answer == TAKEN else answer,
        headers=headers,
        text=text,
        is_html=is_html,
        attachments=list(_attachments(message)),
        source=content,
    )


def split_envelope(headers: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Take the envelope off the head: all up to the first answer, which is ours, whatever the mail itself says."""
    for place, (name, _value) in enumerate(headers, start=1):
        if name == ANSWER:
            return headers[:place], headers[place:]
    return [], headers


def _words(value: object) -> str:
    """A header in readable letters; as it stands when its coding is broken."""
    raw = "".join(str(value).splitlines()).strip().encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        return str(make_header(decode_header(raw))).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - whatever a stranger's header does to the decoder, the page is shown
        return raw


def _text(message: Message) -> tuple[str, bool]:
    """The first plain text, else the source of the first HTML."""
    parts = [part for part in message.walk() if not part.is_multipart() and not _is_file(part)]
    for kind in ("text/plain", "text/html"):
        for part in parts:
            if part.get_content_type() == kind:
                return _decode(part), kind == "text/html"
    return "", False


def _attachments(message: Message) -> Iterator[Attachment]:
    for part in message.walk():
        if not part.is_multipart() and _is_file(part):
            yield Attachment(_words(_file_name(part)), part.get_content_type(), len(_payload(part)))


def _is_file(part: Message) -> bool:
    return part.get_content_maintype() != "text" or "attachment" in str(part.get("Content-Disposition", "")).lower()


def _file_name(part: Message) -> str:
    try:
        return part.get_filename() or ""
    except Exception:  # noqa: BLE001 - a broken parameter is no name
        return ""


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _decode(part: Message) -> str:
    try:
        text = _payload(part).decode(str(part.get_content_charset() or "utf-8"), "replace")
    except (LookupError, ValueError):  # an unknown character set, or a name with a NUL in it
        text = _payload(part).decode("utf-8", "replace")
    return text.encode("utf-8", "replace").decode().replace("\r\n", "\n")
