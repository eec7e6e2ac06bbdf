"""A cut line in front of a mail server that works: at a point of the conversation, before or after it was heard.

SMTP speaks in turns, so this passes on one turn at a time and cuts exactly where it is told. The first connection alone
is cut; later ones pass, as after a short break of a network.
"""

import contextlib
import socket
from dataclasses import dataclass
from typing import BinaryIO, cast

from tests.support.between import Between, closing

POINTS = ("connect", "EHLO", "MAIL", "RCPT", "DATA", "text", "QUIT")


@dataclass(frozen=True, slots=True)
class Cut:
    """Where: `before` the server heard it (of a text, half of it), or after, when the server has answered."""

    point: str
    before: bool = False
    silent: bool = False
    """The connection stays open and nothing comes any more, until the client gives up."""

    def __str__(self) -> str:
        how = "silence" if self.silent else "cut"
        return f"{how} {'before' if self.before else 'after'} {self.point}"


class CutLine(Between):
    """Passes a conversation on, and cuts the first one."""

    def __init__(self, behind: tuple[str, int], cut: Cut) -> None:
        self._behind, self._cut = behind, cut
        super().__init__()

    def serve(self, client: socket.socket, number: int) -> None:
        """Pass it on."""
        cut = self._cut if number == 1 else Cut("")
        with client, socket.create_connection(self._behind) as server, contextlib.suppress(OSError):
            _talk(client, server, cut)
            if cut.silent:
                client.settimeout(5)
                while client.recv(4096):  # until the client has hung up
                    pass


def _talk(client: socket.socket, server: socket.socket, cut: Cut) -> None:
    """Pass turns on until one side hangs up, or the cut."""
    said, heard = cast(BinaryIO, client.makefile("rb")), cast(BinaryIO, server.makefile("rb"))
    point = "connect"
    with said, heard:
        while cut != Cut(point, before=True, silent=cut.silent):
            answer = _read_answer(heard)
            if not answer or (cut.point == point and not cut.before):
                return
            client.sendall(answer)
            is_text = point == "DATA" and answer.startswith(b"354")
            line = _read_text(said) if is_text else said.readline()
            point = "text" if is_text else line[:4].decode().strip().upper()
            if not line:
                return
            if cut.point == point and cut.before:
                if is_text:
                    server.sendall(line[: len(line) // 2])
                return
            server.sendall(line)


def _read_answer(lines: BinaryIO) -> bytes:
    answer = b""
    while line := lines.readline():
        answer += line
        if line[3:4] != b"-":
            break
    return answer


def _read_text(lines: BinaryIO) -> bytes:
    text = b""
    while line := lines.readline():
        text += line
        if line == b".\r\n":
            break
    return text


def cut_line(host: str, port: int, cut: Cut) -> contextlib.AbstractContextManager[CutLine]:
    """A cut line for as long as the block lasts."""
    return closing(CutLine((host, port), cut))
