"""Does each periodic job get done where a ticker lives, and does nobody wait too long for a person?

Where no ticker lives, that is one finding of `waits`, not one a job.
"""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from durableflows import housekeeping
from durableflows.conf import settings
from durableflows.core.states import ApprovalState
from durableflows.doctor.findings import Finding, listed
from durableflows.doctor.rows import CHUNK, Scope


def examine_jobs(scope: Scope) -> list[Finding]:
    """All findings about housekeeping, and about requests that are older than the limit of health."""
    return [*listed("job-late", _late(scope)), *listed("waits-long", _waits(scope))]


def _late(scope: Scope) -> Iterator[tuple[None, str]]:
    limit = scope.now - timedelta(seconds=settings().HEALTH_LATE_SECONDS)
    if scope.run_id is not None or scope.ticking_since is None or scope.ticking_since > limit:
        return
    for job in housekeeping.last_runs():
        if job.error or (job.ran_at is not None and job.ran_at < limit):
            done = f"was last done at {job.ran_at:%Y-%m-%d %H:%M:%S} UTC" if job.ran_at else "was not done yet"
            yield None, f"the job {job.name!r} {done}" + (f"; it fails: {job.error}" if job.error else "")


def _waits(scope: Scope) -> Iterator[tuple[UUID, str]]:
    before = scope.now - timedelta(seconds=settings().HEALTH_WAIT_SECONDS)
    open_ones = scope.requests().filter(state=ApprovalState.OPEN, run__ended_at__isnull=True, created_at__lt=before)
    for run_id, title, since in open_ones.values_list("run_id", "title", "created_at").iterator(chunk_size=CHUNK):
        yield run_id, f"{title!r} waits for an answer since {since:%Y-%m-%d %H:%M} UTC"
