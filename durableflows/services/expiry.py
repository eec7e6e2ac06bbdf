"""When the time to answer is over: others are asked, or the request is rejected or goes to its fallback.

Called by the sweeps. Who may still decide is asked before the lock, of code of the project; then the rows are compared.
Source: P9, P10; design, section 6; R10.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from durableflows import candidates, clock, endings, journal, progress, questions, votes
from durableflows.announcements import announce_again
from durableflows.core import decide, registry
from durableflows.core.approval import Rung
from durableflows.core.notices import NoticeKind
from durableflows.core.payload import JSON
from durableflows.core.states import ApprovalState, EndingReason, StepState
from durableflows.models import ApprovalDecision, ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.locks import lock_request, lock_step, try_lock_run
from durableflows.services.requests import declared
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class _Next:
    """Who is asked next, as it was before the lock. lapsed: answers that do not count with them."""

    rung: Rung
    position: int
    votes: frozenset[UUID]
    lapsed: frozenset[UUID]
    can_be_answered: bool


def expire(request_id: UUID) -> bool:
    """Escalate or deny a request whose time is over. False: somebody answered first, or holds the run."""
    request = ApprovalRequest.objects.using(database()).filter(pk=request_id).first()
    return request is not None and _expire(request.run_id, request.step_id, request_id, _look(request))


def _look(request: ApprovalRequest) -> _Next | None:
    """None: nobody is asked next."""
    if request.state != ApprovalState.OPEN or request.ladder_position >= len(request.ladder):
        return None
    rung = Rung.load(request.ladder[request.ladder_position], request.quorum)
    now, standing = clock.now(), votes.standing(request)
    return _Next(
        rung,
        request.ladder_position,
        frozenset(vote.pk for vote in standing),
        frozenset(votes.lapsed(request, rung.by, standing, now)),
        can_be_answered=candidates.can_be_answered(request, rung.by, now),
    )


@transact
def _expire(run_id: UUID, step_id: UUID, request_id: UUID, following: _Next | None) -> bool:
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
        return _escalate(run, step, request, following, now)
    elif step.state == StepState.WAITING_HUMAN:
        if not _is_known(run):
            return False  # a process that has the code lets it expire
        questions.close(run, request, "expire", "nobody answered in time", now)
        progress.apply(run, step, decide.after_answer(declared(run, step), "expire", ""), now=now)
    return True


def _is_known(run: WorkflowRun) -> bool:
    return (run.workflow, run.version) in registry.known()


def _escalate(
    run: WorkflowRun, step: StepRun, request: ApprovalRequest, following: _Next | None, now: datetime
) -> bool:
    """Put it to the next people. Answers of those who may decide among them too go on counting, and may be enough."""
    standing = votes.standing(request)
    if following is None or not _is_still(following, request, standing):
        return False  # looked at again by the next sweep
    questions.put_to(request, following.rung, now)
    request.ladder_position += 1
    enough = votes.undisputed(request, [vote for vote in standing if vote.pk not in following.lapsed])
    if enough and not _is_known(run):
        return False  # a process that has the code says where it leads
    questions.address(request)
    voided = votes.void(standing, following.lapsed, "who gave it is not among those asked now", now)
    data: dict[str, JSON] = {"request": str(request.pk), "asked": questions.asked_words(request), "voided": voided}
    journal.record(run, "approval.escalated", at=now, step=step, data=data)
    if not enough:
        announce_again(request, NoticeKind.ESCALATED, now)
    if not (enough or following.can_be_answered):
        questions.mark_unanswerable(run, step, request, now)
    request.store(*questions.ASKED_FIELDS)
    run.store(*journal.FIELDS)
    if enough and step.state == StepState.WAITING_HUMAN:
        _approve(run, step, request, enough[-1].actor_name, now)
    return True


def _approve(run: WorkflowRun, step: StepRun, request: ApprovalRequest, name: str, now: datetime) -> None:
    questions.close(run, request, "approve", f"approve by {name}", now)
    progress.apply(run, step, decide.after_answer(declared(run, step), "approve", name), now=now, actor_name=name)


def _is_still(following: _Next, request: ApprovalRequest, standing: list[ApprovalDecision]) -> bool:
    return request.ladder_position == following.position and {vote.pk for vote in standing} == following.votes
