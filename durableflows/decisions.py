"""Whether an approval still holds when the run wakes: the facts that were approved, and the right of who approved.

Called by the runner before a step's first send, outside any transaction: facts are computed by user code.
Source: P9; specification S2.8, S2.9, S3.40; R26.
"""

from collections.abc import Callable, Sequence

from durableflows import votes
from durableflows.core import edits
from durableflows.core.approval import ApprovalSpec
from durableflows.core.approvers import GROUP, PERMISSION, PERSON
from durableflows.core.definition import StepDefinition, WorkflowDefinition
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, same, sha256
from durableflows.core.states import ApprovalState
from durableflows.leases import Lease
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.rights import Standing
from durableflows.transactions import database


def doubt(
    lease: Lease, definition: WorkflowDefinition, step: StepDefinition, facts: Callable[[ApprovalSpec], Question]
) -> str:
    """Say why the approval that led to this step no longer counts; '' when it does, or when none led here."""
    for asking in definition.steps.values():
        if asking.approval is None or asking.approval.approved != step.name:
            continue
        request = _approved(lease, asking.name)
        if request is None:
            continue
        decided = votes.agreeing(request, votes.standing(request))
        reason = _people(request, decided) or _facts(request, asking.approval, facts(asking.approval), decided)
        if reason:
            return f"{asking.name} no longer counts: {reason}"
    return ""


def _approved(lease: Lease, step_name: str) -> ApprovalRequest | None:
    requests = ApprovalRequest.objects.using(database()).filter(run_id=lease.run_id, step__name=step_name)
    requests = requests.filter(step__item_key=lease.item_key)
    return requests.filter(state=ApprovalState.APPROVED).order_by("-created_at", "-id").first()


def _people(request: ApprovalRequest, decided: Sequence[ApprovalDecision]) -> str:
    """Each vote that decided must still be one that the person may give: rights change while a run waits."""
    if request.quorum and not decided:
        return "it was approved by fewer people than have to"
    for vote in decided:
        actor = vote.actor
        if actor is None or not actor.is_active:
            return f"{vote.actor_name}, who approved, is not active any more"
        acting = Standing(actor)
        if not acting.acts_in(request.tenant):
            return f"{vote.actor_name}, who approved, no longer acts in tenant {request.tenant!r}"
        reason = _lent(vote, request) if vote.for_name else _lost(vote, acting)
        if reason:
            return f"{vote.actor_name}, who approved{f' for {vote.for_name}' if vote.for_name else ''}, {reason}"
    return ""


def _lent(vote: ApprovalDecision, request: ApprovalRequest) -> str:
    """What about the giver is in the way. That it was lent until a day says nothing of an answer before that day."""
    giver = Standing(vote.for_person)
    if not giver.is_active:
        return f"has no right of {vote.for_name} any more, who is not active"
    if not giver.acts_in(request.tenant):
        return f"has no right of {vote.for_name} any more, who no longer acts in tenant {request.tenant!r}"
    return _lost(vote, giver)


def _lost(vote: ApprovalDecision, whose: Standing) -> str:
    """Which right the answer was given under and is no more; '' while it is there."""
    kind, _, name = (vote.right or f"{PERMISSION}:{vote.permission}").partition(":")
    if kind == PERSON:
        return "" if name == whose.username else f"is not called {name} any more"
    if kind == GROUP:
        return "" if name in whose.groups else f"is not in the group {name} any more"
    return "" if whose.person.has_perm(name) else f"has lost the permission {name}"


def _facts(
    request: ApprovalRequest, spec: ApprovalSpec, now_true: Question, decided: Sequence[ApprovalDecision]
) -> str:
    """Say what of the approved facts has changed since. What the approver has changed may be done already."""
    digest = sha256(now_true.binding)
    if digest == request.facts_digest or digest == sha256(_as_edited(request, decided)):
        return _rule(request, spec, now_true)
    changed = sorted(
        name
        for name in {*request.binding, *now_true.binding}
        if not same(request.binding.get(name), now_true.binding.get(name))
    )
    return f"what was approved has changed since ({', '.join(changed)})"


def _as_edited(request: ApprovalRequest, decided: Sequence[ApprovalDecision]) -> dict[str, JSON]:
    return edits.applied(request.binding, decided[-1].edits if decided else {})


def _rule(request: ApprovalRequest, spec: ApprovalSpec, now_true: Question) -> str:
    """What nobody was asked about must be for nobody still: rules change while a run waits for a worker."""
    if request.quorum or spec.asked_of(now_true.amount) is None:
        return ""
    return "nobody was asked, and by the rules that hold now somebody has to be"
