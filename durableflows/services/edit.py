"""Changing fields of a run's state by a person, while the run stands still. One verb, one transaction.

The new state is checked, and requests' facts are computed on it, before the lock: both are code of the project. Under
the lock the run must still be at the checkpoint that was read. Source: P9, P13; design, sections 2 and 4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import clock, integrity, journal, progress, questions
from durableflows.boundaries import Boundary, cross
from durableflows.core import changes, registry, shape
from durableflows.core import state as states
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.outcomes import Question
from durableflows.core.payload import JSON, sha256
from durableflows.core.states import RUN_REOPENABLE, ApprovalState, StepState
from durableflows.core.wording import did_you_mean
from durableflows.errors import ChangedOutside, DurableflowsError, InvalidState, TooLate
from durableflows.models import ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.locks import lock_request, lock_run, lock_step
from durableflows.selectors import run_for
from durableflows.services import requests
from durableflows.services.limits import check_may_reopen
from durableflows.services.operations import Order, check_settled, check_stands_still, order
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class Edit:
    """What a state becomes. `asks`: the new facts of open requests, where the binding ones change."""

    read_at: int
    data: dict[str, JSON]
    changes: dict[str, tuple[JSON, JSON]]
    asks: tuple[tuple[ApprovalRequest, Question], ...]


def edit(
    run_id: UUID | str, *, by: Any, reason: str, changes: Mapping[str, object], checkpoint: int | None
) -> WorkflowRun:
    """Change fields of the state of a run that stands still. It goes on standing still.

    Raises           NotFoundError, NotAllowed; InvalidState for what does not fit the workflow's state, a secret, or a
                     state that was changed from outside; TooLate for a run that goes on or has another end, while
                     something of it is unsettled, and when it is not at the checkpoint that was shown any more
    Writes / Locks   WorkflowRun, ApprovalRequest, ApprovalDecision, RunEvent; locks run, then step and request
    Crash            before the commit nothing of it; after it the next attempt begins with the new state
    """
    given = order(run_id, "edit", by=by, reason=reason)
    edited = _edit(given, work_out(run_for(run_id, by), changes, checkpoint))
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return edited


@transact
def _edit(given: Order, new: Edit) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    _check(run, new.read_at)
    if not new.changes:
        return run
    integrity.seal(run, new.data, run.checkpoint_sequence + 1)
    data: dict[str, JSON] = {"reason": given.reason, "checkpoint": run.checkpoint_sequence}
    data["changes"] = changes.kept(new.changes)
    journal.record(run, "run.edited", at=now, actor_name=given.name, data=data)
    for asked, question in new.asks:
        _ask_anew(run, asked, question, now)
    questions.keep_editors_out(run, _open_requests(run))
    progress.conclude(run, now, progress.CHECKPOINT_FIELDS)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def _ask_anew(run: WorkflowRun, asked: ApprovalRequest, question: Question, now: datetime) -> None:
    step, request = lock_step(asked.step_id), lock_request(asked.pk)
    if request.state == ApprovalState.OPEN:
        requests.renew_facts(run, step, request, question, now)


def _open_requests(run: WorkflowRun) -> QuerySet[ApprovalRequest]:
    rows = ApprovalRequest.objects.using(database()).filter(run=run, state=ApprovalState.OPEN)
    return rows.select_related("step").order_by("id")


def work_out(run: WorkflowRun, wanted: Mapping[str, object], checkpoint: int | None) -> Edit:
    """What the state would become. Runs validators and facts of the project: never under a lock. Raises as `edit`."""
    _check(run, run.checkpoint_sequence if checkpoint is None else checkpoint)
    definition = _definition(run)
    data = _changed(run, definition, wanted)
    integrity.check_fits(run, data)
    found = changes.between(run.data, data)
    return Edit(run.checkpoint_sequence, data, found, tuple(_asks(run, data)) if found else ())


def _check(run: WorkflowRun, read_at: int) -> None:
    if run.ended_at is not None and run.state not in RUN_REOPENABLE:
        raise TooLate(f"the run is {run.word}: that is final")
    check_stands_still(run)
    check_may_reopen(run)
    check_settled(run, "the state is changed")
    if not integrity.is_sealed(run) or not integrity.is_current(run):
        if integrity.has_moved(run):
            raise TooLate("the run was changed while it was looked at: look at it again")
        raise ChangedOutside(
            "the stored state was changed from outside, or its key is gone: an edit would make it ours. "
            "`manage.py durableflows verify` says which of the two it is"
        )
    if run.checkpoint_sequence != read_at:
        raise TooLate(f"the run is at checkpoint {run.checkpoint_sequence}, not {read_at} any more: look at it again")


def _definition(run: WorkflowRun) -> WorkflowDefinition:
    definition = registry.get(run.workflow, run.version)
    if definition.structure != run.manifest.get("structure"):
        raise InvalidState(
            f"this code has another {run.workflow} v{run.version} than the run began with: edit it where that one is "
            "deployed, or migrate it first"
        )
    return definition


def _changed(run: WorkflowRun, definition: WorkflowDefinition, changes: Mapping[str, object]) -> dict[str, JSON]:
    if not changes:
        raise InvalidState('edit: say what changes, {"name": value}')
    for name in changes:
        if name not in run.data:
            known = did_you_mean(str(name), run.data)
            raise InvalidState(f"edit: {definition.state_type.__name__} has no field {name!r}{known}")
    given = {name: shape.plain(value, what=f"edit: {name}") for name, value in changes.items()}
    return states.dump(states.load(definition.state_type, {**run.data, **given}))


def _asks(run: WorkflowRun, data: dict[str, JSON]) -> Iterator[tuple[ApprovalRequest, Question]]:
    for request in _open_requests(run):
        question = requests.facts_on(run, request, data)
        if sha256(question.binding) != request.facts_digest:
            yield request, question


def lapsing(run: WorkflowRun, data: dict[str, JSON]) -> Iterator[ApprovalRequest]:
    """The approvals that would count no more: given for other facts, and what they allow has not been done yet."""
    rows = ApprovalRequest.objects.using(database()).filter(run=run, state=ApprovalState.APPROVED)
    steps = registry.get(run.workflow, run.version).steps
    for request in rows.select_related("step").order_by("id"):
        spec = steps[request.step.name].approval
        if spec is not None and _is_ahead(run, spec.approved, request.step.item_key) and _lapses(run, request, data):
            yield request


def _is_ahead(run: WorkflowRun, name: str, item_key: str) -> bool:
    rows = StepRun.objects.using(database()).filter(run=run, name=name, item_key=item_key)
    last = rows.order_by("-visit").first()
    return last is not None and last.state != StepState.SUCCEEDED


def _lapses(run: WorkflowRun, request: ApprovalRequest, data: dict[str, JSON]) -> bool:
    try:
        return sha256(requests.facts_on(run, request, data).binding) != request.facts_digest
    except DurableflowsError:  # nobody can say now; it is looked at again before anything is sent
        return False
