"""`manage.py durableflows cleanup`: what may go, why the others stay, and the removal itself, in batches.

Where an archive is named, each run is kept there first. What cannot be kept stays, and the exit code says so.
"""

from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from django.conf import settings as django_settings
from django.db import IntegrityError

from durableflows import archives, clock
from durableflows.archives import NotArchived
from durableflows.conf import settings
from durableflows.errors import InvalidState
from durableflows.explain_words import plain
from durableflows.management import progress, tables
from durableflows.management.tables import Report, Row, local
from durableflows.models import ProviderEvent
from durableflows.services import cleanup, provider_events
from durableflows.transactions import database, first_line

BATCH = 200
FAILURES_IN_A_ROW = 3
"""A storage that fails so often in a row is not asked for the others."""


@dataclass(slots=True)
class Done:
    """What has gone so far, and what did not."""

    runs: int = 0
    events: int = 0
    files: int = 0
    archived: int = 0
    provider_events: int = 0
    files_left: list[str] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)
    refusals: int = 0

    @property
    def archive_is_away(self) -> bool:
        """Has the archive's storage failed too often in a row?"""
        return self.refusals >= FAILURES_IN_A_ROW


@dataclass(frozen=True, slots=True)
class Which:
    """The runs that are asked for, and where they are kept."""

    before: datetime
    workflow: str
    state: str
    archive: str

    @property
    def of(self) -> tuple[datetime, str, str]:
        """As `services.cleanup` takes them."""
        return self.before, self.workflow, self.state


def run(options: Namespace) -> Report:
    """Remove runs that ended long ago. Fails when one could not be removed or kept, or a file of one not removed."""
    now = clock.now()
    before = now - options.older_than if isinstance(options.older_than, timedelta) else options.older_than
    cleanup.check_moment(before, now)
    which = Which(before, options.workflow, options.state, _archive(options.archive))
    if options.dry_run:
        return _dry(which)
    total = cleanup.removable(*which.of).count() + cleanup.following(*which.of)
    tell, done, stayed = progress.shown("runs"), Done(), set[UUID]()
    for run_id in islice(_due(which, stayed), options.limit):
        if done.archive_is_away:
            break
        if not _remove(run_id, which, done):
            stayed.add(run_id)
        if tell is not None:
            tell(min(done.runs + len(done.failed), total), total)
    if not options.workflow and not options.state and not done.archive_is_away:
        _forget_events(which, done)
    return _report(done, which)


def _archive(given: str) -> str:
    """The storage's alias; '' for none. Raises InvalidState for one that the project does not have."""
    alias = given or settings().ARCHIVE_STORAGE
    if alias and alias not in django_settings.STORAGES:
        raise InvalidState(f"STORAGES has no {alias!r}: say one of {', '.join(django_settings.STORAGES)}")
    return alias


def _remove(run_id: UUID, which: Which, done: Done) -> bool:
    """False: it stays; `done` says why, where it is not that somebody acts on it."""
    try:
        gone = cleanup.remove(run_id, which.before, archive=which.archive)
    except IntegrityError as error:  # a row of the project keeps it: on_delete=PROTECT, or a constraint of its table
        done.failed.append({"run": run_id, "code": "protected", "message": first_line(error)})
        return False
    except NotArchived as error:
        _refused(done, {"run": run_id}, error)
        return False
    except Exception as error:  # noqa: BLE001 - receivers of the project's, and rows that nobody can read: the others go
        done.failed.append(tables.refusal(run_id, error))
        return False
    done.refusals = 0
    if gone is None:
        return False
    done.runs, done.events, done.files = done.runs + 1, done.events + gone.events, done.files + gone.files
    done.archived += bool(gone.archive)
    done.files_left += gone.left
    return True


def _refused(done: Done, what: Row, error: NotArchived) -> None:
    done.refusals += 1
    done.failed.append({**what, "code": "not_archived", "message": f"it stays: {error}"})


def _forget_events(which: Which, done: Done) -> None:
    """Events of providers about no effect of ours, kept first, a batch an object."""
    if not which.archive:
        done.provider_events = provider_events.forget(which.before)
        return
    while ids := list(provider_events.forgettable(which.before).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        try:
            rows = ProviderEvent.objects.using(database()).filter(pk__in=ids)
            archives.keep_rows(rows, "provider events", which.archive)
        except NotArchived as error:
            _refused(done, {"run": "-"}, error)
            return
        done.provider_events += provider_events.forget(which.before, ids)


def _report(done: Done, which: Which) -> Report:
    kept = cleanup.kept(*which.of)
    lines = [f"{done.runs:,} runs are removed, with {done.events:,} events and {done.files:,} files"]
    if which.archive:
        lines.append(f"{done.archived:,} of them are kept in the storage {which.archive!r}, read back before they went")
    if done.provider_events:
        lines.append(f"{done.provider_events:,} events of providers are removed that were about no effect of ours")
    lines += tables.refusals(done.failed)
    if done.archive_is_away:
        lines.append(f"the storage {which.archive!r} failed {done.refusals} times in a row: the others were not tried")
    lines += [f"file {plain(name)} is left in the storage: the log says why" for name in done.files_left]
    is_whole = not done.failed and not done.files_left
    data = {"before": which.before, "archive": which.archive, **asdict(done), "kept": kept}
    return Report(data, [*lines, *_kept(kept)], int(not is_whole))


def _due(which: Which, stayed: Collection[UUID]) -> Iterator[UUID]:
    """Each run that may go, and then those that may go since others have gone. A page at a time: they may be millions.

    stayed   those that were named and are still there: they are not named again
    """
    while True:
        count, last = 0, UUID(int=0)
        while ids := list(cleanup.removable(*which.of).filter(pk__gt=last).values_list("pk", flat=True)[:BATCH]):
            last = ids[-1]
            for pk in ids:
                if pk not in stayed:
                    count += 1
                    yield pk
        if not count:
            return


def _dry(which: Which) -> Report:
    count = cleanup.removable(*which.of).count()
    after = cleanup.following(*which.of)
    kept = cleanup.kept(*which.of)
    lines = [f"nothing was done; {count + after:,} runs that ended before {local(which.before)} would be removed"]
    lines += [f"{after:,} of them are children of others"] if after else []
    lines += [f"each would be kept in the storage {which.archive!r} first"] if which.archive else []
    data = {"before": which.before, "archive": which.archive, "removable": count + after, "children": after}
    return Report({**data, "kept": kept}, lines + _kept(kept))


def _kept(kept: Mapping[str, int]) -> list[str]:
    return [f"{count:,} are kept: {words}" for words, count in kept.items()]
