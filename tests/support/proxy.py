"""A server in front of another, that a test takes away and brings back: for clients the other one is gone meanwhile."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Passes bytes on between each client and the server behind."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._listener: socket.socket | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.port = 0
        self.open()

    def open(self) -> None:
        """Listen, on the same port each time."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Hang up on everybody, and refuse whoever comes."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                pair = client, socket.create_connection(self._behind)
                self._pairs.append(pair)
                threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(left: socket.socket, right: socket.socket) -> None:
    other = {left: right, right: left}
    with left, right, contextlib.suppress(OSError):
        while True:
            for end in select.select([left, right], [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                other[end].sendall(data)


@contextlib.contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    """A proxy for as long as the block lasts."""
    between = Proxy(host, port)
    try:
        yield between
    finally:
        between.close()
