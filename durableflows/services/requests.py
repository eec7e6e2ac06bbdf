"""What a request is about: who may see it, what its facts are now, and what changes when they are others.

Called by the verbs that answer, edit, hand over and remind. `facts_on` runs code of the project: never under a lock.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from durableflows import claims, journal, questions, votes
from durableflows.announcements import announce_again
from durableflows.context import RunContext
from durableflows.core import log_lines, registry
from durableflows.core.definition import StepDefinition
from durableflows.core.keys import read_id
from durableflows.core.notices import NoticeKind
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, same, sha256
from durableflows.core.states import ApprovalState
from durableflows.errors import DurableflowsError, InvalidState, NotFoundError
from durableflows.models import ApprovalRequest, StepRun, WorkflowRun
from durableflows.runner import fit, question_of
from durableflows.selectors import refusal, requests_for
from durableflows.transactions import database

logger = log_lines.logger("durableflows.approvals")


def request_for(request_id: UUID | str, person: Any) -> ApprovalRequest:
    """One request that the person may see. Raises NotFoundError."""
    wanted = read_id(request_id)
    if wanted is None:
        raise NotFoundError(f"{str(request_id)[:60]!r} is not a request's id")
    request = requests_for(person).filter(pk=wanted).first()
    if request is None:
        raise NotFoundError(f"there is no request {wanted}, or none that you may see")
    return request


def may_answer(request_id: UUID | str, person: Any) -> bool:
    """Is the request open, and is the person one of those who are asked? False for one that is not there."""
    wanted = read_id(request_id)
    if person is None or person.pk is None or wanted is None:
        return False
    request = ApprovalRequest.objects.using(database()).filter(pk=wanted, state=ApprovalState.OPEN).first()
    return request is not None and not refusal(request, person)


def declared(run: WorkflowRun, step: StepRun) -> StepDefinition:
    """The step as its workflow declares it. Raises UnknownWorkflow where this process does not have the code."""
    return registry.get(run.workflow, run.version).step(step.name)


def facts_on(run: WorkflowRun, request: ApprovalRequest, data: dict[str, JSON]) -> Question:
    """Compute the request's facts on a state of its run. Runs user code: no transaction may be open.

    Raises InvalidState when that code fails or gives what may not be stored: nobody can say then what would be decided.
    """
    definition = registry.get(run.workflow, run.version)
    step = definition.step(request.step.name)
    assert step.approval is not None
    context = RunContext(replace(claims.view(run, request.step), data=data), definition, step)
    try:
        return fit(question_of(step.approval, context), f"what {step.name} asks")
    except DurableflowsError:
        raise
    except Exception as error:
        logger.exception("the facts of request %s cannot be computed", request.pk)
        what = f"the facts of this request cannot be computed now ({type(error).__name__})"
        raise InvalidState(f"{what}: nothing was decided") from error


def renew_facts(
    run_locked: WorkflowRun, step: StepRun, request_locked: ApprovalRequest, now_true: Question, now: datetime
) -> bool:
    """Let a request ask about the facts as they are now, if its binding ones are others: votes on the old are void.

    Another amount may be for others to decide: then it is put to them, with their own time. False: nothing changed.
    Writes   ApprovalRequest, Addressee, ApprovalDecision, RunEvent; the caller stores the run
    """
    request, digest = request_locked, sha256(now_true.binding)
    if digest == request.facts_digest:
        return False
    changed: list[JSON] = [*sorted(differences(request.binding, now_true.binding))]
    was = _was(request, now_true.binding)
    request.binding, request.context, request.facts_digest = now_true.binding, now_true.context, digest
    request.title, request.edit_schema = now_true.title[:300], now_true.form
    asked_anew = _choose_anew(run_locked, step, request, now_true, now)
    request.store("binding", "context", "facts_digest", "title", "edit_schema", *asked_anew)
    standing = votes.standing(request)
    voided = votes.void(standing, {vote.pk for vote in standing}, "the facts changed", now)
    data: dict[str, JSON] = {"request": str(request.pk), "changed": changed, "voided": voided, "was": was}
    if voided:
        announce_again(request, NoticeKind.CHANGED, now)
    if questions.ASKED_FIELDS[0] in asked_anew:
        announce_again(request, NoticeKind.ASKED, now)
        data["asked"], data["band"] = questions.asked_words(request), request.band
    journal.record(run_locked, "approval.facts_changed", at=now, step=step, data=data)
    return True


def _choose_anew(
    run: WorkflowRun, step: StepRun, request: ApprovalRequest, now_true: Question, now: datetime
) -> tuple[str, ...]:
    """Choose by the amount again who is asked. In memory; gives the names of the fields to store."""
    spec = declared(run, step).approval
    assert spec is not None
    before = request.band
    questions.set_amount(request, spec, now_true.amount)
    if request.band == before:
        return questions.AMOUNT_FIELDS
    questions.put_to(request, questions.first_rung(spec, now_true.amount), now)
    request.ladder, request.ladder_position = questions.ladder(spec, request.quorum), 0
    questions.address(request)
    return (*questions.ASKED_FIELDS, *questions.AMOUNT_FIELDS)


def _was(request: ApprovalRequest, now_true: Mapping[str, JSON]) -> dict[str, JSON]:
    """What the history keeps of facts that change, so that who saw them can say what they were (`services.looks`)."""
    old = request.binding
    facts = {name: value for name, value in old.items() if name not in now_true or not same(value, now_true[name])}
    return {"digest": request.facts_digest, "facts": facts, "came": [name for name in now_true if name not in old]}


def differences(shown: Mapping[str, JSON], now: Mapping[str, JSON]) -> dict[str, tuple[object, object]]:
    """Name -> (shown, now) for each fact that differs."""
    names = {*shown, *now}
    return {name: (shown.get(name), now.get(name)) for name in names if not same(shown.get(name), now.get(name))}
