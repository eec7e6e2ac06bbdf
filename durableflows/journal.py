"""The only writer of `RunEvent`. Each fact is chained to the one before; signal and log line leave after commit.

The caller holds the run's lock and stores the run afterwards (`FIELDS` are what changes on it).
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import signals, watching
from durableflows.core import log_lines
from durableflows.core.payload import JSON, redact, sha256, storable
from durableflows.models import RunEvent, StepRun, WorkflowRun
from durableflows.models.compiled import Question, insert
from durableflows.transactions import after_commit, database

logger = log_lines.logger("durableflows.events")

FIELDS = ("event_sequence", "event_digest")


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a run's history ends. The rows of the history say so, not the run: an older run may have been put back."""

    sequence: int
    digest: str
    checkpoint: int


def tail(run_locked: WorkflowRun) -> Tail:
    """The end of the run's history, read once for each time that the run is locked."""
    known = run_locked.__dict__.get("_history")
    if isinstance(known, Tail):
        return known
    last = _LAST.answers(database(), run_locked.pk)
    return _keep(run_locked, Tail(*last[0]) if last else Tail(0, "", 0))


def _last(alias: str, run_id: UUID) -> "QuerySet[RunEvent, Any]":
    rows = RunEvent.objects.using(alias).filter(run=run_id).order_by("-sequence")
    return rows.values_list("sequence", "digest", "checkpoint")[:1]


_LAST = Question(_last)


def _keep(run: WorkflowRun, end: Tail) -> Tail:
    run.__dict__["_history"] = end
    return end


def record(
    run_locked: WorkflowRun,
    kind: str,
    *,
    at: datetime,
    step: StepRun | None = None,
    actor_name: str = "",
    data: dict[str, JSON] | None = None,
) -> RunEvent:
    """Append a fact to the run's history.

    Writes / Locks   RunEvent, and in memory the run's FIELDS: the caller stores them in the same transaction
    Crash            before the commit nothing of it remains; after it the log line may be missing, the row is not
    """
    facts = storable(redact(data or {}))
    assert isinstance(facts, dict)
    before = tail(run_locked)
    event = RunEvent(
        run=run_locked,
        sequence=before.sequence + 1,
        kind=kind,
        step=step,
        checkpoint=_checkpoint(run_locked, before),
        actor_name=actor_name,
        data=facts,
        at=at,
        previous_digest=before.digest,
    )
    event.digest = digest_of(event)
    insert(event, database())
    run_locked.event_sequence, run_locked.event_digest = event.sequence, event.digest
    _keep(run_locked, Tail(event.sequence, event.digest, event.checkpoint))
    after_commit(partial(_tell, run_locked.pk, kind, facts, at, actor_name), f"the telling of {kind}")
    return event


def _checkpoint(run: WorkflowRun, before: Tail) -> int:
    """The run's checkpoint; of a run that was put back, one that it never had: its history does not forget it (P13)."""
    was_put_back = (run.event_sequence, run.event_digest) != (before.sequence, before.digest)
    return max(run.checkpoint_sequence, before.checkpoint) + was_put_back


def digest_of(event: RunEvent) -> str:
    """What the event's digest must be: over the digest before it and everything it says."""
    return sha256(
        {
            "previous": event.previous_digest,
            "run": str(event.run_id),
            "sequence": event.sequence,
            "kind": event.kind,
            "step": str(event.step_id or ""),
            "checkpoint": event.checkpoint,
            "actor": event.actor_name,
            "data": event.data,
            "at": event.at.isoformat(timespec="microseconds"),
        }
    )


def _tell(run_id: UUID, kind: str, data: dict[str, JSON], at: datetime, actor_name: str) -> None:
    logger.info("%s run=%s %s", kind, run_id, data, extra={"run": str(run_id), "event": kind})
    signals.run_event.send_robust(sender=RunEvent, run_id=run_id, kind=kind, data=data, at=at, actor_name=actor_name)
    watching.told(watching.Fact(run_id, kind, data, at))
