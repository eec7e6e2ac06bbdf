"""Effects in the engine's own database: what they write commits with their row and their receipt, or nothing does.

So they are never in doubt, and are looked up by nobody. Called by the step's context inside the transaction in which
the effect's function runs: `intend` before it, without a lock, and `keep` after it (P11: user code first, engine locks
last). Source: design, P4, P11; docs/decisions/011.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections

from durableflows import clock, journal, ledger, ledger_undo
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import EffectCall
from durableflows.core.outcomes import AnswerKind
from durableflows.core.payload import JSON, redact
from durableflows.core.reconcile import REPEAT
from durableflows.core.states import EffectState
from durableflows.errors import ConcurrentChange, InvalidDefinition, KeyConflict
from durableflows.leases import Lease
from durableflows.ledger import Stored
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_run, lock_step
from durableflows.transactions import database

READS = ("SELECT", "EXPLAIN", "SHOW", "WITH", "PRAGMA")
BOUNDS = ("BEGIN", "START TRANSACTION", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT")
"""The bounds of a transaction that reads: what would write inside them is refused by itself."""
_WRITES = re.compile(r"\b(INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|MERGE\s+INTO)\b", re.IGNORECASE)
"""What may stand behind a WITH, or be explained with ANALYZE."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be done, and as which issue of its operation."""

    call: EffectCall
    issue: int


def intend(
    lease: Lease, effect: EffectDefinition[object], operation: str, arguments: dict[str, JSON], *, send_by: float
) -> Intent | Stored:
    """Find the receipt of what was done before, or name what is about to be done. Reads only, without a lock.

    Raises   KeyConflict when the same operation was stored with other arguments, or by an effect outside
    """
    step = StepRun.objects.using(database()).select_related("run").get(pk=lease.step_id)
    before = _newest(step, operation)
    if before is not None and before.verdict != REPEAT and before.state != EffectState.UNDONE:
        ledger.check_same(before, ledger.request_digest(effect.name, effect.version, arguments))
        if before.state not in (EffectState.CONFIRMED, EffectState.REVERSED):
            raise KeyConflict(
                f"{operation} was begun outside a transaction, and is {before.state}; nothing was done. An effect that "
                "becomes transactional needs a new version; settle this one with `manage.py durableflows resolve`"
            )
        return Stored(before.receipt)
    row = ledger.planned(step.run, step, effect, operation, arguments, replaces=before, now=step.created_at)
    return Intent(ledger.call_of(row, lease.step, effect.timeout_seconds, send_by), row.issue)


def _newest(step: StepRun, operation: str) -> SideEffect | None:
    rows = SideEffect.objects.using(database()).filter(step=step, operation=operation)
    return rows.order_by("-issue").first()


def keep(
    lease: Lease,
    effect: EffectDefinition[object],
    operation: str,
    arguments: dict[str, JSON],
    receipt: JSON,
    intent: Intent,
) -> None:
    """Write what was done, with its receipt, into the open transaction.

    Writes / Locks   SideEffect, EffectSend, RunEvent; locks run, step
    Raises           LeaseLost, RunHalted, LimitReached: all is rolled back then, as if nothing had begun;
                     ConcurrentChange when somebody else did it meanwhile, and the whole is done again
    Crash            before the commit nothing has happened; after it the effect is CONFIRMED and has its receipt
    """
    run, step = lock_run(lease.run_id), lock_step(lease.step_id)
    now = clock.now()
    ledger.check_lease(step, lease)
    ledger.check_may_begin(run, step, now)
    before = _newest(step, operation)
    if (0 if before is None else before.issue) + 1 != intent.issue:
        raise ConcurrentChange(f"{operation} was done by somebody else meanwhile")
    row = ledger.planned(run, step, effect, operation, arguments, replaces=before, now=now)
    row.confirmed_number = run.event_sequence + 1
    _insert(row, lease, receipt, now)
    _note(run, step, row)
    ledger_undo.follow(run, step, row, now)


def _insert(row: SideEffect, lease: Lease, receipt: JSON, now: datetime) -> None:
    row.dispatch()
    row.confirm()
    row.send_count, row.receipt = 1, receipt
    row.first_dispatched_at = row.dispatched_at = row.settled_at = now
    insert(row, database())
    send = EffectSend(
        effect=row,
        number=1,
        kind="send",
        provider=row.provider,
        attempt_id=lease.attempt_id,
        lease_token=lease.token,
        phase="answered",
        outcome=str(AnswerKind.RECEIPT),
        answer=receipt,
        started_at=now,
        closes_at=now,
        ended_at=now,
    )
    insert(send, database())


def _note(run: WorkflowRun, step: StepRun, row: SideEffect) -> None:
    facts: dict[str, JSON] = {
        "effect": row.effect,
        "operation": row.operation,
        "answer": str(AnswerKind.RECEIPT),
        "state": str(row.state),
        "by": "transaction",
        "key": row.key,
        "receipt": redact(row.receipt),
    }
    journal.record(run, "effect.recorded", at=row.created_at, step=step, data=facts)
    run.tool_calls_count += 1
    run.store("tool_calls_count", *journal.FIELDS)


def _only_reads(sql: str) -> bool:
    start = sql.lstrip(" (\n\t").upper()
    return start.startswith(BOUNDS) or (start.startswith(READS) and _WRITES.search(sql) is None)


@contextmanager
def only_here(name: str) -> Iterator[None]:
    """Refuse writes in another database of the project: they would not be rolled back with the effect.

    Raises   InvalidDefinition from the statement that would write there
    """

    def refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
        if not _only_reads(str(sql)):
            alias = context["connection"].alias
            raise InvalidDefinition(
                f"effect {name} is transactional and writes in the database {alias!r}: only {database()!r}, where its "
                "row is kept, commits with it. Make it an effect with a key or a lookup"
            )
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for alias in connections:
            if alias != database():
                stack.enter_context(connections[alias].execute_wrapper(refuse))
        yield
