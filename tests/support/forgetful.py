"""A front of an HTTP provider that loses answers when it is told to, and, if it is forgetful, every idempotency key.

What stands behind a forgetful one is a provider that never hears of keys: each request is a new one to it. Real
sockets; one connection is one request, as our gateways make them.
"""

import contextlib
import re
import socket
from urllib.parse import urlsplit

from tests.support.between import Between, closing
from tests.support.raw_server import read_request

KEY_HEADER = re.compile(rb"\r\nIdempotency-Key:[^\r]*", re.IGNORECASE)


class Front(Between):
    """Passes requests on, without their keys if `loses_keys`."""

    def __init__(self, url: str, *, loses_keys: bool) -> None:
        self._loses_keys = loses_keys
        parts = urlsplit(url)
        self._behind = parts.hostname or "", parts.port or 80
        self.lost_answers = 0
        self.keys_lost = 0
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"

    def lose_answers(self, count: int) -> None:
        """Let so many of the next POST requests be done, and their answers be lost."""
        self.lost_answers = count

    def serve(self, client: socket.socket, number: int) -> None:
        """Pass it on."""
        with client, contextlib.suppress(OSError):
            request = read_request(client)
            if self._loses_keys:
                request, lost = KEY_HEADER.subn(b"", request)
                self.keys_lost += lost
            answer = self._ask(request)
            if request.startswith(b"POST") and self.lost_answers:
                self.lost_answers -= 1
                return
            client.sendall(answer)

    def _ask(self, request: bytes) -> bytes:
        answer = b""
        with socket.create_connection(self._behind) as provider:
            provider.sendall(request)
            while chunk := provider.recv(65536):
                answer += chunk
        return answer


def forgetful(url: str) -> contextlib.AbstractContextManager[Front]:
    """A front that loses keys, for as long as the block lasts."""
    return closing(Front(url, loses_keys=True))


def faithful(url: str) -> contextlib.AbstractContextManager[Front]:
    """A front that passes keys on, for as long as the block lasts."""
    return closing(Front(url, loses_keys=False))
