"""Where a demo runs: its folder, ports, addresses and the environment that every process of it gets."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk_test_local"


class CannotStart(Exception):
    """Something on this machine is in the way; the message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """One demo's folder and ports. `settings`: environment variables beyond those of this process."""

    folder: Path
    port: int
    sandbox_port: int
    settings: Mapping[str, str]

    @property
    def url(self) -> str:
        """Address of the web pages."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def payments_url(self) -> str:
        """Address of the payment sandbox."""
        return f"http://127.0.0.1:{self.sandbox_port}"

    @property
    def books(self) -> Path:
        """The sandbox's own books."""
        return self.folder / "payments.sqlite3"

    def environment(self) -> dict[str, str]:
        """What each process of the demo is started with."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "customer_ops.settings",
            "PYTHONUNBUFFERED": "1",
            "CUSTOMER_OPS_DATA": str(self.folder),
            "PAYMENTS_URL": self.payments_url,
            "PAYMENTS_KEY": KEY,
            **self.settings,
        }


def check_port(port: int) -> None:
    """Refuse a port that somebody else listens on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise CannotStart(
                f"port {port} is in use, perhaps by another demo: stop that one, "
                f"or choose another port: PORT={port + 1} make demo"
            ) from None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def read_port() -> int:
    """The web's port: PORT, or 8000. Raises CannotStart for something else than a port."""
    text = os.environ.get("PORT") or "8000"
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise CannotStart(f"PORT is {text!r}: a number from 1 to 65535 is needed")
    return int(text)
