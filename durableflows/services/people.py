"""What people do with an open request beside answering it: hand it to a colleague, ask back, reply, withdraw.

One function, one verb, one transaction, one event. Rights are asked for before the lock, since that runs code of the
project; under the lock the request must still stand at the rung that they were asked about. Source: P9; R22, R25, R27.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import clock, journal
from durableflows.announcements import announce
from durableflows.boundaries import Boundary, cross
from durableflows.core import free_text
from durableflows.core.keys import read_id
from durableflows.core.notices import NoticeKind
from durableflows.core.payload import JSON
from durableflows.errors import InvalidState, NotAllowed, NotFoundError, TooLate
from durableflows.models import ApprovalRequest, RequestNote, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_request, lock_run, lock_step
from durableflows.rights import Standing, as_stored, while_there
from durableflows.selectors import may_operate
from durableflows.services import runs
from durableflows.services.approvals import check_open
from durableflows.services.requests import request_for
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class _Word:
    """What somebody says about a request, with the round of asking for which the right to say it was checked."""

    run_id: UUID
    step_id: UUID
    request_id: UUID
    asked_at: datetime | None
    author: Any
    text: str

    @property
    def name(self) -> str:
        """Whose word it is, as it is kept."""
        return "" if self.author is None else str(self.author.get_username())[:150]


@dataclass(slots=True)
class _Locked:
    """A request under its lock, with its run and step."""

    run: WorkflowRun
    step: StepRun
    request: ApprovalRequest
    now: datetime


def reassign(request_id: UUID | str, to: Any, *, by: Any = None, reason: str) -> ApprovalRequest:
    """Put a request before one of those who may answer it. It gives nobody a right, and takes nobody's.

    `to` is told and reminded, and finds it among the own ones; to oneself it means "I take it". By whoever may answer
    it, or may operate the run, but never by the requester.

    Raises           NotFoundError; NotAllowed for who may not, or when `to` may not answer; TooLate; InvalidState
                     without a reason. To whom it is assigned already: a quiet no-op
    Writes / Locks   ApprovalRequest, RequestNote, RunEvent; locks run, step, request
    """
    why, by = free_text.kept_reason(reason, "reassign"), as_stored(by)
    request = _seen(request_id, by)
    _check_may_assign(request, by)
    if getattr(to, "pk", None) is None:
        raise InvalidState("reassign needs a person to give it to")
    if reason_against := Standing(to).refusal(request):
        raise NotAllowed(f"it cannot be given to {to}: {reason_against}")
    with while_there(by):
        assigned = _assign(_word(request, by, why), to)
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return assigned


def _seen(request_id: UUID | str, by: Any) -> ApprovalRequest:
    if by is not None:
        return _of_person(request_id, by)
    rows = ApprovalRequest.objects.using(database()).select_related("run")
    wanted = read_id(request_id)
    found = None if wanted is None else rows.filter(pk=wanted).first()
    if found is None:
        raise NotFoundError(f"there is no request {str(request_id)[:60]}")
    return found


def _check_may_assign(request: ApprovalRequest, by: Any) -> None:
    if by is None:
        return
    if made := Standing(by).made(request):
        raise NotAllowed(f"{made}: somebody else says who decides")
    against = Standing(by).refusal(request)
    if against and not may_operate(request.run, by):
        raise NotAllowed(against)


@transact
def _assign(word: _Word, to: Any) -> ApprovalRequest:
    at = _lock(word)
    if at.request.assignee_id == to.pk:
        return at.request
    at.request.assignee, at.request.assignee_name = to, str(to.get_username())[:150]
    at.request.store("assignee", "assignee_name")
    note = _note(at, word, RequestNote.ASSIGNED)
    announce(at.request, NoticeKind.ASSIGNED, at.now, number=note.number)
    _tell(at, word, "approval.assigned", {"to": at.request.assignee_name, "reason": word.text})
    return at.request


def ask_requester(request_id: UUID | str, text: str, *, by: Any) -> RequestNote:
    """Ask the requester something before deciding. Its time goes on meanwhile. The same open question again is quiet.

    Raises           NotFoundError; NotAllowed for who may not answer the request; TooLate; InvalidState without
                     words, or when nobody has asked for it
    Writes / Locks   RequestNote, RunEvent; locks run, step, request
    """
    question, by = _words(text, "a question"), as_stored(by)
    request = _of_person(request_id, by)
    if against := Standing(by).refusal(request):
        raise NotAllowed(against)
    if request.requester_id is None:
        raise InvalidState("nobody can be asked: it was asked for by the system, or by somebody who is gone")
    with while_there(by):
        note = _ask(_word(request, by, question))
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return note


@transact
def _ask(word: _Word) -> RequestNote:
    at = _lock(word)
    mine = open_questions(at.request).filter(author_id=word.author.pk, text=word.text).first()
    if mine is not None:
        return mine
    note = _note(at, word, RequestNote.QUESTION)
    announce(at.request, NoticeKind.QUESTION, at.now, number=note.number)
    _tell(at, word, "approval.question", {"text": word.text})
    return note


def open_questions(request: ApprovalRequest) -> QuerySet[RequestNote]:
    """The questions to the requester that have no reply yet, oldest first."""
    rows = RequestNote.objects.using(database()).filter(request=request, kind=RequestNote.QUESTION)
    return rows.filter(replies__isnull=True).order_by("number")


def reply(request_id: UUID | str, text: str, *, by: Any) -> RequestNote:
    """Reply to what was asked last, as the requester. The same reply again is quiet.

    Raises           NotFoundError; NotAllowed for anybody else; TooLate; InvalidState without words or question
    Writes / Locks   RequestNote, RunEvent; locks run, step, request
    """
    words, by = _words(text, "a reply"), as_stored(by)
    request = _of_requester(request_id, by, "reply to what is asked about it")
    with while_there(by):
        note = _reply(_word(request, by, words))
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return note


@transact
def _reply(word: _Word) -> RequestNote:
    at = _lock(word, same_round=False)
    last = RequestNote.objects.using(database()).filter(request=at.request).order_by("-number").first()
    if last is not None and (last.kind, last.author_id, last.text) == (RequestNote.REPLY, word.author.pk, word.text):
        return last
    asked = open_questions(at.request).last()
    if asked is None:
        raise InvalidState("nobody has asked you anything about this that has no reply")
    note = _note(at, word, RequestNote.REPLY, answers=asked)
    announce(at.request, NoticeKind.REPLY, at.now, number=note.number)
    _tell(at, word, "approval.reply", {"text": word.text})
    return note


def withdraw(request_id: UUID | str, *, by: Any, reason: str) -> ApprovalRequest:
    """Take back what one has asked for: its run is cancelled, which closes the request. A second time is quiet.

    Raises           NotFoundError; NotAllowed for anybody but the requester; TooLate when it was decided or has
                     expired; InvalidState without a reason
    Writes / Locks   RequestNote, ApprovalRequest, WorkflowRun, RunEvent; locks run, step, request
    Crash            after the commit nothing more of the run is sent, and a sweep confirms its end
    """
    why, by = free_text.kept_reason(reason, "withdraw"), as_stored(by)
    request = _of_requester(request_id, by, "withdraw it")
    with while_there(by):
        withdrawn = _withdraw(_word(request, by, why))
    cross(Boundary.PEOPLE_AFTER_COMMIT)
    return withdrawn


@transact
def _withdraw(word: _Word) -> ApprovalRequest:
    notes = RequestNote.objects.using(database()).filter(request_id=word.request_id, kind=RequestNote.WITHDRAWN)
    run, step, request = lock_run(word.run_id), lock_step(word.step_id), lock_request(word.request_id)
    if notes.exists():
        return request
    at = _Locked(run, step, request, clock.now())
    check_open(run, request, at.now)
    note = _note(at, word, RequestNote.WITHDRAWN)
    announce(request, NoticeKind.WITHDRAWN, at.now, number=note.number)
    data: dict[str, JSON] = {"request": str(request.pk), "reason": word.text}
    journal.record(run, "approval.withdrawn", at=at.now, step=step, actor_name=word.name, data=data)
    runs.ask_cancel(run, word.name, word.text, at.now)
    cross(Boundary.PEOPLE_BEFORE_COMMIT)
    return lock_request(word.request_id)


def _words(text: str, what: str) -> str:
    kept = free_text.kept(text, what)
    if not free_text.is_seen(text):
        raise InvalidState(f"{what} needs words")
    return kept


def _of_person(request_id: UUID | str, by: Any) -> ApprovalRequest:
    if by is None or not getattr(by, "is_active", False):
        raise NotAllowed("a person does this: say who, by=...")
    return request_for(request_id, by)


def _of_requester(request_id: UUID | str, by: Any, what: str) -> ApprovalRequest:
    request = _of_person(request_id, by)
    if request.requester_id is None or request.requester_id != by.pk:
        raise NotAllowed(f"only {request.requester_name or 'who asked for it'} may {what}")
    return request


def _word(request: ApprovalRequest, by: Any, text: str) -> _Word:
    return _Word(request.run_id, request.step_id, request.pk, request.asked_at, by, text)


def _lock(word: _Word, *, same_round: bool = True) -> _Locked:
    """Lock an open request in time. Raises AlreadyDecided; TooLate, also when it was handed on meanwhile."""
    run, step, request = lock_run(word.run_id), lock_step(word.step_id), lock_request(word.request_id)
    now = clock.now()
    check_open(run, request, now)
    if same_round and request.asked_at != word.asked_at:
        raise TooLate("this request has just been handed on to others: open it again")
    return _Locked(run, step, request, now)


def _note(at: _Locked, word: _Word, kind: str, answers: RequestNote | None = None) -> RequestNote:
    rows = RequestNote.objects.using(database()).filter(request=at.request)
    note = RequestNote(
        request=at.request,
        number=rows.count() + 1,
        kind=kind,
        author=word.author,
        author_name=word.name,
        text=word.text,
        answers=answers,
        at=at.now,
    )
    insert(note, database())
    return note


def _tell(at: _Locked, word: _Word, event: str, data: dict[str, JSON]) -> None:
    facts: dict[str, JSON] = {"request": str(at.request.pk), **data}
    journal.record(at.run, event, at=at.now, step=at.step, actor_name=word.name, data=facts)
    at.run.store(*journal.FIELDS)
    cross(Boundary.PEOPLE_BEFORE_COMMIT)
