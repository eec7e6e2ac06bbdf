"""The catcher's SMTP side: takes every mail, keeps it, and misbehaves when its script says so.

Answers "taken" only when the mail is on disk. Delivers nothing to anybody.
"""

import asyncio
import logging

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from customer_ops.mailbox.script import CUT_AFTER, CUT_BEFORE, RCPT, TEXT, Script
from customer_ops.mailbox.store import Store

logger = logging.getLogger(__name__)

LARGEST_MAIL_BYTES = 10_000_000
TAKEN = "250 2.0.0 taken"
LOST = "nothing: the connection was cut, and the mail was lost"


class Catcher:
    """What aiosmtpd calls at each point of a mail."""

    def __init__(self, store: Store, script: Script) -> None:
        self._store, self._script = store, script

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Take a recipient, whoever it is."""
        answer = self._script.take(RCPT)
        if answer:
            logger.info("a recipient is refused: %s", answer)
            return answer
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 taken"

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        """Keep a mail, or do what the script says."""
        order = self._script.take(TEXT)
        refusal = {CUT_AFTER: "", CUT_BEFORE: LOST}.get(order, order)
        try:
            self._keep(envelope, refusal)
        except OSError:
            logger.exception("a mail could not be kept")
            return "451 4.3.0 the mail could not be kept, try again"
        if order in (CUT_BEFORE, CUT_AFTER):
            return _hang_up(server)
        return order or TAKEN

    def _keep(self, envelope: Envelope, refusal: str) -> None:
        content = envelope.original_content or b""
        sender, recipients = envelope.mail_from or "", list(envelope.rcpt_tos)
        key = self._store.keep(content, sender=sender, recipients=recipients, refusal=refusal)
        logger.info("mail %s: %s", key, refusal or "taken")


def _hang_up(server: SMTP) -> str:
    """Break the connection; the answer that is returned reaches nobody."""
    transport = server.transport
    assert isinstance(transport, asyncio.Transport)
    transport.abort()
    return TAKEN


def serve(store: Store, script: Script, *, port: int) -> Controller:
    """Listen on this machine alone, in a thread of its own, until `stop()`. Raises OSError for a port in use."""
    catcher = Controller(Catcher(store, script), hostname="127.0.0.1", port=port, data_size_limit=LARGEST_MAIL_BYTES)
    catcher.start()
    return catcher
