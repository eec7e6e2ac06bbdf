"""A run's rows and artifacts as one JSON-lines object in a storage of the project, whole before the rows are removed.

The only writer of archives; `services.cleanup` calls it, outside of any transaction. The same rows give the same bytes
under the same name, so that whoever is interrupted and begins again finds what is there. A name that others may rely on
is never deleted or written over. Rows are copied as they stand: a secret is a reference in them, and stays one.
Source: P14; docs/operations/remove-old-runs.md says how the object is read and proved.
"""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.core.files.base import File
from django.core.files.storage import Storage, storages
from django.db.models import Model, QuerySet

from durableflows import artifacts
from durableflows.core import log_lines
from durableflows.core.classify import describe
from durableflows.models import (
    Addressee,
    Announcement,
    ApprovalDecision,
    ApprovalLink,
    ApprovalRequest,
    Artifact,
    EffectSend,
    ModelCall,
    Notification,
    ProviderEvent,
    RequestNote,
    RequestView,
    RunEvent,
    SideEffect,
    Signal,
    StepAttempt,
    StepRun,
    WorkflowRun,
)
from durableflows.transactions import database

logger = log_lines.logger("durableflows.archives")

FORMAT, VERSION = "durableflows.archive", 1
FOLDER = "durableflows-archive"
PIECE_BYTES = 192 * 1024
IN_MEMORY_BYTES = 4 * 1024 * 1024

OF_RUN: Sequence[tuple[type[Model], str]] = (
    (WorkflowRun, "pk"),
    (StepRun, "run"),
    (StepAttempt, "step__run"),
    (SideEffect, "run"),
    (EffectSend, "effect__run"),
    (ProviderEvent, "effect__run"),
    (ModelCall, "run"),
    (Signal, "run"),
    (Artifact, "run"),
    (ApprovalRequest, "run"),
    (ApprovalRequest.editors.through, "approvalrequest__run"),
    (Addressee, "request__run"),
    (ApprovalDecision, "request__run"),
    (ApprovalLink, "request__run"),
    (RequestNote, "request__run"),
    (RequestView, "request__run"),
    (Announcement, "request__run"),
    (Notification, "request__run"),
    (RunEvent, "run"),
)
"""Every table that goes with a run, and the way from its rows to the run."""


class NotArchived(Exception):
    """The storage did not keep the object whole. The message is masked."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that was read back whole.

    Shapes and units   sha256: of all its lines but the last one, which says it; rows_sha256: of the rows alone;
                       is_spare: its name was given to nobody else, since another one's object is under the usual name
    """

    alias: str
    name: str
    sha256: str
    rows: int
    rows_sha256: str
    is_spare: bool


class Lines:
    """Bytes that are hashed while they are written, into memory or, when they are many, into a file."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - closed by its owner
        self.digest = hashlib.sha256()

    def add(self, value: Mapping[str, Any]) -> bytes:
        """Write one object on a line. Raises NotArchived when there is no room for it."""
        line = as_line(value)
        self.digest.update(line)
        try:
            self.file.write(line)
        except OSError as error:  # the disk on which large ones are gathered
            raise NotArchived(f"it cannot be gathered in {tempfile.gettempdir()}: {describe(error).text}") from None
        return line

    def close_with_digest(self) -> str:
        """Write the last line: the hash of all before it."""
        sha256 = self.digest.hexdigest()
        self.add({"sha256": sha256})
        return sha256


def as_line(value: Mapping[str, Any]) -> bytes:
    """One object in its one spelling."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_plain)
    return text.encode() + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def rows_of(run_id: UUID) -> Iterator[dict[str, Any]]:
    """Each row of a run with the name of its table, in one order."""
    for model, way in OF_RUN:
        yield from _rows(model._default_manager.using(database()).filter(**{way: run_id}))


def _rows(found: "QuerySet[Any]") -> Iterator[dict[str, Any]]:
    table = found.model._meta.model_name
    for row in found.order_by("pk").iterator(chunk_size=500):
        yield {"table": table, "row": {one.attname: one.value_from_object(row) for one in row._meta.concrete_fields}}


def digest_of_rows(run_id: UUID) -> tuple[int, str]:
    """How many rows a run has, and the hash of them. Read again under the run's lock: has anything changed?"""
    digest, count = hashlib.sha256(), 0
    for row in rows_of(run_id):
        digest.update(as_line(row))
        count += 1
    return count, digest.hexdigest()


def keep_run(run: WorkflowRun, alias: str) -> Kept:
    """Write a run with all its rows and artifacts, unless it is there already, and read it back.

    Raises   NotArchived when the storage fails, or has other bytes than it was given
    Crash    half an object may be left under a name that ends in the hash that it would have had
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "run": run.pk,
        "workflow": run.workflow,
        "workflow_version": run.version,
        "state": str(run.state),
        "ended_at": run.ended_at,
    }
    lines, digest, count = Lines(), hashlib.sha256(), 0
    with lines.file:
        lines.add(header)
        for row in rows_of(run.pk):
            digest.update(lines.add(row))
            count += 1
        _add_artifacts(lines, run)
        at = run.ended_at or run.created_at
        return _keep(lines, alias, f"{FOLDER}/{at:%Y/%m}/{run.pk}", count, digest.hexdigest())


def _add_artifacts(lines: Lines, run: WorkflowRun) -> None:
    """The bytes of each artifact once, in pieces, then what they hash to: None where the storage has none any more."""
    files = Artifact.objects.using(database()).filter(run=run).order_by("sha256", "pk")
    for storage_name, sha256 in {row.storage_name: row.sha256 for row in files}.items():
        found: str | None = None
        digest = hashlib.sha256()
        try:
            for piece in _pieces(storage_name):
                digest.update(piece)
                lines.add({"artifact": sha256, "base64": base64.b64encode(piece).decode()})
            found = digest.hexdigest()
        except NotArchived:
            raise
        except FileNotFoundError:
            logger.warning("the artifact %s of run %s is gone: its archive says so", storage_name, run.pk)
        except Exception as error:  # noqa: BLE001 - any storage, any error
            raise NotArchived(f"the artifact {storage_name} cannot be read: {describe(error).text}") from None
        lines.add({"artifact": sha256, "sha256": found})


def _pieces(storage_name: str) -> Iterator[bytes]:
    """Of one size, whatever pieces the storage gives: the same bytes are the same lines."""
    held = b""
    for piece in artifacts.pieces(storage_name):
        held += piece
        while len(held) >= PIECE_BYTES:
            yield held[:PIECE_BYTES]
            held = held[PIECE_BYTES:]
    if held:
        yield held


def keep_rows(found: "QuerySet[Any]", what: str, alias: str) -> Kept:
    """Write rows that belong to no run, one object for all of them. Raises NotArchived."""
    lines, digest, count = Lines(), hashlib.sha256(), 0
    with lines.file:
        lines.add({"format": FORMAT, "version": VERSION, "rows": what})
        for row in _rows(found):
            digest.update(lines.add(row))
            count += 1
        return _keep(
            lines, alias, f"{FOLDER}/{what.replace(' ', '-')}/{what.replace(' ', '-')}", count, digest.hexdigest()
        )


def _keep(lines: Lines, alias: str, stem: str, rows: int, rows_sha256: str) -> Kept:
    sha256 = lines.close_with_digest()
    name, whole = f"{stem}-{sha256}.jsonl", lines.digest.hexdigest()
    try:
        stored = _write(storages[alias], name, lines.file, whole)
        _settle(storages[alias], stored)
    except NotArchived:
        raise
    except Exception as error:  # noqa: BLE001 - any storage, any error: the rows stay
        raise NotArchived(f"the storage {alias!r} failed: {describe(error).text}") from None
    return Kept(alias, stored, sha256, rows, rows_sha256, stored != name)


def _write(storage: Storage, name: str, data: IO[bytes], whole: str) -> str:
    """Leave alone what is whole under the usual name; else the storage chooses one, also when two write at once."""
    if _hash_at(storage, name) == whole:
        return name
    data.seek(0)
    stored = str(storage.save(name, File(data, name=name)))
    if _hash_at(storage, stored) != whole:
        raise NotArchived(f"{stored} was read back, and is not what was written")
    if stored != name and _hash_at(storage, name) == whole:  # who was at it has finished meanwhile
        storage.delete(stored)
        return name
    logger.info("archived %s sha256=%s", stored, whole)
    return stored


def _settle(storage: Storage, name: str) -> None:
    """Let a file of this machine, and the folders to it, reach the disk: its rows are gone for good when they are gone,
    and no loss of power may take the file after them.
    """
    try:
        path = Path(storage.path(name))
    except NotImplementedError:  # a storage elsewhere answers for what it has taken
        return
    if not path.is_file():  # nor is what one keeps in memory a file
        return
    for one in (path, *path.parents[: len(Path(name).parts)]):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _hash_at(storage: Storage, name: str) -> str | None:
    if not storage.exists(name):
        return None
    digest = hashlib.sha256()
    with storage.open(name) as file:
        for piece in file.chunks():
            digest.update(piece)
    return digest.hexdigest()


def let_go(kept: Kept) -> None:
    """Remove an object that is not needed after all, if nobody else can rely on it."""
    if not kept.is_spare:
        return
    storage = storages[kept.alias]
    try:
        storage.delete(kept.name)
    except Exception:
        logger.exception("the spare archive %s could not be removed", kept.name)
