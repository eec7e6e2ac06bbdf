"""A storage for archives that fails as a test tells it to, and looks at what is in it."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, InMemoryStorage, Storage, storages

ALIAS = "attic"


class Attic(FileSystemStorage):
    """Files in a folder. `faults` are used up one a save; each is called with the storage, the name and the data."""

    faults: ClassVar[list[Callable[["Attic", str, bytes], str | None]]] = []

    def _save(self, name: str, content: "File[bytes]") -> str:
        data = content.read()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and (stored := fault(self, name, data)) is not None:
            return stored
        return self.whole(name, data)

    def whole(self, name: str, data: bytes) -> str:
        """What a storage does that works."""
        return str(super()._save(name, ContentFile(data)))  # type: ignore[misc]


class InMemory(InMemoryStorage):
    """It has paths, and no file at any of them."""


class Elsewhere(Storage):
    """It has no paths, as storages beyond a network."""

    kept: ClassVar[dict[str, bytes]] = {}

    def _save(self, name: str, content: "File[bytes]") -> str:
        self.kept[name] = content.read()
        return name

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        return ContentFile(self.kept[name], name=name)

    def exists(self, name: str) -> bool:
        """Is it kept?"""
        return name in self.kept


def refuse(attic: Attic, name: str, data: bytes) -> str | None:
    """Nothing is written."""
    raise OSError("https://attic.example/put?api_key=SECRET1 answered 503")


def half_then_refuse(attic: Attic, name: str, data: bytes) -> str | None:
    """The connection breaks half-way."""
    attic.whole(name, data[: len(data) // 2])
    raise OSError("connection reset")


def lose_a_byte(attic: Attic, name: str, data: bytes) -> str | None:
    """It says that all is well, and is wrong."""
    return attic.whole(name, data[:50] + data[51:])


def settings_with(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """STORAGES with the attic in this folder."""
    return {**given, ALIAS: {"BACKEND": "tests.support.attics.Attic", "OPTIONS": {"location": str(folder)}}}


def objects(folder: Path) -> list[Path]:
    """Every object that is there."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_whole(path: Path) -> bool:
    """As the page says: the last line is the hash of all before it, and the name says it too."""
    *_, last = lines = path.read_bytes().splitlines(keepends=True)
    try:
        said = json.loads(last)["sha256"]
    except (ValueError, KeyError):
        return False
    return said == hashlib.sha256(b"".join(lines[:-1])).hexdigest() and said in path.name


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Its lines."""
    assert is_whole(path), path
    yield from map(json.loads, path.read_text("utf-8").splitlines())


def artifact(path: Path, sha256: str) -> bytes:
    """An artifact that it keeps."""
    pieces = [line["base64"] for line in read(path) if line.get("artifact") == sha256 and "base64" in line]
    return b"".join(map(base64.b64decode, pieces))


def attic() -> Attic:
    """The storage as the project has it."""
    found = storages[ALIAS]
    assert isinstance(found, Attic)
    return found
