"""No way out: while the block runs, this process opens no connection of Python's to anywhere.

Database drivers written in C keep theirs; whatever else a step reaches for fails there, and says what to do.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch


class ReachedOutside(OSError):
    """Code outside an effect opened a connection, and nothing left."""


@contextmanager
def sealed() -> Iterator[list[str]]:
    """Refuse every connection that is opened in the block; gives the list of what was refused so far."""
    refused: list[str] = []

    def refuse(_socket: socket.socket, address: Any, *_: object) -> NoReturn:
        refused.append(repr(address))
        raise ReachedOutside(
            f"a connection to {address!r} was opened outside an effect, and refused: nothing was sent. Make the call "
            "an effect of the step, or fake it in the scenario"
        )

    with (
        patch.object(socket.socket, "connect", refuse),
        patch.object(socket.socket, "connect_ex", refuse),
        patch.object(socket.socket, "sendto", refuse),
    ):
        yield refused
