"""Are histories as durableflows wrote them, and are runs where their histories end? (P13) Shared by all who look.

Events of a batch are streamed, so a long history costs time and not memory.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from durableflows import journal
from durableflows.doctor.findings import Found
from durableflows.doctor.rows import CHUNK
from durableflows.errors import InvalidState
from durableflows.models import RunEvent, WorkflowRun
from durableflows.transactions import database

NEEDED = ("event_sequence", "event_digest", "checkpoint_sequence")
"""What is read of a run here."""


def wrong_in_chains(runs: Sequence[WorkflowRun]) -> Iterator[Found]:
    """Walk each run's events once; what is wrong first is what is said."""
    events = RunEvent.objects.using(database()).filter(run__in=[run.pk for run in runs]).order_by("run_id", "sequence")
    chains = groupby(events.iterator(chunk_size=CHUNK), key=attrgetter("run_id"))
    unseen = {run.pk: run for run in runs}
    for run_id, chain in chains:
        yield from _wrong_in(unseen.pop(run_id), chain)
    for run in unseen.values():
        if run.event_sequence:
            yield "event-chain", run.pk, f"all of the run's {run.event_sequence} events are gone"


def _wrong_in(run: WorkflowRun, chain: Iterator[RunEvent]) -> Iterator[Found]:
    sequence, digest, checkpoint = 0, "", 0
    for event in chain:
        wrong = _wrong_link(event, sequence, digest)
        if wrong:
            yield "event-chain", run.pk, wrong
            return
        sequence, digest, checkpoint = event.sequence, event.digest, event.checkpoint
    yield from _wrong_end(run, sequence, digest, checkpoint)


def _wrong_link(event: RunEvent, sequence: int, digest: str) -> str:
    if event.sequence != sequence + 1:
        return f"event {sequence + 1} is missing: the next one is {event.sequence}"
    if event.previous_digest != digest:
        return f"event {event.sequence} ({event.kind}) does not follow from the one before it"
    if _digest(event) != event.digest:
        return f"event {event.sequence} ({event.kind}) was changed after it was written"
    return ""


def _wrong_end(run: WorkflowRun, sequence: int, digest: str, checkpoint: int) -> Iterator[Found]:
    """Does the run stand where its history ends? An older row that was put back has valid seals."""
    if run.event_sequence < sequence:
        text = f"the run is as it was at event {run.event_sequence}, its history goes on to event {sequence}"
        yield "rolled-back", run.pk, f"{text}: an older row was put back"
    elif (run.event_sequence, run.event_digest) != (sequence, digest):
        yield "event-chain", run.pk, f"the history ends with event {sequence}, the run says {run.event_sequence}"
    elif run.checkpoint_sequence != checkpoint:
        text = f"the run is at checkpoint {run.checkpoint_sequence}, its history at {checkpoint}"
        yield "rolled-back", run.pk, f"{text}: an older one was put back"


def _digest(event: RunEvent) -> str:
    try:
        return journal.digest_of(event)
    except InvalidState:
        return ""
