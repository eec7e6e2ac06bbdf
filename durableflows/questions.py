"""The requests of a run: made when a step asks, put to others, closed when answered or moot. The run is locked.

Decides nothing: who may answer, and what an answer leads to, is in `services.approvals` and `core.decide`.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from durableflows import journal, signals
from durableflows.announcements import announce, announce_again
from durableflows.core import log_lines, registry, until
from durableflows.core.approval import ApprovalSpec, Rung
from durableflows.core.approvers import GROUP, PERSON
from durableflows.core.money import Money
from durableflows.core.notices import NoticeKind
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, sha256
from durableflows.core.states import ApprovalState
from durableflows.models import Addressee, ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.compiled import delete, insert
from durableflows.rights import editors_of
from durableflows.transactions import after_commit, database

logger = log_lines.logger("durableflows.approvals")

ASKED_FIELDS = (
    *("permission", "groups", "people", "quorum", "ladder", "ladder_position"),
    *("expires_at", "zone", "reminders", "remind_at", "asked_at", "unanswerable_at", "assignee", "assignee_name"),
)
"""What of a request `put_to` changes."""
AMOUNT_FIELDS = ("amount_minor", "currency", "band")


def ask(run: WorkflowRun, step: StepRun, question: Question, now: datetime) -> None:
    """Make the request that the step waits for. It commits with the waiting state, so no answer can come too early.

    Where the rules ask nobody it is made as one that they have approved: as evidence, looked at again on waking.
    """
    spec = registry.get(run.workflow, run.version).step(step.name).approval
    assert spec is not None
    request = _request(run, step, spec, question, now)
    data: dict[str, JSON] = {"request": str(request.pk), "title": request.title, "facts": request.facts_digest}
    if question.unneeded:
        request.move("approve")
        request.quorum, request.expires_at, request.closed_at = 0, now, now
        request.closed_reason = f"nobody needs to be asked, {question.unneeded}"
    else:
        put_to(request, first_rung(spec, question.amount), now)
        request.ladder = ladder(spec, request.quorum)
        data["asked"] = asked_words(request)
    request.unanswerable_at = None if question.can_be_answered else now
    insert(request, database())
    _address(request)
    keep_editors_out(run, [request])
    kind = "approval.not_needed" if question.unneeded else "approval.asked"
    journal.record(run, kind, at=now, step=step, data={**data, "band": request.band} if request.band else data)
    if not question.unneeded:
        announce_again(request, NoticeKind.ASKED, now)
    if not question.can_be_answered:
        mark_unanswerable(run, step, request, now)


def _request(run: WorkflowRun, step: StepRun, spec: ApprovalSpec, question: Question, now: datetime) -> ApprovalRequest:
    request = ApprovalRequest(
        run=run,
        step=step,
        tenant=run.tenant,
        title=question.title[:300],
        binding=question.binding,
        context=question.context,
        facts_digest=sha256(question.binding),
        exclude_requester=spec.exclude_requester,
        exclude_delegate=spec.exclude_delegate,
        requester=run.owner,
        requester_name=run.owner_name,
        fallback=spec.fallback,
        edit_schema=question.form,
        run_version=run.checkpoint_sequence,
        created_at=now,
    )
    set_amount(request, spec, question.amount)
    return request


def set_amount(request: ApprovalRequest, spec: ApprovalSpec, amount: Money | None) -> None:
    """Keep by which amount, and so by which band, it is chosen who is asked."""
    request.amount_minor = None if amount is None else amount.amount_minor
    request.currency = "" if amount is None else amount.currency
    request.band = spec.band_words(amount)[:80]


def first_rung(spec: ApprovalSpec, amount: Money | None) -> Rung:
    """Who is asked at first about this amount."""
    return Rung(spec.asked_anew_of(amount), spec.expires, spec.remind)


def ladder(spec: ApprovalSpec, quorum: int) -> list[JSON]:
    """Who is asked after them, as a request keeps it."""
    return [rung.dump() for rung in spec.rungs(quorum)]


def put_to(request: ApprovalRequest, rung: Rung, now: datetime) -> None:
    """Put a request to these people from now on. In memory: the caller stores ASKED_FIELDS, and calls `address`."""
    by = rung.by
    request.permission, request.quorum = by.permission, by.quorum
    request.groups, request.people = [*by.groups], [*by.people]
    request.asked_at, request.expires_at = now, until.ends_at(rung.expires, now)
    request.zone = until.zone_of(rung.expires)
    moments = until.reminders(rung.remind, asked_at=now, expires_at=request.expires_at)
    request.reminders = [moment.isoformat() for moment in moments]
    request.remind_at = moments[0] if moments else None
    request.unanswerable_at = None
    request.assignee, request.assignee_name = None, ""


def address(request: ApprovalRequest) -> None:
    """Let lists find the request by the groups and people that it is put to."""
    delete(Addressee.objects.using(database()).filter(request=request))
    _address(request)


def _address(request: ApprovalRequest) -> None:
    named = [(GROUP, name) for name in request.groups] + [(PERSON, name) for name in request.people]
    rows = [Addressee(request=request, kind=kind, name=name) for kind, name in named]
    Addressee.objects.using(database()).bulk_create(rows)


def keep_editors_out(run: WorkflowRun, requests: Iterable[ApprovalRequest]) -> None:
    """Let those who have changed the run's state by hand not approve what comes of it, shown to them or not (R27)."""
    editors = list(editors_of(run.pk))
    kept_out: Any = ApprovalRequest.editors.through
    person = ApprovalRequest.editors.field.m2m_reverse_field_name()
    rows = [kept_out(approvalrequest_id=asked.pk, **{f"{person}_id": one.pk}) for asked in requests for one in editors]
    kept_out.objects.using(database()).bulk_create(rows, ignore_conflicts=True)


def mark_unanswerable(run: WorkflowRun, step: StepRun, request: ApprovalRequest, now: datetime) -> None:
    """Say aloud that there is nobody who could answer. In memory: the caller stores `unanswerable_at`, and the run."""
    request.unanswerable_at = now
    data: dict[str, JSON] = {"request": str(request.pk), "title": request.title, "asked": asked_words(request)}
    journal.record(run, "approval.unanswerable", at=now, step=step, data=data)
    announce_again(request, NoticeKind.UNANSWERABLE, now)
    text = f"nobody can answer request {request.pk}: nobody active beside who asked has the right ({data['asked']})"
    after_commit(partial(_alarm, run.pk, text), "the alert about a request that nobody can answer")


def _alarm(run_id: UUID, text: str) -> None:
    logger.error("run %s: %s", run_id, text)
    signals.alert.send_robust(sender=ApprovalRequest, run_id=run_id, text=text)


def asked_words(request: ApprovalRequest) -> str:
    """Say who is asked now, in words for histories: a bare permission as it has always been said."""
    by = request.asked_of
    if by is None:
        return ""
    return by.words() if by.groups or by.people else by.permission


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
    if verb == "expire":
        announce(request, NoticeKind.EXPIRED, now)
    if verb == "expire" and request.fallback:
        data["then"] = request.fallback
    journal.record(run, "approval.closed", at=now, step=request.step, data=data)
