"""Are checkpoints and histories what durableflows wrote? (P13)

Runs are taken in batches, each read at one moment; events of a batch are streamed, so a long history costs time and
not memory.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from durableflows import integrity, journal
from durableflows.conf import settings
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import CHUNK, Scope, snapshot
from durableflows.errors import InvalidState
from durableflows.models import RunEvent, WorkflowRun
from durableflows.transactions import database

BATCH = 200

Found = tuple[UUID, str]
NEEDED = (
    "data",
    "schema_version",
    "checkpoint_sequence",
    "data_digest",
    "data_key_id",
    "event_sequence",
    "event_digest",
)


def examine_history(scope: Scope) -> list[Finding]:
    """All findings about seals and chains."""
    unsealed: list[Found] = []
    broken: list[Found] = []
    last: UUID | None = None
    while True:
        with snapshot():
            runs = _batch(scope, last)
            unsealed += [(run.pk, _why_unsealed(run)) for run in runs if not integrity.is_sealed(run)]
            broken += _broken_chains(runs)
        if len(runs) < BATCH:
            return [*listed("state-digest", unsealed), *listed("event-chain", broken)]
        last = runs[-1].pk


def _batch(scope: Scope, last: UUID | None) -> list[WorkflowRun]:
    rows = scope.runs().only(*NEEDED)
    return list((rows if last is None else rows.filter(pk__gt=last))[:BATCH])


def _why_unsealed(run: WorkflowRun) -> str:
    if run.data_key_id not in settings().state_keys():
        return f"the state is signed with key {run.data_key_id!r}, which STATE_KEYS does not hold"
    return "the state does not match its digest"


def _broken_chains(runs: Sequence[WorkflowRun]) -> Iterator[Found]:
    """Walk each run's events once; what is wrong first is what is said."""
    events = RunEvent.objects.using(database()).filter(run__in=[run.pk for run in runs]).order_by("run_id", "sequence")
    chains = groupby(events.iterator(chunk_size=CHUNK), key=attrgetter("run_id"))
    unseen = {run.pk: run for run in runs}
    for run_id, chain in chains:
        wrong = _wrong_in(unseen.pop(run_id), chain)
        if wrong:
            yield run_id, wrong
    for run in unseen.values():
        if run.event_sequence:
            yield run.pk, f"all of the run's {run.event_sequence} events are gone"


def _wrong_in(run: WorkflowRun, chain: Iterator[RunEvent]) -> str:
    sequence, digest = 0, ""
    for event in chain:
        if event.sequence != sequence + 1:
            return f"event {sequence + 1} is missing: the next one is {event.sequence}"
        if event.previous_digest != digest:
            return f"event {event.sequence} ({event.kind}) does not follow from the one before it"
        if _digest(event) != event.digest:
            return f"event {event.sequence} ({event.kind}) was changed after it was written"
        sequence, digest = event.sequence, event.digest
    if (sequence, digest) != (run.event_sequence, run.event_digest):
        return f"the history ends with event {sequence}, the run says {run.event_sequence}"
    return ""


def _digest(event: RunEvent) -> str:
    try:
        return journal.digest_of(event)
    except InvalidState:
        return ""
