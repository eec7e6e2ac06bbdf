"""The answers to a request that still stand: whose they are, which of them count, and voiding the others.

`lapsed` asks for rights, which runs code of the project: before the lock. All else is done under it. Never deletes.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from durableflows.core.approvers import Approvers
from durableflows.core.payload import same
from durableflows.core.states import ApprovalState
from durableflows.models import ApprovalDecision, ApprovalRequest
from durableflows.rights import Right, Standing
from durableflows.transactions import database


def standing(request: ApprovalRequest) -> list[ApprovalDecision]:
    """The answers that are not void, in the order in which they were given."""
    rows = ApprovalDecision.objects.using(database()).filter(request=request, voided_at__isnull=True)
    return list(rows.select_related("actor", "for_person").order_by("at", "id"))


def whose(vote: ApprovalDecision) -> Any:
    """The one who is counted for an answer: who has lent the right, else who gave it."""
    return vote.for_person_id or vote.actor_id or vote.pk


def lapsed(request: ApprovalRequest, by: Approvers, votes: Iterable[ApprovalDecision], now: datetime) -> set[UUID]:
    """Which answers would not be taken any more if they were given now, asked of these people."""
    return {vote.pk for vote in votes if not _holds(vote, request, by, now)}


def _holds(vote: ApprovalDecision, request: ApprovalRequest, by: Approvers, now: datetime) -> bool:
    actor = vote.actor
    if actor is None or not getattr(actor, "is_active", False):
        return False
    acting = Standing(actor, now)
    if acting.may_not(request):
        return False
    if not vote.for_name:
        return bool(acting.own_right(by, request.tenant))
    # What was lent may have ended since on its day: the answer was given in time.
    giver = Standing(vote.for_person, now)
    return giver.is_active and not giver.may_not(request) and bool(giver.own_right(by, request.tenant))


def undisputed(request: ApprovalRequest, given: Iterable[ApprovalDecision]) -> list[ApprovalDecision]:
    """The same where nobody answers just now: [] also when others approve other values, for people choose then."""
    approvals = _approvals(given)
    decided = agreeing(request, approvals)
    return decided if len(decided) == len(approvals) else []


def unused(rights: Iterable[Right], person: Any, given: Iterable[ApprovalDecision]) -> Right | None:
    """The person's own right, else the first lent one that no other answer has used: each right counts once.

    given   the answers that stand
    """
    used = {whose(vote) for vote in given if vote.actor_id != person.pk}
    return next((right for right in rights if right.giver is None or right.giver.pk not in used), None)


def spent_words(rights: Iterable[Right]) -> str:
    """Say that each of these rights, which were all lent, is used."""
    names = ", ".join(sorted(str(right.giver.get_username()) for right in rights))
    return f"it is answered for {names} already: you have no right of your own to answer it"


def void(votes: Iterable[ApprovalDecision], pks: Collection[UUID], reason: str, now: datetime) -> int:
    """Let these answers count no more, under the request's lock. Returns how many there were."""
    chosen = [vote.pk for vote in votes if vote.pk in pks]
    if not chosen:
        return 0
    rows = ApprovalDecision.objects.using(database()).filter(pk__in=chosen, voided_at__isnull=True)
    return rows.update(voided_at=now, voided_reason=reason[:200])


def deciding(request: ApprovalRequest) -> ApprovalDecision | None:
    """The last of the answers that have decided; None where no person did."""
    given = standing(request)
    decided = agreeing(request, given) if request.state == ApprovalState.APPROVED else given
    return decided[-1] if decided else None


def are_split(given: Iterable[ApprovalDecision]) -> bool:
    """Have people approved different values, so that they do not count together? `given`: the answers that stand."""
    approvals = _approvals(given)
    return any(not same(vote.edits, approvals[0].edits) for vote in approvals)


def agreeing(request: ApprovalRequest, given: Iterable[ApprovalDecision]) -> list[ApprovalDecision]:
    """The approvals that decide: of as many people as are needed, to the same values exactly. [] while they are fewer.

    given   the answers that stand
    """
    approvals = _approvals(given)
    for last in reversed(approvals):
        alike = [vote for vote in approvals if same(vote.edits, last.edits)]
        if _people(alike) >= request.quorum:
            return alike
    return []


def so_far(given: Iterable[ApprovalDecision]) -> int:
    """How many people have approved the same values, where they are most: the number that has to come to the quorum.

    given   the answers that stand
    """
    approvals = _approvals(given)
    return max((_people(vote for vote in approvals if same(vote.edits, one.edits)) for one in approvals), default=0)


def _approvals(given: Iterable[ApprovalDecision]) -> list[ApprovalDecision]:
    return [vote for vote in given if vote.verdict == "approve"]


def _people(alike: Iterable[ApprovalDecision]) -> int:
    return len({whose(vote) for vote in alike})
