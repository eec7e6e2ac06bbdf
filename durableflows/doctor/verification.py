"""Proves the evidence of every run (P13): histories, seals, what was given and answered, pins, artifacts.

Reads only. Runs are taken in batches, each read at one moment; files are opened between the transactions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from uuid import UUID

from django.db.models import QuerySet

from durableflows import artifacts
from durableflows.doctor.answers import wrong_answers
from durableflows.doctor.chains import NEEDED, wrong_in_chains
from durableflows.doctor.findings import Finding, Found, gathered
from durableflows.doctor.given import wrong_gifts
from durableflows.doctor.pins import changed_contents, lost_pins
from durableflows.doctor.rows import snapshot
from durableflows.doctor.seals import INPUT_NEEDED, STATE_NEEDED, wrong_inputs, wrong_states
from durableflows.models import Artifact, RunEvent, StepRun, WorkflowRun
from durableflows.transactions import database

BATCH = 200

Progress = Callable[[int, int], None]
"""Told after each batch: how many runs are done, of how many."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How much was looked at, and what does not agree."""

    runs: int
    events: int
    steps: int
    artifacts: int
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Counts:
    runs: int = 0
    events: int = 0
    steps: int = 0
    artifacts: int = 0


def verify(run_id: UUID | None = None, *, since: datetime | None = None, progress: Progress | None = None) -> Proof:
    """Prove one run, or all; `since`: those in which something has happened since then, as their rows say.

    One pass in batches, however many there are. Pinned contents, which runs share, are all looked at
    """
    runs, counts = _runs(run_id, since), _Counts()
    found = gathered(_wrong(runs, counts, progress))
    return Proof(counts.runs, counts.events, counts.steps, counts.artifacts, tuple(found))


def _runs(run_id: UUID | None, since: datetime | None) -> QuerySet[WorkflowRun]:
    runs = WorkflowRun.objects.using(database()).order_by("pk").only("manifest", *NEEDED, *STATE_NEEDED)
    if run_id is not None:
        runs = runs.filter(pk=run_id)
    return runs if since is None else runs.filter(changed_at__gte=since)


def _wrong(runs: QuerySet[WorkflowRun], counts: _Counts, progress: Progress | None) -> Iterator[Found]:
    total = runs.count() if progress is not None else 0
    last: UUID | None = None
    while True:
        with snapshot():
            batch = list((runs if last is None else runs.filter(pk__gt=last))[:BATCH])
            found, files = _examined(batch, counts)
        yield from found
        yield from _wrong_files(files)
        counts.runs += len(batch)
        if progress is not None:
            progress(counts.runs, max(total, counts.runs))
        if len(batch) < BATCH:
            break
        last = batch[-1].pk
    yield from changed_contents()


def _examined(runs: Sequence[WorkflowRun], counts: _Counts) -> tuple[list[Found], list[Artifact]]:
    """What the rows of a batch say is wrong, and the files that are to be opened after the transaction."""
    ids = [run.pk for run in runs]
    steps = StepRun.objects.using(database()).filter(run__in=ids).only(*INPUT_NEEDED).order_by("run_id", "id")
    found = [*wrong_states(runs), *wrong_in_chains(runs), *lost_pins(runs), *wrong_answers(runs)]
    for some in _in_chunks(steps.iterator(chunk_size=BATCH)):
        found += [*wrong_inputs(some), *wrong_gifts(some)]
        counts.steps += len(some)
    files = list(Artifact.objects.using(database()).filter(run__in=ids).order_by("run_id", "id"))
    counts.events += RunEvent.objects.using(database()).filter(run__in=ids).count()
    counts.artifacts += len(files)
    return found, files


def _in_chunks(steps: Iterator[StepRun]) -> Iterator[list[StepRun]]:
    while some := list(islice(steps, BATCH)):
        yield some


def _wrong_files(rows: Iterable[Artifact]) -> Iterator[Found]:
    """Open each file. It is no fault when the run was removed meanwhile, with its files."""
    for row in rows:
        try:
            digest = artifacts.stored_digest(row)
        except Exception as error:  # noqa: BLE001 - any storage, any error: the others are still looked at
            yield "artifact-unread", row.run_id, f"{_name(row)} could not be opened: {type(error).__name__}: {error}"
            continue
        if digest == row.sha256 or not Artifact.objects.using(database()).filter(pk=row.pk).exists():
            continue
        if digest is None:
            yield "artifact-gone", row.run_id, f"{_name(row)} is gone from the storage"
        else:
            yield "artifact-changed", row.run_id, f"{_name(row)} does not match its hash: it was changed"


def _name(row: Artifact) -> str:
    return f"artifact {row.name} ({row.storage_name})"
