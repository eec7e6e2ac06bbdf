"""A provider's books as files, outside the database and safe from kills: what was sent, and what was really done.

Each act is a file of its own, made by one system call: there is no moment at which a death could lose or double it. A
reference names one logical operation of one run; keys are what the engine sends with it.
"""

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a provider's door saw: `what` is "sent" when a request arrived, else what it was told."""

    what: str
    key: str
    at: float
    pid: int


class Books:
    """The books of one provider."""

    def __init__(self, folder: Path, provider: str) -> None:
        self._acts, self._lines = folder / provider / "acts", folder / provider / "lines"
        self._acts.mkdir(parents=True, exist_ok=True)
        self._lines.mkdir(parents=True, exist_ok=True)

    def write(self, reference: str, what: str, key: str) -> None:
        """Add a line, in one write at the end of the file."""
        line = json.dumps({"what": what, "key": key, "at": time.time(), "pid": os.getpid()}) + "\n"
        file = os.open(self._lines / reference, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def act_once(self, reference: str, key: str) -> str:
        """Do it unless this key was seen before; the receipt's id, the same one each time."""
        self._act(reference, key)
        return key[:16]

    def act(self, reference: str, key: str) -> str:
        """Do it, whatever was done before: a provider that does not look at keys."""
        name = f"{key}~{uuid.uuid4().hex}"
        self._act(reference, name)
        return name[-16:]

    def _act(self, reference: str, name: str) -> None:
        folder = self._acts / reference
        folder.mkdir(exist_ok=True)
        try:
            os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return

    def acts(self, reference: str) -> list[str]:
        """What was done for an operation: one name for each time."""
        try:
            return sorted(act.name for act in (self._acts / reference).iterdir())
        except FileNotFoundError:
            return []

    def acts_at(self, reference: str) -> list[float]:
        """When each of them was done."""
        return [(self._acts / reference / name).stat().st_mtime for name in self.acts(reference)]

    def lines(self, reference: str) -> list[Line]:
        """All lines of an operation, in their order."""
        try:
            text = (self._lines / reference).read_text()
        except FileNotFoundError:
            return []
        return [Line(**json.loads(row)) for row in text.splitlines()]

    def references(self) -> Iterator[str]:
        """Every operation that a request came for, or that was done."""
        yield from sorted({file.name for folder in (self._lines, self._acts) for file in folder.iterdir()})
