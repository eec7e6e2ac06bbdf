"""Rows as lines for a terminal and as values for programs. Texts of others are made harmless; secrets are masked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.utils import timezone

from durableflows.core import log_lines
from durableflows.core.classify import describe
from durableflows.core.payload import redact
from durableflows.errors import DurableflowsError
from durableflows.explain_words import plain
from durableflows.models import ApprovalRequest, RunEvent, SideEffect, StepRun, WorkflowRun
from durableflows.transactions import is_away

logger = log_lines.logger("durableflows")

CELL_LIMIT = 67
"""As long as an effect's key: one that is cut short cannot be looked for at the provider."""
REFUSALS_LISTED = 500
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Report:
    """What a verb has to say: `data` for --json, `lines` for people, and the exit code. `pieces`: a file to be printed
    as it is made, instead of both.
    """

    data: object
    lines: Sequence[str]
    exit_code: int = 0
    pieces: Iterable[str] | None = None


def table(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Columns of equal width under their names; nothing for no rows."""
    if not rows:
        return []
    cells = [list(names), *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return local(value) if isinstance(value, datetime) else plain(value, CELL_LIMIT)


def local(at: datetime) -> str:
    """A moment in the project's time zone, as the sentences have it; --json gives UTC."""
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S}"


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Lines under a title, or nothing."""
    kept = list(lines)
    return ["", f"{title}:", *(f"  {line}" for line in kept)] if kept else []


def refusal(run_id: UUID, error: Exception) -> Row:
    """Why a verb for many was not done to one of them. Raises the error when the database is away: it is so for all."""
    if isinstance(error, DurableflowsError):
        return {"run": run_id, "code": error.code, "message": str(error)}
    if is_away(error):
        raise error
    logger.error("run %s: it has failed; the others are done all the same", run_id, exc_info=error)
    told = describe(error)
    return {"run": run_id, "code": "failed", "message": f"{told.error_class}: {told.text}"}


def refusals(rows: Sequence[Row]) -> list[str]:
    """A line for each run that a verb for many was not done to. The list ends after REFUSALS_LISTED, and says so."""
    lines = [f"run {row['run']}: {row['code']}: {plain(row['message'])}" for row in rows[:REFUSALS_LISTED]]
    return lines if len(lines) == len(rows) else [*lines, f"and {len(rows) - len(lines):,} more: --json has all"]


def as_json(value: object) -> object:
    """What `json.dumps` cannot write by itself."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID | StrEnum):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def of_run(run: WorkflowRun) -> Row:
    """A run in a list."""
    return {
        "id": run.pk,
        "workflow": run.workflow,
        "version": run.version,
        "state": str(run.state),
        "word": run.word,
        "key": run.business_key,
        "owner": run.owner_name,
        "created_at": run.created_at,
        "ended_at": run.ended_at,
    }


def of_run_alone(run: WorkflowRun) -> Row:
    """A run by itself."""
    return of_run(run) | {
        "deadline_at": run.deadline_at,
        "parked_reason": run.parked_reason,
        "parked_detail": run.parked_detail,
        "ending_reason": run.ending_reason,
        "ending_phase": run.ending_phase,
        "cleanup_until": run.cleanup_until,
        "cleanup_error": run.cleanup_error,
        "cancel_asked_by": run.cancel_asked_by,
        "cancel_reason": run.cancel_reason,
        "heir": run.heir_name,
        "alert": run.alert,
        "error_class": run.error_class,
        "error_text": run.error_text,
        "checkpoint_sequence": run.checkpoint_sequence,
        "data": redact(run.data),
        "result": redact(run.result),
    }


def of_step(step: StepRun) -> Row:
    """A step of a shown run."""
    return {
        "id": step.pk,
        "step": step.name,
        "item": step.item_key,
        "visit": step.visit,
        "of_cleanup": step.of_cleanup,
        "state": str(step.state),
        "attempts": step.attempts,
        "wake_at": step.wake_at,
        "resend_at": step.resend_at,
        "must_end_by": step.must_end_by,
        "needs_person": step.needs_person,
        "why": step.waits_for or step.retry_reason or step.send_error or step.error_text,
    }


def of_effect(row: SideEffect) -> Row:
    """An effect of a shown run, with the version that a verdict must name."""
    return {
        "id": row.pk,
        "effect": row.effect,
        "operation": row.operation,
        "issue": row.issue,
        "state": str(row.state),
        "row_version": row.row_version,
        "sends": row.send_count,
        "lookups": row.lookup_count,
        "in_doubt_since": row.in_doubt_since,
        "key": row.key,
        "receipt": redact(row.receipt),
        "reason": row.reason,
        "contradiction": row.contradiction,
        "audit_at": row.audit_at,
    }


def of_request(request: ApprovalRequest) -> Row:
    """A request of a shown run."""
    return {
        "id": request.pk,
        "title": request.title,
        "state": str(request.state),
        "permission": request.permission,
        "groups": request.groups,
        "people": request.people,
        "quorum": request.quorum,
        "created_at": request.created_at,
        "expires_at": request.expires_at,
        "closed_reason": request.closed_reason,
    }


def of_event(event: RunEvent) -> Row:
    """An event of a shown run."""
    return {
        "sequence": event.sequence,
        "at": event.at,
        "kind": event.kind,
        "actor": event.actor_name,
        "data": event.data,
    }
