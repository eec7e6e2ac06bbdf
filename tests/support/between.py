"""A listener of our own before a server: each connection is served by a thread, and none outlives the test."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeVar


class Between(ABC):
    """Takes connections on a port of its own; what becomes of one is `serve`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.conversations = 0
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def serve(self, client: socket.socket, number: int) -> None:
        """Serve one connection, the `number`th."""

    def close(self) -> None:
        """Take no more connections, and wait until those that there were are over."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self.conversations += 1
                thread = threading.Thread(target=self.serve, args=(client, self.conversations), daemon=True)
                self._threads.append(thread)
                thread.start()


Line = TypeVar("Line", bound=Between)


@contextlib.contextmanager
def closing(between: Line) -> Iterator[Line]:
    """For as long as the block lasts."""
    try:
        yield between
    finally:
        between.close()
