"""Large values of a run, kept in a storage of the project and named by their hash. The only writer of Artifact.

The bytes are written before the row: a crash between the two leaves bytes that nobody names, never a name without
bytes. A body that runs again keeps the bytes that are there when they are whole: who wrote them may have died over it.
Source: S2.2, R31; design, section 3.
"""

import hashlib
from collections.abc import Collection, Iterator

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

from durableflows import clock
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.core.payload import check_text
from durableflows.core.references import ArtifactRef
from durableflows.errors import ChangedOutside, InvalidState, NotFoundError
from durableflows.leases import Lease
from durableflows.models import Artifact
from durableflows.transactions import database

logger = log_lines.logger("durableflows.artifacts")

NAME_LIMIT = 200
TYPE_LIMIT = 100


def keep(lease: Lease, name: str, content: bytes | str, content_type: str) -> ArtifactRef:
    """Store a value for a run, and name it by its hash. The same value under the same name is stored once.

    Raises   InvalidState for a name that cannot be stored, another type than bytes or str, or too many bytes
    """
    check_text(name, NAME_LIMIT, "the artifact's name")
    check_text(content_type, TYPE_LIMIT, "the artifact's content type")
    given: object = content
    if not isinstance(given, bytes | str) or not name:
        raise InvalidState(f"an artifact is bytes or str under a name, not {type(given).__name__} under {name!r}")
    data = content.encode() if isinstance(content, str) else content
    if len(data) > settings().MAX_ARTIFACT_BYTES:
        raise InvalidState(f"artifact {name} is {len(data)} bytes, the limit is {settings().MAX_ARTIFACT_BYTES}")
    ref = ArtifactRef(
        name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), content_type=content_type
    )
    _remember(lease, ref, _write(lease, ref, data))
    return ref


def _write(lease: Lease, ref: ArtifactRef, data: bytes) -> str:
    path = f"durableflows/{lease.run_id}/{ref.sha256}"
    storage = _storage()
    if storage.exists(path) and _digest_at(path) == ref.sha256:
        return path
    # The storage gives it another name where half a file lies, and when two write at once; the row says which counts.
    return storage.save(path, ContentFile(data))


def _remember(lease: Lease, ref: ArtifactRef, storage_name: str) -> None:
    row = Artifact(
        run_id=lease.run_id,
        step_id=lease.step_id,
        name=ref.name,
        sha256=ref.sha256,
        size_bytes=ref.size_bytes,
        content_type=ref.content_type,
        storage_name=storage_name,
        created_at=clock.now(),
    )
    Artifact.objects.using(database()).bulk_create([row], ignore_conflicts=True)


def read(lease: Lease, ref: ArtifactRef) -> bytes:
    """Read a value of the run back.

    Raises   NotFoundError when the run has no such artifact or its bytes are gone; ChangedOutside when these changed
    """
    rows = Artifact.objects.using(database()).filter(run_id=lease.run_id, name=ref.name, sha256=ref.sha256)
    storage_name = rows.values_list("storage_name", flat=True).first()
    if storage_name is None:
        raise NotFoundError(f"run {lease.run_id} has no artifact {ref.name} with hash {ref.sha256[:12]}")
    try:
        with _storage().open(storage_name) as file:
            data = bytes(file.read())
    except FileNotFoundError:
        raise NotFoundError(f"artifact {ref.name} of run {lease.run_id} is gone from its storage") from None
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise ChangedOutside(f"artifact {ref.name} of run {lease.run_id} does not match its hash: it was changed")
    return data


def discard(storage_names: Collection[str]) -> tuple[str, ...]:
    """Remove files whose rows are gone. Gives the names of those that the storage did not remove; the log says why."""
    left = []
    for name in sorted(storage_names):
        try:
            _storage().delete(name)
        except Exception:  # any storage, any error: the others still go
            logger.exception("the file %s, which no run has any more, could not be removed", name)
            left.append(name)
    return tuple(left)


def stored_digest(row: Artifact) -> str | None:
    """The hash of the bytes that the storage has for a row, read piece by piece; None: it has none.

    Raises whatever the storage raises when it cannot say
    """
    return _digest_at(row.storage_name)


def pieces(storage_name: str) -> Iterator[bytes]:
    """The bytes under a name, piece by piece. Raises FileNotFoundError, or whatever else the storage raises."""
    with _storage().open(storage_name) as file:
        yield from file.chunks()


def _digest_at(storage_name: str) -> str | None:
    digest = hashlib.sha256()
    try:
        for piece in pieces(storage_name):
            digest.update(piece)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _storage() -> Storage:
    return storages[settings().ARTIFACT_STORAGE]
