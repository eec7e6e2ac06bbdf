"""A server that answers each connection with the bytes it was given, and remembers what it got.

For answers that no provider should give. Real sockets; one thread.
"""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

RESET = b"\0reset"


class RawServer:
    """Answers the first connection with the first text, and so on; the last one is repeated.

    None: it says nothing and keeps the connection. RESET: it breaks the connection off.
    """

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        self._answers = list(answers)
        self._last: object = None
        self._silent: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, and wait until the last one was read to its end."""
        with socket.socket() as last:  # accept() does not notice that its socket was closed
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.connect(self._socket.getsockname())
            self._thread.join(timeout=5)
        for connection in [self._socket, *self._silent]:
            connection.close()

    def _serve(self) -> None:
        while True:
            connection, client = self._socket.accept()
            if client == self._last:
                connection.close()
                return
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self.received.append(read_request(connection))
            if answer is None:
                self._silent.append(connection)
            else:
                _answer(connection, answer)


def http(status: str, body: bytes | str = b"", **headers: str) -> bytes:
    """Write an answer: `http("200 OK", "{}", retry_after="1")`."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


def _answer(connection: socket.socket, answer: bytes) -> None:
    with connection:
        if answer == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.sendall(answer)


@contextmanager
def raw_server(*answers: bytes | None) -> Iterator[RawServer]:
    """A server for as long as the block lasts."""
    server = RawServer(answers)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """Read one request: its head, and as much body as it promises. Less when the client hangs up."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _promised(data):
        chunk = connection.recv(65536)
        data += chunk
        if not chunk or data[:1] == b"\x16":  # the client hung up, or wants to speak TLS
            break
    return data


def _promised(data: bytes) -> int:
    for line in data.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
