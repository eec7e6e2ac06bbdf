"""An archive that has no room is none, and one that is there outlives a loss of power."""

import os
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage

from durableflows import archives
from durableflows.archives import Lines, NotArchived


def test_without_room_to_gather_a_run_nothing_is_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "IN_MEMORY_BYTES", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    lines = Lines()

    with lines.file, pytest.raises(NotArchived, match="cannot be gathered"):
        lines.add({"row": "longer than ten bytes"})


def test_a_file_and_the_folders_to_it_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda one: synced.append(Path(f"/proc/self/fd/{one}").readlink()))
    storage = FileSystemStorage(location=tmp_path)
    name = storage.save("archive/2026/11/run.jsonl", ContentFile(b"{}"))

    archives._settle(storage, name)
    archives._settle(InMemoryStorage(), "run.jsonl")

    assert [str(one.relative_to(tmp_path)) for one in synced] == [
        name,
        "archive/2026/11",
        "archive/2026",
        "archive",
        ".",
    ]
