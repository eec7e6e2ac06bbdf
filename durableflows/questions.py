"""The requests of a run: made when a step asks, closed when it is answered or moot. Called with the run locked.

Decides nothing: who may answer, and what an answer leads to, is in `services.approvals` and `core.decide`.
"""

from datetime import datetime

from durableflows import journal
from durableflows.core import registry
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, sha256
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalRequest, StepRun, WorkflowRun
from durableflows.transactions import database


def ask(run: WorkflowRun, step: StepRun, question: Question, now: datetime) -> None:
    """Make the request that the step waits for. It commits with the waiting state, so no answer can come too early."""
    spec = registry.get(run.workflow, run.version).step(step.name).approval
    assert spec is not None
    ladder: list[JSON] = [
        {"permission": rung.permission, "expires_seconds": (rung.expires or spec.expires).total_seconds()}
        for rung in spec.ladder()
    ]
    request = ApprovalRequest(
        run=run,
        step=step,
        tenant=run.tenant,
        title=question.title[:300],
        binding=question.binding,
        context=question.context,
        facts_digest=sha256(question.binding),
        permission=spec.permission,
        exclude_requester=spec.exclude_requester,
        requester=run.owner,
        requester_name=run.owner_name,
        quorum=spec.quorum,
        ladder=ladder,
        run_version=run.checkpoint_sequence,
        expires_at=now + spec.expires,
        created_at=now,
    )
    request.save(using=database(), force_insert=True)
    data: dict[str, JSON] = {"request": str(request.pk), "title": request.title, "facts": request.facts_digest}
    journal.record(run, "approval.asked", at=now, step=step, data=data)


def close_all(run: WorkflowRun, why: str, now: datetime) -> None:
    """Close every question that a run still asks."""
    for request in ApprovalRequest.objects.using(database()).filter(run=run, state=ApprovalState.OPEN):
        close(run, request, "close", why, now)


def close(run: WorkflowRun, request: ApprovalRequest, verb: str, reason: str, now: datetime) -> None:
    """Close a request by a move of APPROVAL_MOVES."""
    request.move(verb)
    request.closed_at, request.closed_reason = now, reason[:200]
    request.store("state", "closed_at", "closed_reason")
    data: dict[str, JSON] = {"request": str(request.pk), "state": str(request.state), "reason": reason}
    journal.record(run, "approval.closed", at=now, step=request.step, data=data)
