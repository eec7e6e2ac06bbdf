"""A real mail server in a thread of the test, and what it has kept: the books of mails."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from customer_ops.mailbox.script import Script
from customer_ops.mailbox.smtp import serve
from customer_ops.mailbox.store import Store

BACKEND = "customer_ops.gateways.smtp.TellingBackend"


@dataclass(frozen=True)
class Office:
    """A mail server that works, and does badly what its script says."""

    port: int
    store: Store
    script: Script

    @property
    def environment(self) -> dict[str, str]:
        """What workers need to send through it."""
        return {"EMAIL_BACKEND": BACKEND, "EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(self.port)}

    def mails(self, key: str) -> int:
        """How many mails it took of an operation."""
        return len([one for one in self.store.letters() if one.message_id.startswith(f"<{key}@") and not one.refusal])


@contextlib.contextmanager
def open_office(folder: Path) -> Iterator[Office]:
    """A mail server for as long as the block lasts."""
    folder.mkdir(exist_ok=True)
    store, script = Store(folder / "mails"), Script(folder / "script")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = serve(store, script, port=port)
    try:
        yield Office(port, store, script)
    finally:
        server.stop()
