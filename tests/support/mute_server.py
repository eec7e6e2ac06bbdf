"""A server that takes every connection and never says a word: a broker that is there and does not answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def mute_server() -> Iterator[str]:
    """Its address, `host:port`, for as long as the block lasts."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        host, port = listener.getsockname()
        over = threading.Event()

        def take() -> None:
            while not over.is_set():
                kept.append(listener.accept()[0])

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield f"{host}:{port}"
        finally:
            over.set()
            with socket.create_connection((host, port)):  # accept() does not notice that its socket was closed
                thread.join(timeout=5)
            for connection in kept:
                connection.close()
