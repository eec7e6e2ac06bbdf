"""The connection to one client: a whole answer, half of one, one byte at a time, or none.

Owns the bytes of an answer. Called by the provider; never touches the books. A client that is gone is no error here.
"""

import contextlib
import json
import socket
import struct
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

from customer_ops.sandbox.answers import Answer

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds: closing sends RST and drops what was not sent
HTML = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body><h1>Please wait</h1></body></html>"


class Line:
    """One client, waiting for one answer."""

    def __init__(self, connection: socket.socket, *, request_id: str, key: str | None) -> None:
        self.socket = connection
        self.is_cut = False
        self._request_id = request_id
        self._key = key

    def send(self, answer: Answer) -> None:
        """Send the answer."""
        self._write(self._encode(answer))

    def send_half(self, answer: Answer) -> None:
        """Promise the whole body, send half of it and hang up."""
        self._write(self._encode(answer)[: -max(1, len(_body(answer)) // 2)])
        self.is_cut = True

    def send_html(self, answer: Answer) -> None:
        """Send a page instead, as a proxy would."""
        self._write(self._head(HTTPStatus.OK, "text/html; charset=utf-8", len(HTML), answer) + HTML)

    def send_bad_json(self, answer: Answer) -> None:
        """Send the first half of the JSON as if it were all."""
        body = _body(answer)[: len(_body(answer)) // 2]
        self._write(self._head(HTTPStatus(answer.status), "application/json", len(body), answer) + body)

    def trickle(self, answer: Answer, pause: Callable[[], None]) -> None:
        """Send the answer byte by byte, each one well inside any time-out for a single read."""
        for byte in self._encode(answer):
            pause()
            if not self._write(bytes([byte])):
                return

    def cut(self) -> None:
        """Hang up in good order, without an answer."""
        self.is_cut = True

    def reset(self) -> None:
        """Hang up so that the client sees a reset."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.is_cut = True

    def _encode(self, answer: Answer) -> bytes:
        body = _body(answer)
        return self._head(HTTPStatus(answer.status), "application/json", len(body), answer) + body

    def _head(self, status: HTTPStatus, content_type: str, length: int, answer: Answer) -> bytes:
        lines = [
            f"HTTP/1.1 {int(status)} {status.phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {content_type}",
            f"Content-Length: {length}",
            f"Request-Id: {self._request_id}",
            *([f"Idempotency-Key: {self._key}"] if self._key else []),
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _write(self, data: bytes) -> bool:
        try:
            self.socket.sendall(data)
        except OSError:  # the client has given up: that is its right
            self.is_cut = True
            return False
        return True


def _body(answer: Answer) -> bytes:
    return json.dumps(answer.body, indent=2).encode()
