"""When each periodic job last ran, in which ticker, and what it failed with. Tickers write it, monitors read it.

The jobs are the sweeps; nobody has to schedule them: a ticker does all of them each turn. Owns `Worker.jobs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from durableflows.core.classify import describe
from durableflows.models import Worker
from durableflows.services.sweeps import SWEEPS
from durableflows.transactions import database

JOBS = tuple(SWEEPS)
"""Every periodic job, by its name for people."""
ERROR_LIMIT = 300
TICKERS_READ = 20


@dataclass(frozen=True, slots=True)
class Job:
    """One periodic job. `ran_at`: when it was last done whole, None where no ticker has said; `error`: what it fails
    with since.
    """

    name: str
    ran_at: datetime | None
    error: str = ""


class Record:
    """What one ticker has done. Lives in its process; `keep` writes it beside the heartbeat."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._done: set[str] = set()

    def note(self, name: str, error: Exception | None) -> None:
        """A job was done, or failed."""
        if error is None:
            self._done.add(name)
            return
        before, told = self._jobs.get(name), describe(error)
        text = f"{told.error_class}: {told.text}"[:ERROR_LIMIT]
        self._jobs[name] = Job(name, before.ran_at if before else None, text)

    def keep(self, boot_id: UUID, now: datetime, swept_at: datetime) -> None:
        """Write it, with the moment of the sweep. One statement.

        now   when all that was done in this turn is taken to be done: nobody asks for the time once a job
        """
        self._jobs |= {name: Job(name, now) for name in self._done}
        self._done.clear()
        jobs = {job.name: _stored(job) for job in self._jobs.values()}
        Worker.objects.using(database()).filter(boot_id=boot_id).update(swept_at=swept_at, jobs=jobs)


def _stored(job: Job) -> dict[str, str]:
    at = {"at": job.ran_at.isoformat()} if job.ran_at else {}
    return at | ({"error": job.error} if job.error else {})


def last_runs() -> tuple[Job, ...]:
    """Each job as the tickers that were heard of last say; the newest run counts, wherever it was. One query."""
    rows = Worker.objects.using(database()).order_by("-heartbeat_at").values_list("jobs", flat=True)[:TICKERS_READ]
    kept: list[Mapping[str, Any]] = [jobs for jobs in rows if isinstance(jobs, dict)]
    return tuple(_newest(name, [jobs[name] for jobs in kept if name in jobs]) for name in JOBS)


def _newest(name: str, told: list[dict[str, str]]) -> Job:
    found = [Job(name, _moment(one.get("at", "")), one.get("error", "")) for one in told]
    done = [job for job in found if job.ran_at is not None]
    newest = max(done, key=lambda job: job.ran_at.timestamp() if job.ran_at else 0.0, default=None)
    return newest or next(iter(found), Job(name, None))


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
