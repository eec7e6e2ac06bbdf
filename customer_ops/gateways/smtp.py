"""Django's SMTP backend with a total time, which also remembers whether the text of a mail has left.

Owns those two facts, for `gateways.mail`: a connection that breaks before the text was sent has sent nothing, and a
server that answers slowly at each command cannot hold a worker longer than once. Named by EMAIL_BACKEND.
"""

import smtplib
import time
from typing import TYPE_CHECKING, Any

from django.core.mail.backends.smtp import EmailBackend

if TYPE_CHECKING:
    _Base = smtplib.SMTP
else:  # stands beside SMTP and SMTP_SSL alike
    _Base = object

DEFAULT_SECONDS = 10.0
SHORTEST_SECONDS = 0.001  # 0 would mean "do not wait", another error


class _Telling(_Base):
    has_text_left = False

    def __init__(self, host: str = "", port: int = 0, *, timeout: float = DEFAULT_SECONDS, **options: Any) -> None:
        self._ends_at = time.monotonic() + timeout
        super().__init__(host, port, timeout=timeout, **options)

    def send(self, s: Any) -> None:
        """Send bytes within what is left of the time."""
        self._limit()
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer within what is left of the time."""
        self._limit()
        return super().getreply()

    def data(self, msg: Any) -> tuple[int, bytes]:
        """Send the text. What breaks from here on may have been taken."""
        self.has_text_left = True
        return super().data(msg)

    def _limit(self) -> None:
        if self.sock is not None:
            self.sock.settimeout(max(SHORTEST_SECONDS, self._ends_at - time.monotonic()))


class TellingSmtp(_Telling, smtplib.SMTP):
    """A connection that remembers."""


class TellingSmtpSsl(_Telling, smtplib.SMTP_SSL):
    """The same, under TLS from the start."""


class TellingBackend(EmailBackend):
    """Sends through a connection that remembers."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        """Choose the connection as Django does."""
        return TellingSmtpSsl if self.use_ssl else TellingSmtp
