"""`manage.py durableflows cleanup`: what may go, why the others stay, and the removal itself, in batches."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from django.db import IntegrityError

from durableflows import clock
from durableflows.explain_words import plain
from durableflows.management import progress, tables
from durableflows.management.tables import Report, Row, local
from durableflows.services import cleanup, provider_events
from durableflows.transactions import first_line

BATCH = 200


@dataclass(slots=True)
class Done:
    """What has gone so far, and what did not."""

    runs: int = 0
    events: int = 0
    files: int = 0
    provider_events: int = 0
    files_left: list[str] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)


def run(options: Namespace) -> Report:
    """Remove runs that ended long ago. Fails when one could not be removed, or a file of one."""
    now = clock.now()
    before = now - options.older_than if isinstance(options.older_than, timedelta) else options.older_than
    cleanup.check_moment(before, now)
    if options.dry_run:
        return _dry(before, options.workflow)
    total = cleanup.removable(before, options.workflow).count() + cleanup.following(before, options.workflow)
    tell, done = progress.shown("runs"), Done()
    for run_id in islice(_due(before, options.workflow), options.limit):
        _remove(run_id, before, done)
        if tell is not None:
            tell(min(done.runs + len(done.failed), total), total)
    if not options.workflow:
        done.provider_events = provider_events.forget(before)
    return _report(done, before, options.workflow)


def _remove(run_id: UUID, before: datetime, done: Done) -> None:
    try:
        gone = cleanup.remove(run_id, before)
    except IntegrityError as error:  # a row of the project keeps it: on_delete=PROTECT, or a constraint of its table
        done.failed.append({"run": run_id, "code": "protected", "message": first_line(error)})
        return
    if gone is not None:
        done.runs, done.events, done.files = done.runs + 1, done.events + gone.events, done.files + gone.files
        done.files_left += gone.left


def _report(done: Done, before: datetime, workflow: str) -> Report:
    kept = cleanup.kept(before, workflow)
    lines = [f"{done.runs:,} runs are removed, with {done.events:,} events and {done.files:,} files"]
    if done.provider_events:
        lines.append(f"{done.provider_events:,} events of providers are removed that were about no effect of ours")
    lines += tables.refusals(done.failed)
    lines += [f"file {plain(name)} is left in the storage: the log says why" for name in done.files_left]
    is_whole = not done.failed and not done.files_left
    return Report({"before": before, **asdict(done), "kept": kept}, [*lines, *_kept(kept)], int(not is_whole))


def _due(before: datetime, workflow: str) -> Iterator[UUID]:
    """Each run that may go, and then those that may go since others have gone; each is named once."""
    seen: set[UUID] = set()
    while True:
        ids = cleanup.removable(before, workflow).values_list("pk", flat=True)
        new = [pk for pk in ids.iterator(chunk_size=BATCH) if pk not in seen]
        if not new:
            return
        seen.update(new)
        yield from new


def _dry(before: datetime, workflow: str) -> Report:
    count = cleanup.removable(before, workflow).count()
    after = cleanup.following(before, workflow)
    kept = cleanup.kept(before, workflow)
    lines = [f"nothing was done; {count + after:,} runs that ended before {local(before)} would be removed"]
    lines += [f"{after:,} of them are children of others"] if after else []
    return Report({"before": before, "removable": count + after, "children": after, "kept": kept}, lines + _kept(kept))


def _kept(kept: Mapping[str, int]) -> list[str]:
    return [f"{count:,} are kept: {words}" for words, count in kept.items()]
