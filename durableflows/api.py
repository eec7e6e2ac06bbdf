"""The verbs, for a project's own code. They need Django's app registry; declaring a workflow does not.

    api.start(Refund, {...}, key="refund:17", by=user)   joins the caller's transaction; the first step is sent after it
    api.get(run_id, by=user)
    api.cancel(run_id, by=user, reason="customer changed his mind")
    api.retry(run_id, by=user, reason="fixed the template")
    api.signal(run_id, "paid", {"amount": 5}, dedup_key=event_id)
    api.answer(request_id, "approve", by=user, facts_digest=shown)
    api.resolve_effect(effect_id, "happened", by=user, reason="seen in the dashboard", row_version=7, receipt={...})
    api.explain(run_id, by=user)

`by=None` means trusted code of the project itself. Every verb is one short transaction; none waits for a worker.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import Model

from durableflows.core.declare import Workflow
from durableflows.core.payload import JSON
from durableflows.core.state import WorkflowState
from durableflows.errors import InvalidState
from durableflows.explain import Explanation, Line, explain_run
from durableflows.explain_words import Fact
from durableflows.models import ApprovalRequest, SideEffect, Signal, WorkflowRun
from durableflows.selectors import run_for
from durableflows.services import approvals, migrations, reconcile, runs, signals

__all__ = [
    "Explanation",
    "Fact",
    "Line",
    "answer",
    "cancel",
    "explain",
    "get",
    "migrate",
    "resolve_effect",
    "retry",
    "signal",
    "start",
]


def start(
    workflow: type[Workflow[Any]] | str,
    state: Mapping[str, object] | WorkflowState,
    *,
    key: str = "",
    by: Any = None,
    tenant: str = "",
    subject: Model | None = None,
    labels: Mapping[str, str] | None = None,
    version: int | None = None,
) -> WorkflowRun:
    """Start a run in the caller's transaction. A rollback leaves no run, no message and no mail.

    Shapes and units   key: business key, unique per tenant, '' for none; the same key with the same request returns
                       the run that exists, ended or not, also when a later version would be started now;
                       version: None for the highest. A transaction on another database than the engine's is not joined
    Raises             UnknownWorkflow, InvalidState (all problems), KeyConflict (same key, other request)
    """
    definition = runs.definition_of(workflow, version)
    for what, value in (("state", state), ("labels", labels or {})):
        if not isinstance(value, Mapping | WorkflowState):
            raise InvalidState(f"{what} must be a mapping of names to values, not {type(value).__name__}")
    return runs.start(definition, state, key=key, by=by, tenant=tenant, subject=subject, labels=labels or {})


def get(run_id: UUID | str, *, by: Any = None) -> WorkflowRun:
    """One run that the person may see. Raises NotFoundError, also when it is somebody else's."""
    return run_for(run_id, by)


def cancel(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Ask for the end of a run. Nothing is sent any more; it is confirmed when nothing is in doubt or on its way.

    Raises   NotFoundError, NotAllowed, TooLate when it has finished. A second cancel changes nothing
    """
    return runs.cancel(run_id, by=by, reason=reason)


def retry(run_id: UUID | str, *, by: Any = None, reason: str) -> WorkflowRun:
    """Let a parked run go on, or bring a scheduled retry forward.

    Raises   NotFoundError, NotAllowed, TooLate when nothing of it waits for a retry
    """
    return runs.retry(run_id, by=by, reason=reason)


def signal(run_id: UUID | str, name: str, payload: object = None, *, dedup_key: str = "", by: Any = None) -> Signal:
    """Send a message to a run: to the step that waits for this name, or to the next one that will.

    Shapes and units   payload: a value that can be written as JSON; dedup_key: the same key again is dropped quietly
    Raises             NotFoundError, NotAllowed, InvalidState, KeyConflict; TooLate when the run has ended or is ending
    """
    return signals.signal(run_id, name, payload, dedup_key=dedup_key, by=by)


def migrate(run_id: UUID | str, *, by: Any = None, reason: str, version: int | None = None) -> WorkflowRun:
    """Let a run go on under a newer version of its workflow, as that one declares it; None: the highest it can reach.

    Raises   NotFoundError, NotAllowed, TooLate (ended, ending, or a worker is at it), InvalidState (no way leads there)
    """
    return migrations.migrate(run_id, by=by, reason=reason, version=version)


def answer(
    request_id: UUID | str,
    verdict: str,
    *,
    by: Any,
    facts_digest: str,
    comment: str = "",
    door: str = "api",
    origin: str = "",
) -> ApprovalRequest:
    """Answer a request: "approve" or "reject", for exactly the facts whose digest was shown.

    Raises   NotFoundError, NotAllowed, AlreadyDecided, FactsChanged, TooLate. The same answer again is a quiet no-op
    """
    given = approvals.Answer(verdict, by, facts_digest, comment, door, origin)
    return approvals.answer(request_id, given)


def resolve_effect(
    effect_id: UUID | str,
    verdict: str,
    *,
    by: Any = None,
    reason: str,
    row_version: int,
    receipt: Mapping[str, JSON] | None = None,
) -> SideEffect:
    """Say what happened with an effect in doubt: "happened" (with a receipt), "did_not_happen", "ask_again".

    Raises   NotFoundError, NotAllowed, InvalidState, TooLate (the row moved on, or a request may still arrive)
    """
    if receipt is not None and not isinstance(receipt, Mapping):
        raise InvalidState(f"a receipt is a mapping of names to values, not {type(receipt).__name__}")
    given = None if receipt is None else dict(receipt)
    return reconcile.resolve_effect(effect_id, verdict, by=by, reason=reason, row_version=row_version, receipt=given)


def explain(run_id: UUID | str, *, by: Any = None) -> Explanation:
    """Say in plain sentences what happened, what is certain, what is unknown, and what comes next and when."""
    return explain_run(run_for(run_id, by))
