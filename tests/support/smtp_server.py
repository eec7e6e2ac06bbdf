"""A mail server that answers as a test says, or hangs up, at each point of a mail. Real sockets; one thread."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, cast

DROP = "drop"
STAY_SILENT = "stay silent"

GOOD = {
    "connect": "220 ready",
    "EHLO": "250 hello",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    "text": "250 taken",
    "QUIT": "221 bye",
    "RSET": "250 ok",
}


class SmtpServer:
    """Answers each point (a command, "connect", or "text" for the end of the mail) by `answers`, else well."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self._answers = {**GOOD, **answers}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.texts: list[str] = []
        self._last: object = None
        self._silent: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of whoever was kept waiting."""
        with socket.socket() as last:  # accept() does not notice that its socket was closed
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.connect(("127.0.0.1", self.port))
            self._thread.join(timeout=5)
        for kept in self._silent:
            kept.close()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            connection, client = self._listening.accept()
            if client == self._last:
                connection.close()
                return
            if self._talk(connection):
                connection.close()
            else:
                self._silent.append(connection)

    def _talk(self, connection: socket.socket) -> bool:
        """Have one conversation. False: it was broken off by silence, and the connection stays open."""
        with connection.makefile("rb") as lines:
            return self._answer(connection, cast(BinaryIO, lines))

    def _answer(self, connection: socket.socket, lines: BinaryIO) -> bool:
        point = "connect"
        while True:
            answer = self._answers[point]
            if answer in (DROP, STAY_SILENT):
                return answer == DROP
            try:
                connection.sendall(f"{answer}\r\n".encode())
            except OSError:
                return True
            if point == "DATA" and answer.startswith("354"):
                self.texts.append(_read_text(lines))
                point = "text"
                continue
            line = lines.readline()
            if not line:
                return True
            point = line.split()[0].decode().upper()


def _read_text(lines: BinaryIO) -> str:
    text = b""
    for line in lines:
        if line == b".\r\n":
            break
        text += line
    return text.decode()


@contextmanager
def smtp_server(**answers: str) -> Iterator[SmtpServer]:
    """A server for as long as the block lasts: `smtp_server(RCPT="550 unknown", text=DROP)`."""
    server = SmtpServer(answers)
    try:
        yield server
    finally:
        server.close()
