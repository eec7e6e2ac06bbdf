"""Answering requests. Every door (admin, inbox, API, link in a mail) calls `answer`; nothing else decides.

Rights, facts and edits are computed before the lock, from user code; then run, step, request are locked and compared.
Source: P9; design, section 6; R10, R22, R26, R27.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from durableflows import clock, integrity, journal, progress, questions, votes
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import decide, edits, free_text, log_lines
from durableflows.core.approvers import PERMISSION, Approvers
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, check_size, check_text, same, sha256
from durableflows.core.states import ApprovalState
from durableflows.errors import (
    AlreadyDecided,
    DurableflowsError,
    FactsChanged,
    InvalidState,
    NotAllowed,
    TooLate,
)
from durableflows.models import ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_request, lock_run, lock_step
from durableflows.rights import ACTS, Right, Standing, as_stored, edited_by_name, while_there
from durableflows.services.requests import declared, differences, facts_on, renew_facts, request_for
from durableflows.transactions import database, transact

logger = log_lines.logger("durableflows.approvals")

TURNS = 5
"""How often an answer begins again when the run has changed while its facts were computed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's answer as it came through a door. `edits`: what is approved instead, where that is declared."""

    verdict: str
    by: Any
    facts_digest: str
    comment: str
    door: str
    origin: str
    edits: Mapping[str, object] = field(default_factory=dict)


def answer(request_id: UUID | str, given: Answer) -> ApprovalRequest:
    """Record an answer to a request, and let the run go on when it decides.

    Raises           NotFoundError; NotAllowed without the right, or for the requester's own request; AlreadyDecided;
                     TooLate when it has expired or the run has ended; FactsChanged when the binding facts are not
                     what was shown; InvalidState for edits out of bounds. The same person's same answer again is a
                     quiet no-op
    Writes / Locks   ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun, RunEvent; locks run, step, request
    Crash            before the commit nothing of it; after it the sweep sends the next step
    """
    given = _checked(given)
    given = replace(given, by=as_stored(given.by))
    for _ in range(TURNS):
        request = request_for(request_id, given.by)
        seen = _look(request, given)
        with while_there(given.by):
            outcome = _answer(request.run_id, request.step_id, request.pk, given, seen)
        if outcome is not None:
            break
    else:
        raise TooLate("the run changes faster than its facts can be computed: nothing was decided, look at it again")
    cross(Boundary.ANSWER_AFTER_COMMIT)
    if isinstance(outcome, FactsChanged):
        raise outcome
    return outcome


def _checked(given: Answer) -> Answer:
    if given.verdict not in ("approve", "reject"):
        raise InvalidState(f"{given.verdict!r} is not an answer: say approve or reject")
    if given.by is None:
        raise NotAllowed("an answer is given by a person: say who, by=...")
    if not isinstance(given.edits, Mapping):
        raise InvalidState(f"edits must be a mapping of names to values, not {type(given.edits).__name__}")
    if given.edits and given.verdict != "approve":
        raise InvalidState("what is rejected is not changed: leave the edits out, or approve")
    check_text(given.door, 40, "the door")
    check_text(given.origin, 200, "the origin")
    return replace(given, comment=free_text.kept(given.comment, "the comment"))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was true before the lock.

    facts        and the checkpoint that they are about; asked: who is asked, as rights were looked at
    rights       by which the person may answer; lapsed: answers of others that count no more
    edits        as they are stored, checked against these facts; problem: what is wrong with them
    although     why somebody else would have to decide, did the approval not allow it; '' for nothing
    """

    facts: Question | None
    checkpoint: int
    asked: Approvers | None
    rights: list[Right]
    lapsed: frozenset[UUID] = frozenset()
    edits: dict[str, JSON] = field(default_factory=dict)
    problem: InvalidState | None = None
    although: str = ""


def _look(request: ApprovalRequest, given: Answer) -> _Seen:
    standing, asked = Standing(given.by), request.asked_of
    reason = standing.refusal(request) or edited_by_name(request, given.by)
    if reason:
        raise NotAllowed(reason)
    assert asked is not None
    rights = standing.rights(request, asked)
    if request.state != ApprovalState.OPEN:
        return _Seen(None, 0, asked, rights)
    run = WorkflowRun.objects.using(database()).get(pk=request.run_id)
    facts = facts_on(run, request, run.data)
    lapsed = votes.lapsed(request, asked, votes.standing(request), clock.now())
    although = standing.hand_in(request) or (ACTS if standing.acts_for_requester(request) else "")
    seen = _Seen(facts, run.checkpoint_sequence, asked, rights, frozenset(lapsed), although=although)
    try:
        return replace(seen, edits=_edits(run, request, given, facts))
    except InvalidState as problem:  # that the facts have changed says more
        return replace(seen, problem=problem)


def _edits(run: WorkflowRun, request: ApprovalRequest, given: Answer, facts: Question) -> dict[str, JSON]:
    if not given.edits:
        return {}
    spec = declared(run, request.step).approval
    if spec is None or spec.edits is None:
        raise InvalidState("nothing of this request may be changed: approve or reject it as it is")
    try:
        changed = edits.read(spec.edits, given.edits, facts.binding)
        check_size(changed, settings().MAX_STATE_BYTES, "edits")
        integrity.refuse_secrets(changed, "edits")
        return changed
    except DurableflowsError:
        raise
    except Exception as error:  # of a validator of the project
        logger.exception("the edits of request %s cannot be checked", request.pk)
        raise InvalidState(f"the edits cannot be checked now ({type(error).__name__}): nothing was decided") from error


@transact
def _answer(
    run_id: UUID, step_id: UUID, request_id: UUID, given: Answer, seen: _Seen
) -> ApprovalRequest | FactsChanged | None:
    """None: the run or the request is not the one any more that was looked at."""
    run, step, request = lock_run(run_id), lock_step(step_id), lock_request(request_id)
    now = clock.now()
    standing = votes.standing(request)
    if _is_repeat(request, standing, given, seen):
        return request
    check_open(run, request, now)
    if request.asked_of != seen.asked:  # escalated between the check of rights and the lock
        raise TooLate(f"this request has just been handed on to {_asked_words(request)}: open it again")
    if run.checkpoint_sequence != seen.checkpoint or seen.facts is None:
        return None
    shown = request.facts_digest
    changed = _changed(run, step, request, given, seen.facts, now)
    if changed is not None:
        return changed
    if request.facts_digest != shown:  # the answer is to the new facts, which may be for others to decide: look again
        return None
    if seen.problem is not None:
        raise seen.problem
    _record(run, step, request, given, seen, standing, now)
    _decide_if_complete(run, step, request, given, now)
    cross(Boundary.ANSWER_BEFORE_COMMIT)
    return request


def _asked_words(request: ApprovalRequest) -> str:
    by = request.asked_of
    if by is None or by.groups or by.people:
        return questions.asked_words(request)
    return f"people with {by.permission}"


def _is_repeat(request: ApprovalRequest, standing: list[ApprovalDecision], given: Answer, seen: _Seen) -> bool:
    mine = next((vote for vote in standing if vote.actor_id == given.by.pk), None)
    if mine is None or mine.verdict != given.verdict or mine.pk in seen.lapsed:
        return False
    # Of a closed request nobody looks any more whether the same changes are meant.
    return request.state != ApprovalState.OPEN or (seen.problem is None and same(mine.edits, seen.edits))


def check_open(run: WorkflowRun, request: ApprovalRequest, now: datetime) -> None:
    """Raise AlreadyDecided or TooLate for a request that cannot be answered any more, whoever asks."""
    if request.state != ApprovalState.OPEN:
        raise AlreadyDecided(_how_it_ended(request))
    if now >= request.expires_at:
        raise TooLate(f"this request expired {_moment(request.expires_at)}: it can no longer be answered")
    if run.ended_at is not None or run.ending_reason:
        raise TooLate(f"the run is {run.word}: there is nothing left to decide")
    if now >= run.deadline_at:
        raise TooLate(f"the run's deadline {_moment(run.deadline_at)} has passed")


def _moment(at: datetime) -> str:
    """In the time zone of whoever is told."""
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M %Z}"


def _how_it_ended(request: ApprovalRequest) -> str:
    last = votes.deciding(request)
    if last is not None and request.state in (ApprovalState.APPROVED, ApprovalState.REJECTED):
        verdict = "approved" if request.state == ApprovalState.APPROVED else "rejected"
        return f"already {verdict} by {last.actor_name} at {_moment(last.at)}"
    when = f" {_moment(request.closed_at)}" if request.closed_at else ""
    return f"already closed{when}: {request.closed_reason or request.state}"


def _changed(
    run: WorkflowRun, step: StepRun, request: ApprovalRequest, given: Answer, now_true: Question, now: datetime
) -> FactsChanged | None:
    """Compare what was shown with what is true; on a difference keep the new facts and void the votes on the old."""
    changes = differences(request.binding, now_true.binding)
    if renew_facts(run, step, request, now_true, now):
        run.store(*journal.FIELDS)
    if given.facts_digest != request.facts_digest:
        names = ", ".join(sorted(changes)) or "what you were shown"
        return FactsChanged(f"the facts have changed ({names}): look at them again, then decide", changes=changes)
    return None


def _record(
    run: WorkflowRun,
    step: StepRun,
    request: ApprovalRequest,
    given: Answer,
    seen: _Seen,
    standing: list[ApprovalDecision],
    now: datetime,
) -> None:
    votes.void(standing, seen.lapsed, "who gave it may not decide any more", now)
    standing = [vote for vote in standing if vote.pk not in seen.lapsed]
    right = votes.unused(seen.rights, given.by, standing)
    if right is None:
        raise NotAllowed(votes.spent_words(seen.rights))
    mine = {vote.pk for vote in standing if vote.actor_id == given.by.pk}
    votes.void(standing, mine, "the same person answered otherwise", now)
    for_me = {vote.pk for vote in standing if vote.for_person_id == given.by.pk}
    votes.void(standing, for_me, f"{given.by.get_username()} answered in person", now)
    decision = _decision(request, given, seen, right, now)
    insert(decision, database())
    data: dict[str, JSON] = {"request": str(request.pk), "verdict": given.verdict, "door": given.door}
    data |= {"right": right.name}
    if seen.edits:
        data |= {"edits": seen.edits, "edits_sha256": sha256(seen.edits)}
    if right.giver is not None:
        data |= {"for": decision.for_name}
    if seen.although:  # R27: a rule that was relaxed is marked
        data |= {"although": seen.although}
    journal.record(run, "approval.answered", at=now, step=step, actor_name=decision.actor_name, data=data)


def _decision(request: ApprovalRequest, given: Answer, seen: _Seen, right: Right, now: datetime) -> ApprovalDecision:
    kind, _, name = right.name.partition(":")
    giver = right.giver
    return ApprovalDecision(
        request=request,
        actor=given.by,
        actor_name=str(given.by.get_username())[:150],
        verdict=given.verdict,
        comment=given.comment,
        edits=seen.edits,
        door=given.door,
        origin=given.origin,
        permission=name if kind == PERMISSION else "",
        right=right.name,
        for_person=giver,
        for_name="" if giver is None else str(giver.get_username())[:150],
        facts_digest=given.facts_digest,
        at=now,
    )


def _decide_if_complete(
    run: WorkflowRun, step: StepRun, request: ApprovalRequest, given: Answer, now: datetime
) -> None:
    """One no ends it; yes needs the quorum."""
    if given.verdict == "approve" and not votes.agreeing(request, votes.standing(request)):
        run.store(*journal.FIELDS)
        return
    name = str(given.by.get_username())
    questions.close(run, request, given.verdict, f"{given.verdict} by {name}", now)
    decision = decide.after_answer(declared(run, step), given.verdict, name)
    progress.apply(run, step, decision, now=now, actor_name=name)
