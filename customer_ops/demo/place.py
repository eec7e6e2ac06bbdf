"""Where a demo runs: its folder, ports, addresses and the environment that every process of it gets."""

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk_test_local"
SIGNED_WITH = "whsec_local"
MAILS, FLOWER = 25, 55  # so many ports after the web's


class CannotStart(Exception):
    """Something on this machine is in the way; the message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each part of the demo listens, on 127.0.0.1 alone."""

    web: int
    payments: int
    smtp: int
    mails: int
    flower: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` wrote."""
        return cls(*map(int, text.split()))

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))


@dataclass(frozen=True, slots=True)
class Place:
    """One demo's folder and ports. `settings`: environment variables beyond those of this process."""

    folder: Path
    ports: Ports
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Address of the web pages."""
        return _address(self.ports.web)

    @property
    def payments_url(self) -> str:
        """Address of the payment sandbox."""
        return _address(self.ports.payments)

    @property
    def events_url(self) -> str:
        """Where the payment sandbox tells its events."""
        return f"{self.url}/webhooks/payments/"

    @property
    def mails_url(self) -> str:
        """Address of the page with the mails that went out."""
        return _address(self.ports.mails)

    @property
    def flower_url(self) -> str:
        """Address of Flower."""
        return _address(self.ports.flower)

    @property
    def books(self) -> Path:
        """The sandbox's own books."""
        return self.folder / "payments.sqlite3"

    @property
    def mailbox(self) -> Path:
        """The folder of the mails that went out."""
        return self.folder / "mailbox"

    @property
    def mail_script(self) -> Path:
        """The file that tells the mail server to misbehave."""
        return self.folder / "mail-script"

    def environment(self) -> dict[str, str]:
        """What each process of the demo is started with. Mail goes to the demo's own server, whatever else is set."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EMAIL_", "FLOWER_"))}
        return {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "customer_ops.settings",
            "PYTHONUNBUFFERED": "1",
            "CUSTOMER_OPS_DATA": str(self.folder),
            "PAYMENTS_URL": self.payments_url,
            "PAYMENTS_KEY": KEY,
            "PAYMENTS_WEBHOOK_SECRETS": SIGNED_WITH,
            "TICKETS_URL": self.payments_url,  # one program is both, with one log-in
            "TICKETS_KEY": KEY,
            "EMAIL_HOST": "127.0.0.1",
            "EMAIL_PORT": str(self.ports.smtp),
            "DEMO_MAIL_PAGE": f"{self.mails_url}/",
            "BASE_URL": self.url,
            **self.settings,
        }


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def check_port(port: int) -> None:
    """Refuse a port that somebody else listens on."""
    if not is_free(port):
        raise CannotStart(
            f"port {port} is in use, perhaps by another demo: stop that one, "
            f"or choose another port: PORT={port + 1} make demo"
        )


def is_free(port: int) -> bool:
    """Does nobody listen on a port?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):  # taken, or beyond the last port there is
            return False
        return True


def near_ports(web: int) -> Ports:
    """The ports beside a chosen one, the same at each start where they are free: 8000 has mails at 8025."""
    payments, smtp, mails, flower = _free_ports(4)
    return Ports(
        web,
        payments,
        smtp,
        mails=web + MAILS if is_free(web + MAILS) else mails,
        flower=web + FLOWER if is_free(web + FLOWER) else flower,
    )


def free_ports() -> Ports:
    """Ports that nobody listens on now."""
    return Ports(*_free_ports(5))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:  # all at once: the same one is not given twice
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def read_port() -> int:
    """The web's port: PORT, or 8000. Raises CannotStart for something else than a port."""
    text = os.environ.get("PORT") or "8000"
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise CannotStart(f"PORT is {text!r}: a number from 1 to 65535 is needed")
    return int(text)
