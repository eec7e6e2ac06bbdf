"""The demo's mail catcher as a process of its own, and what a stranger can send to it."""

import re
import smtplib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

import httpx

from customer_ops.mailbox.script import Script
from customer_ops.mailbox.store import Store

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Mailbox:
    """A running catcher."""

    folder: Path
    smtp_port: int
    page: httpx.Client

    @property
    def store(self) -> Store:
        """What it keeps, read from the folder."""
        return Store(self.folder / "mails")

    @property
    def script(self) -> Script:
        """How it is told to misbehave."""
        return Script(self.folder / "script")

    def send(self, message: EmailMessage) -> None:
        """Send a mail as any mail program does."""
        with smtplib.SMTP("127.0.0.1", self.smtp_port, timeout=10) as connection:
            connection.send_message(message)

    def send_raw(self, content: bytes, *, to: str, sender: str = "a@shop.example") -> None:
        """Send bytes that are no well-made mail."""
        with smtplib.SMTP("127.0.0.1", self.smtp_port, timeout=10) as connection:
            connection.sendmail(sender, [to], content)

    def read(self, path: str = "/") -> str:
        """A page's HTML."""
        return self.page.get(path).raise_for_status().text

    def open_first(self, to: str) -> str:
        """The page of the newest mail to somebody, reached by its link in the list."""
        link = re.search(r'href="(/mails/[^"]+)"', self.read(f"/?to={to}"))
        assert link, self.read(f"/?to={to}")
        return self.read(link[1])


def mail(
    to: str, *, subject: str = "Your refund", text: str = "Dear Ada", message_id: str = "<df_1@shop.example>"
) -> EmailMessage:
    """A well-made mail."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Support <support@shop.example>", to, subject
    message["Message-ID"] = message_id
    message.set_content(text)
    return message


@contextmanager
def mailbox(folder: Path) -> Iterator[Mailbox]:
    """Start a catcher on a folder, for as long as the block lasts."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        smtp_port, page_port = one.getsockname()[1], other.getsockname()[1]
    command = [sys.executable, "-m", "customer_ops.mailbox", f"--smtp-port={smtp_port}", f"--page-port={page_port}"]
    places = [f"--folder={folder / 'mails'}", f"--script={folder / 'script'}", "--desk=http://desk.example/"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, *places], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        assert "mails for smtp" in process.stdout.readline(), (folder / "log").read_text()
        with httpx.Client(base_url=f"http://127.0.0.1:{page_port}", trust_env=False, timeout=10) as page:
            yield Mailbox(folder, smtp_port, page)
    finally:
        process.terminate()
        process.communicate(timeout=10)
