"""Whether an approval still holds when the run wakes: the facts that were approved, and the right of who approved.

Called by the runner before a step's first send, outside any transaction: facts are computed by user code.
Source: P9; specification S2.8, S2.9, S3.40; R26.
"""

from collections.abc import Callable
from uuid import UUID

from durableflows.core.definition import ApprovalSpec, StepDefinition, WorkflowDefinition
from durableflows.core.outcomes import Question
from durableflows.core.payload import same, sha256
from durableflows.core.states import ApprovalState
from durableflows.leases import Lease
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.tenants import acts_in
from durableflows.transactions import database


def doubt(
    lease: Lease, definition: WorkflowDefinition, step: StepDefinition, facts: Callable[[ApprovalSpec], Question]
) -> str:
    """Say why the approval that led to this step no longer counts; '' when it does, or when none led here."""
    for asking in definition.steps.values():
        if asking.approval is None or asking.approval.approved != step.name:
            continue
        request = _approved(lease.run_id, asking.name, lease.item_key)
        if request is None:
            continue
        reason = _people(request) or _facts(request, facts(asking.approval))
        if reason:
            return f"{asking.name} no longer counts: {reason}"
    return ""


def _approved(run_id: UUID, step_name: str, item_key: str) -> ApprovalRequest | None:
    requests = ApprovalRequest.objects.using(database()).filter(run_id=run_id, step__name=step_name)
    requests = requests.filter(step__item_key=item_key)
    return requests.filter(state=ApprovalState.APPROVED).order_by("-created_at", "-id").first()


def _people(request: ApprovalRequest) -> str:
    """Each vote must still be one that the person may give now: rights change while a run waits for a worker."""
    votes = ApprovalDecision.objects.using(database()).filter(
        request=request, verdict="approve", voided_at__isnull=True
    )
    for vote in votes.select_related("actor"):
        actor = vote.actor
        if actor is None or not actor.is_active:
            return f"{vote.actor_name}, who approved, is not active any more"
        if not actor.has_perm(vote.permission):
            return f"{vote.actor_name}, who approved, has lost the permission {vote.permission}"
        if not acts_in(actor, request.tenant):
            return f"{vote.actor_name}, who approved, no longer acts in tenant {request.tenant!r}"
    return ""


def _facts(request: ApprovalRequest, now_true: Question) -> str:
    if sha256(now_true.binding) == request.facts_digest:
        return ""
    changed = sorted(
        name
        for name in {*request.binding, *now_true.binding}
        if not same(request.binding.get(name), now_true.binding.get(name))
    )
    return f"what was approved has changed since ({', '.join(changed)})"
