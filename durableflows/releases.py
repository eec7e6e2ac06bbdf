"""Which releases of workflows workers know: whether this process may judge a run, and when nobody can any more (P8)."""

from datetime import datetime, timedelta

from durableflows import progress
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.decide import Park
from durableflows.core.states import ParkedReason
from durableflows.models import StepRun, Worker, WorkflowRun
from durableflows.transactions import database


def known_releases(now: datetime) -> set[tuple[str, int]] | None:
    """The workflows and versions that a worker of the last UNKNOWN_WORKFLOW_SECONDS knew; None: nobody can say.

    Stopped ones count: they may be starting again. Somebody must have been there all that time: the first worker after
    a night without any must not take for lost what the second one brings.
    """
    since = now - timedelta(seconds=settings().UNKNOWN_WORKFLOW_SECONDS)
    heard = list(Worker.objects.using(database()).filter(heartbeat_at__gt=since))
    if not any(worker.started_at <= since and worker.stopped_at is None for worker in heard):
        return None
    return {(str(name), int(version)) for worker in heard for name, version in worker.knows}


def may_judge(run: WorkflowRun, now: datetime) -> bool:
    """Does this process know the run's release, or nobody? What another one knows is left to that one."""
    release = (run.workflow, run.version)
    if release in registry.known():
        return True
    known = known_releases(now)
    return known is not None and release not in known


def park_if_unknown(
    run_locked: WorkflowRun, step_locked: StepRun, now: datetime, *, wanted: tuple[str, int] | None = None
) -> bool:
    """Park a run whose READY step nobody can take: no worker has known its release for UNKNOWN_WORKFLOW_SECONDS.

    wanted   the release that the step needs, when it is not the run's own
    """
    run, release = run_locked, wanted or (run_locked.workflow, run_locked.version)
    since = now - timedelta(seconds=settings().UNKNOWN_WORKFLOW_SECONDS)
    if step_locked.created_at >= since or run.changed_at >= since:
        return False
    known = known_releases(now)
    if known is None or release in known:
        return False
    park(run, ParkedReason.INCOMPATIBLE, f"no live worker knows {release[0]} v{release[1]}", now)
    return True


def park(run: WorkflowRun, reason: ParkedReason, detail: str, now: datetime) -> None:
    """Stop a locked run until somebody makes it go on, and store it."""
    progress.park(run, Park(reason, detail), now)
    progress.conclude(run, now)
