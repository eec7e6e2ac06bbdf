"""Answering requests and letting them expire. Every door (admin, API) calls `answer`; nothing else decides.

Rights and facts are computed before the lock, from user code; then run, step and request are locked and compared.
Source: P9; design, section 6; R10, R22.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durableflows import claims, clock, endings, journal, progress, questions
from durableflows.boundaries import Boundary, cross
from durableflows.context import RunContext
from durableflows.core import decide, free_text, registry
from durableflows.core.definition import StepDefinition
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, check_text, same, sha256
from durableflows.core.states import ApprovalState, EndingReason, StepState
from durableflows.errors import (
    AlreadyDecided,
    DurableflowsError,
    FactsChanged,
    InvalidState,
    NotAllowed,
    NotFoundError,
    TooLate,
)
from durableflows.models import ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.locks import lock_request, lock_run, lock_step, try_lock_run
from durableflows.runner import question_of
from durableflows.selectors import refusal, requests_for
from durableflows.transactions import database, transact

logger = logging.getLogger("durableflows.approvals")

TURNS = 5
"""How often an answer begins again when the run has changed while its facts were computed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's answer as it came through a door."""

    verdict: str
    by: Any
    facts_digest: str
    comment: str
    door: str
    origin: str


def answer(request_id: UUID | str, given: Answer) -> ApprovalRequest:
    """Record an answer to a request, and let the run go on when it decides.

    Raises           NotFoundError; NotAllowed without the right, or for the requester's own request; AlreadyDecided;
                     TooLate when it has expired or the run has ended; FactsChanged when the binding facts are not
                     what was shown. The same person's same answer again is a quiet no-op
    Writes / Locks   ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun, RunEvent; locks run, step, request
    Crash            before the commit nothing of it; after it the sweep sends the next step
    """
    if given.verdict not in ("approve", "reject"):
        raise InvalidState(f"{given.verdict!r} is not an answer: say approve or reject")
    if given.by is None:
        raise NotAllowed("an answer is given by a person: say who, by=...")
    check_text(given.door, 40, "the door")
    check_text(given.origin, 200, "the origin")
    given = replace(given, comment=free_text.kept(given.comment, "the comment"))
    for _ in range(TURNS):
        request = request_for(request_id, given.by)
        _check_person(request, given.by)
        outcome = _answer(request.run_id, request.step_id, request.pk, given, _look(request))
        if outcome is not None:
            break
    else:
        raise TooLate("the run changes faster than its facts can be computed: nothing was decided, look at it again")
    cross(Boundary.ANSWER_AFTER_COMMIT)
    if isinstance(outcome, FactsChanged):
        raise outcome
    return outcome


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was true before the lock: the facts, the checkpoint they are about, and the right that was checked."""

    facts: Question | None
    checkpoint: int
    permission: str


def _look(request: ApprovalRequest) -> _Seen:
    if request.state != ApprovalState.OPEN:
        return _Seen(None, 0, request.permission)
    run = WorkflowRun.objects.using(database()).get(pk=request.run_id)
    return _Seen(facts_on(run, request, run.data), run.checkpoint_sequence, request.permission)


def request_for(request_id: UUID | str, person: Any) -> ApprovalRequest:
    """One request that the person may see. Raises NotFoundError."""
    try:
        wanted = request_id if isinstance(request_id, UUID) else UUID(str(request_id))
    except ValueError:
        raise NotFoundError(f"{str(request_id)[:60]!r} is not a request's id") from None
    request = requests_for(person).filter(pk=wanted).first()
    if request is None:
        raise NotFoundError(f"there is no request {wanted}, or none that you may see")
    return request


def _check_person(request: ApprovalRequest, person: Any) -> None:
    reason = refusal(request, person)
    if reason:
        raise NotAllowed(reason)


def facts_on(run: WorkflowRun, request: ApprovalRequest, data: dict[str, JSON]) -> Question:
    """Compute the request's facts on a state of its run. Runs user code: no transaction may be open.

    Raises InvalidState when that code fails: nobody can say then what would be decided.
    """
    definition = registry.get(run.workflow, run.version)
    step = definition.step(request.step.name)
    assert step.approval is not None
    context = RunContext(replace(claims.view(run, request.step), data=data), definition, step)
    try:
        return question_of(step.approval, context)
    except DurableflowsError:
        raise
    except Exception as error:
        logger.exception("the facts of request %s cannot be computed", request.pk)
        what = f"the facts of this request cannot be computed now ({type(error).__name__})"
        raise InvalidState(f"{what}: nothing was decided") from error


@transact
def _answer(
    run_id: UUID, step_id: UUID, request_id: UUID, given: Answer, seen: _Seen
) -> ApprovalRequest | FactsChanged | None:
    """None: the run is not the one any more that the facts are about."""
    run, step, request = lock_run(run_id), lock_step(step_id), lock_request(request_id)
    now = clock.now()
    if _is_repeat(request, given):
        return request
    _check_open(run, request, now)
    if request.permission != seen.permission:  # escalated between the check of rights and the lock
        raise TooLate(f"this request has just been handed on to people with {request.permission}: open it again")
    if run.checkpoint_sequence != seen.checkpoint or seen.facts is None:
        return None
    changed = _changed(run, step, request, given, seen.facts, now)
    if changed is not None:
        return changed
    _record(run, step, request, given, now)
    _decide_if_complete(run, step, request, given, now)
    cross(Boundary.ANSWER_BEFORE_COMMIT)
    return request


def _is_repeat(request: ApprovalRequest, given: Answer) -> bool:
    mine = request.decisions.filter(actor_id=given.by.pk, voided_at__isnull=True).first()
    return mine is not None and mine.verdict == given.verdict


def _check_open(run: WorkflowRun, request: ApprovalRequest, now: datetime) -> None:
    if request.state != ApprovalState.OPEN:
        raise AlreadyDecided(_how_it_ended(request))
    if now >= request.expires_at:
        raise TooLate(f"this request expired {request.expires_at:%Y-%m-%d %H:%M} (UTC): it can no longer be answered")
    if run.ended_at is not None or run.ending_reason:
        raise TooLate(f"the run is {run.word}: there is nothing left to decide")
    if now >= run.deadline_at:
        raise TooLate(f"the run's deadline {run.deadline_at:%Y-%m-%d %H:%M} (UTC) has passed")


def _how_it_ended(request: ApprovalRequest) -> str:
    last = request.decisions.filter(voided_at__isnull=True).order_by("-at").first()
    if last is not None and request.state in (ApprovalState.APPROVED, ApprovalState.REJECTED):
        verdict = "approved" if request.state == ApprovalState.APPROVED else "rejected"
        return f"already {verdict} by {last.actor_name} at {last.at:%Y-%m-%d %H:%M} (UTC)"
    when = f" {request.closed_at:%Y-%m-%d %H:%M} (UTC)" if request.closed_at else ""
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


def renew_facts(
    run_locked: WorkflowRun, step: StepRun, request_locked: ApprovalRequest, now_true: Question, now: datetime
) -> bool:
    """Let a request ask about the facts as they are now, if its binding ones are others: votes on the old are void.

    False: they are the same.
    Writes   ApprovalRequest, ApprovalDecision, RunEvent; the caller stores the run
    """
    request, digest = request_locked, sha256(now_true.binding)
    if digest == request.facts_digest:
        return False
    changed: list[JSON] = [*sorted(differences(request.binding, now_true.binding))]
    request.binding, request.context, request.facts_digest = now_true.binding, now_true.context, digest
    request.title = now_true.title[:300]
    request.store("binding", "context", "facts_digest", "title")
    votes = request.decisions.filter(voided_at__isnull=True)
    voided = votes.update(voided_at=now, voided_reason="the facts changed")
    data: dict[str, JSON] = {"request": str(request.pk), "changed": changed, "voided": voided}
    journal.record(run_locked, "approval.facts_changed", at=now, step=step, data=data)
    return True


def differences(shown: Mapping[str, JSON], now: Mapping[str, JSON]) -> dict[str, tuple[object, object]]:
    """Name -> (shown, now) for each fact that differs."""
    names = {*shown, *now}
    return {name: (shown.get(name), now.get(name)) for name in names if not same(shown.get(name), now.get(name))}


def _record(run: WorkflowRun, step: StepRun, request: ApprovalRequest, given: Answer, now: datetime) -> None:
    mine = request.decisions.filter(actor_id=given.by.pk, voided_at__isnull=True)
    mine.update(voided_at=now, voided_reason="the same person answered otherwise")
    name = str(given.by.get_username())
    decision = ApprovalDecision(
        request=request,
        actor=given.by,
        actor_name=name[:150],
        verdict=given.verdict,
        comment=given.comment,
        door=given.door,
        origin=given.origin,
        permission=request.permission,
        facts_digest=given.facts_digest,
        at=now,
    )
    decision.save(using=database(), force_insert=True)
    data: dict[str, JSON] = {"request": str(request.pk), "verdict": given.verdict, "door": given.door}
    journal.record(run, "approval.answered", at=now, step=step, actor_name=name, data=data)


def _decide_if_complete(
    run: WorkflowRun, step: StepRun, request: ApprovalRequest, given: Answer, now: datetime
) -> None:
    """One no ends it; yes needs the quorum."""
    yes = request.decisions.filter(verdict="approve", voided_at__isnull=True).count()
    if given.verdict == "approve" and yes < request.quorum:
        run.store(*journal.FIELDS)
        return
    name = str(given.by.get_username())
    questions.close(run, request, given.verdict, f"{given.verdict} by {name}", now)
    decision = decide.after_answer(_declared(run, step), given.verdict, name)
    progress.apply(run, step, decision, now=now, actor_name=name)


def _declared(run: WorkflowRun, step: StepRun) -> StepDefinition:
    return registry.get(run.workflow, run.version).step(step.name)


def expire(request_id: UUID) -> bool:
    """Escalate or deny a request whose time is over. False: somebody answered first, or holds the run."""
    place = ApprovalRequest.objects.using(database()).filter(pk=request_id).values_list("run_id", "step_id").first()
    return place is not None and _expire(place[0], place[1], request_id)


@transact
def _expire(run_id: UUID, step_id: UUID, request_id: UUID) -> bool:
    run = try_lock_run(run_id)
    if run is None:
        return False
    step, request = lock_step(step_id), lock_request(request_id)
    now = clock.now()
    if request.state != ApprovalState.OPEN or now < request.expires_at or run.ended_at is not None:
        return False
    if now >= run.deadline_at:  # the run's deadline comes before any rung of the ladder
        endings.begin(run, EndingReason.DEADLINE, f"the deadline {run.deadline_at:%Y-%m-%d %H:%M} has passed", now)
        progress.conclude(run, now)
    elif request.ladder_position < len(request.ladder):
        _escalate(run, step, request, now)
    elif step.state == StepState.WAITING_HUMAN:
        if (run.workflow, run.version) not in registry.known():
            return False  # a process that has the code lets it expire
        questions.close(run, request, "expire", "nobody answered in time", now)
        progress.apply(run, step, decide.after_answer(_declared(run, step), "expire", ""), now=now)
    return True


def _escalate(run: WorkflowRun, step: StepRun, request: ApprovalRequest, now: datetime) -> None:
    rung = request.ladder[request.ladder_position]
    request.permission = str(rung["permission"])
    request.expires_at = now + timedelta(seconds=float(rung["expires_seconds"]))
    request.ladder_position += 1
    request.store("permission", "expires_at", "ladder_position")
    data: dict[str, JSON] = {"request": str(request.pk), "asked": request.permission}
    journal.record(run, "approval.escalated", at=now, step=step, data=data)
    run.store(*journal.FIELDS)
