"""Starting, cancelling and retrying runs. One function, one verb, one transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

from durableflows import clock, endings, integrity, journal, pinned, progress, watching
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import budget, ending, free_text, registry, undo
from durableflows.core import state as states
from durableflows.core.declare import Workflow
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.payload import JSON, check_text, sha256
from durableflows.core.state import WorkflowState
from durableflows.core.states import EndingReason, ParkedReason, StepState
from durableflows.errors import InvalidState, KeyConflict, NotAllowed, TooLate, UnknownWorkflow
from durableflows.models import StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_run, lock_steps
from durableflows.rights import as_stored
from durableflows.selectors import OPERATE, may_operate, run_for
from durableflows.tenants import acts_in
from durableflows.transactions import database, transact

ENGINE_VERSION = 1


def definition_of(workflow: "type[Workflow[Any]] | str", version: int | None) -> WorkflowDefinition:
    """The workflow that is asked for, by class or name. Raises UnknownWorkflow."""
    if isinstance(workflow, str):
        return registry.get(workflow, version)
    if not hasattr(workflow, "definition"):
        raise UnknownWorkflow(f"{workflow!r} is neither a workflow nor the name of one")
    return registry.get(workflow.name, workflow.version if version is None else version)


def start(
    definition: WorkflowDefinition,
    state: Mapping[str, object] | WorkflowState,
    *,
    key: str,
    by: Any,
    tenant: str,
    subject: Model | None,
    labels: Mapping[str, str],
) -> WorkflowRun:
    """Start a run in the caller's transaction, or return the one that this key started already.

    Raises           InvalidState with every problem; KeyConflict for the same key with another request; NotAllowed for
                     a person who does not act in the tenant
    Writes / Locks   WorkflowRun, StepRun, RunEvent; waits for another start of the same key
    Crash            before the caller's commit nothing of it; after it the sweep sends the first step
    """
    data = _state(definition, state)
    # Without the version: a request that comes again after a deploy is the same request (R37).
    digest = sha256({"workflow": definition.name, "state": data})
    _check_texts(key, tenant, labels)
    _check_may_start(by, tenant)
    run = _start(definition, data, digest, key=key, by=by, tenant=tenant, subject=subject, labels=dict(labels))
    if run.request_digest != digest or run.workflow != definition.name:
        raise KeyConflict(
            f"key {key!r} started {run.workflow} run {run.pk} with another request; that run is untouched. "
            "Use another key, or the same request"
        )
    return run


@transact
def _start(
    definition: WorkflowDefinition,
    data: dict[str, JSON],
    digest: str,
    *,
    key: str,
    by: Any,
    tenant: str,
    subject: Model | None,
    labels: dict[str, str],
) -> WorkflowRun:
    now = clock.now()
    run = _new_run(definition, digest, now, key=key, by=by, tenant=tenant, subject=subject, labels=labels)
    integrity.seal(run, data, 0)
    root = watching.root(run)
    if not _insert(run):
        return WorkflowRun.objects.using(database()).get(tenant=tenant, business_key=key)
    watching.keep(root)
    pinned.keep(definition.pins, now)
    facts: dict[str, JSON] = {"workflow": run.workflow, "version": run.version, "key": key, "request": digest}
    journal.record(run, "run.started", at=now, actor_name=run.owner_name, data=facts)
    progress.arrive(run, definition.start, now, Boundary.START_BEFORE_SEND)
    progress.conclude(run, now)
    cross(Boundary.START_BEFORE_COMMIT)
    return run


def _insert(run: WorkflowRun) -> bool:
    """Insert unless the key is taken; waits for a start of the same key that has not committed yet (R37)."""
    WorkflowRun.objects.using(database()).bulk_create([run], ignore_conflicts=True)
    return WorkflowRun.objects.using(database()).filter(pk=run.pk).exists()


def _new_run(
    definition: WorkflowDefinition,
    digest: str,
    now: datetime,
    *,
    key: str,
    by: Any,
    tenant: str,
    subject: Model | None,
    labels: dict[str, str],
) -> WorkflowRun:
    return WorkflowRun(
        workflow=definition.name,
        version=definition.version,
        manifest=manifest_of(definition),
        owner=by,
        owner_name="" if by is None else str(by.get_username())[:150],
        tenant=tenant,
        business_key=key,
        request_digest=digest,
        subject_type=None if subject is None else ContentType.objects.get_for_model(subject),
        subject_id="" if subject is None else str(subject.pk),
        labels=labels,
        schema_version=definition.state_type.schema_version,
        deadline_at=now + definition.deadline,
        budget=budget.pinned(definition.budget),
        created_at=now,
        changed_at=now,
    )


def start_child(
    definition: WorkflowDefinition, data: dict[str, JSON], parent: WorkflowRun, step: StepRun, now: datetime
) -> WorkflowRun:
    """Start the run that a locked parent's step waits for. It belongs to the same person, tenant and subject.

    In the caller's transaction, which holds the parent's lock; the unique `parent_step` keeps it to one.
    """
    digest = sha256({"workflow": definition.name, "state": data})
    run = _new_run(
        definition, digest, now, key="", by=parent.owner, tenant=parent.tenant, subject=None, labels=parent.labels
    )
    run.owner_name, run.subject_type, run.subject_id = parent.owner_name, parent.subject_type, parent.subject_id
    run.parent, run.parent_step = parent, step
    run.deadline_at = min(run.deadline_at, parent.ends_by(of_cleanup=step.of_cleanup))
    integrity.seal(run, data, 0)
    root = watching.root(run, step)
    insert(run, database())
    watching.keep(root)
    pinned.keep(definition.pins, now)
    facts: dict[str, JSON] = {"workflow": run.workflow, "version": run.version, "parent": str(parent.pk)}
    journal.record(run, "run.started", at=now, actor_name=run.owner_name, data={**facts, "request": digest})
    progress.arrive(run, definition.start, now, Boundary.START_BEFORE_SEND)
    progress.conclude(run, now)
    told: dict[str, JSON] = {"step": step.name, "child": str(run.pk), "workflow": run.workflow}
    journal.record(parent, "child.started", at=now, step=step, data=told)
    parent.store(*journal.FIELDS)
    return run


def manifest_of(definition: WorkflowDefinition) -> dict[str, JSON]:
    """What a run pins at its start (P8)."""
    return {
        "workflow": definition.name,
        "version": definition.version,
        "structure": definition.structure,
        "effects": {name: effect.version for name, effect in definition.effects.items()},
        "state_schema": definition.state_type.schema_version,
        "engine": ENGINE_VERSION,
        "code": definition.code,
        **definition.pins.manifest,
        **ending.pinned(definition.on_failure, definition.on_cancel, definition.cleanup_within),
        **undo.pinned(
            definition.steps.values(),
            on_failure=definition.undo_on_failure,
            on_cancel=definition.undo_on_cancel,
            within=definition.undo_within,
        ),
    }


def _state(definition: WorkflowDefinition, state: Mapping[str, object] | WorkflowState) -> dict[str, JSON]:
    """Check the whole state strictly, whoever made it."""
    wanted = definition.state_type
    if isinstance(state, WorkflowState):
        if not isinstance(state, wanted):
            raise InvalidState(f"{definition.name} needs a {wanted.__name__}, not a {type(state).__name__}")
        return states.dump(state)
    return states.dump(states.build(wanted, state))


def _check_texts(key: str, tenant: str, labels: Mapping[str, str]) -> None:
    check_text(key, 200, "key")
    check_text(tenant, 100, "tenant")
    if len(labels) > 20:
        raise InvalidState(f"labels: at most 20, these are {len(labels)}")
    for text in [item for pair in labels.items() for item in pair]:
        check_text(text, 100, "each name and value of labels")


def cancel(run_id: UUID | str, *, by: Any, reason: str) -> WorkflowRun:
    """Ask for the end of a run. It is confirmed as soon as nothing of it is in doubt or on its way (P6).

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has ended; a second cancel
             changes nothing
    Crash    after the commit nothing is claimed, reserved or sent again; the sweep confirms
    """
    why, by = free_text.kept_reason(reason, "cancel"), as_stored(by)
    run = run_for(run_id, by)
    check_may_cancel(run, by)
    cancelled = _cancel(run.pk, "" if by is None else str(by.get_username()), why)
    cross(Boundary.CANCEL_AFTER_COMMIT)
    return cancelled


@transact
def _cancel(run_id: UUID, actor_name: str, reason: str) -> WorkflowRun:
    run = lock_run(run_id)
    now = clock.now()
    check_cancel(run)
    if run.cancel_asked_at is None:
        ask_cancel(run, actor_name, reason, now)
    cross(Boundary.CANCEL_BEFORE_COMMIT)
    return run


def ask_cancel(run_locked: WorkflowRun, actor_name: str, reason: str, now: datetime) -> None:
    """Ask for the end of a locked run that goes on, and whose cancel nobody has asked for."""
    run = run_locked
    run.cancel_asked_at, run.cancel_asked_by, run.cancel_reason = now, actor_name, reason
    journal.record(run, "run.cancel_asked", at=now, actor_name=actor_name, data={"reason": reason})
    endings.begin(run, EndingReason.CANCEL, reason, now, actor_name=actor_name)
    progress.conclude(run, now)


def check_cancel(run: WorkflowRun) -> None:
    """Raise TooLate for a run that has ended."""
    if run.ended_at is not None:
        raise TooLate(f"the run has already finished: {run.word}, {run.ended_at:%Y-%m-%d %H:%M}")


def retry(run_id: UUID | str, *, by: Any, reason: str) -> WorkflowRun:
    """Let a parked run go on, or bring a scheduled retry forward. Attempts so far are forgiven.

    Raises   NotFoundError, NotAllowed, InvalidState without a reason; TooLate when it has ended, is ending, or
             nothing of it waits for a retry
    """
    why, by = free_text.kept_reason(reason, "retry"), as_stored(by)
    run = run_for(run_id, by)
    if not may_operate(run, by):
        raise NotAllowed(f"{by} may not retry this run: the permission {OPERATE} is needed, in its tenant")
    return _retry(run.pk, "" if by is None else str(by.get_username()), why)


@transact
def _retry(run_id: UUID, actor_name: str, reason: str) -> WorkflowRun:
    run = lock_run(run_id)
    now = clock.now()
    check_retry(run)
    waiting = [s for s in lock_steps(run) if s.state in (StepState.READY, StepState.RETRY_SCHEDULED)]
    run.parked_reason, run.parked_detail = "", ""
    journal.record(run, "run.retried", at=now, actor_name=actor_name, data={"reason": reason})
    for step in waiting:
        progress.give_new_tries(run, step, now)
    for step in lock_steps(run):
        progress.look_again(step, now)
    progress.conclude(run, now)
    return run


def check_retry(run: WorkflowRun) -> None:
    """Raise TooLate for a run that is paused, does not go on, or has nothing that waits for a retry."""
    if run.ended_at is not None or run.ending_reason:
        raise TooLate(f"the run is {run.word}: it does not go on")
    if run.parked_reason == ParkedReason.PAUSED:
        raise TooLate(f"the run was paused {run.parked_detail}: resume it")
    scheduled = StepRun.objects.using(database()).filter(run=run, state=StepState.RETRY_SCHEDULED)
    if not run.parked_reason and not scheduled.exists():
        raise TooLate(f"the run is {run.word}: nothing of it waits for a retry")


def check_may_cancel(run: WorkflowRun, by: Any) -> None:
    """Raise NotAllowed for who neither started the run nor may operate it."""
    if by is not None and run.owner_id != by.pk and not may_operate(run, by):
        raise NotAllowed(f"{by} may not cancel this run: only who started it, or with the permission {OPERATE}")


def _check_may_start(by: Any, tenant: str) -> None:
    """Without TENANTS_OF nobody has said who belongs where, and the project's own code chooses the tenant."""
    if by is not None and by.pk is None:
        raise InvalidState(
            "by= is nobody who is logged in: give a user who is stored, or None for the project's own code"
        )
    if by is not None and settings().TENANTS_OF and not acts_in(by, tenant):
        raise NotAllowed(f"{by} does not act in tenant {tenant!r}, and starts nothing there")
