"""The two ends of an attempt: `claim` takes the lease, `settle` gives it back. Values in, values out.

Called by the runner and by the sweeps that free leases. Each is one short transaction; the user's code runs between.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from django.contrib.contenttypes.models import ContentType

from durableflows import (
    clock,
    endings,
    groups,
    integrity,
    journal,
    ledger,
    ledger_answers,
    ledger_facts,
    progress,
    providers,
    releases,
    undoing,
    watching,
)
from durableflows.boundaries import Boundary, cross
from durableflows.conf import settings
from durableflows.core import decide, registry
from durableflows.core import state as states
from durableflows.core.budget import is_used_up
from durableflows.core.decide import Decision, Snapshot
from durableflows.core.definition import EffectDefinition, StepDefinition, StepKind, WorkflowDefinition
from durableflows.core.keys import new_token
from durableflows.core.merge import merge
from durableflows.core.outcomes import Done, Outcome
from durableflows.core.payload import JSON, same
from durableflows.core.reconcile import may_resend
from durableflows.core.states import EFFECT_IN_DOUBT, EffectState, EndingReason, ParkedReason, StepState
from durableflows.errors import ChangedOutside, StateConflict, UnknownWorkflow
from durableflows.integrity import Seal
from durableflows.leases import Claim, Lease, boot_id, worker_name
from durableflows.models import SideEffect, StepAttempt, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_run, lock_step
from durableflows.transactions import database, transact, transact_durably

NO_ONE = UUID(int=0)
# Every send is known to have done nothing, so the next one is a first send still, and is rechecked (P9).
NOT_DONE = (EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED)
WAITS_FOR_WORKER = "waiting for a worker that knows"


@transact_durably
def claim(run_id: UUID, step_id: UUID, *, task_id: str, pid: int) -> Claim | None:
    """Take the lease on a READY step for one attempt. None: there is nothing to do, which is never an error.

    Writes / Locks   StepRun, StepAttempt, WorkflowRun, RunEvent; locks run then step
    Crash            before the commit the step is READY as before; after it whoever frees the lease finds it RUNNING
    """
    run, step = lock_run(run_id), lock_step(step_id)
    now = clock.now()
    if step.run_id != run.pk or step.state != StepState.READY or (step.wake_at and step.wake_at > now):
        return None
    effects = _effects_before(step)
    definition = _refused(run, step, effects, now)
    if definition is None or providers.still_held(step, now):
        return None
    had_sends = any(row.send_count and row.state not in NOT_DONE for row in effects)
    claimed = _take(run, step, definition.step(step.name), now, task_id=task_id, pid=pid, had_sends=had_sends)
    cross(Boundary.CLAIM_BEFORE_COMMIT)
    return claimed


def _refused(
    run: WorkflowRun, step: StepRun, effects: Sequence[SideEffect], now: datetime
) -> WorkflowDefinition | None:
    """Give the definition when the claim may go on; otherwise write what stands in its way."""
    if run.ended_at or run.parked_reason:
        return None
    if not run.lets(of_cleanup=step.of_cleanup):
        progress.conclude(run, now)  # sends a step in doubt to reconciliation, or brings the end on
        return None
    if park_if_changed(run, step, now):  # first: what it pinned is sealed too
        return None
    if not step.of_cleanup and run.is_left():
        return None  # whoever started it is cancelled, or has ended: the cancel of this one is on its way
    definition = _definition(run, step, now)
    if definition is None:
        return None
    if _is_over(run, now):
        progress.conclude(run, now)
        return None
    return None if _needs_look(run, step, definition, effects, now) else definition


def park_if_changed(run_locked: WorkflowRun, step_locked: StepRun, now: datetime) -> bool:
    """Park a run whose state, or what the step is given, is not ours: nothing is done on its word (P13)."""
    changed = _changed_from_outside(run_locked, step_locked)
    if changed:
        releases.park(run_locked, ParkedReason.INTEGRITY, changed, now)
    return bool(changed)


def _is_over(run: WorkflowRun, now: datetime) -> bool:
    """Has a limit been reached? Then the run begins to end. Undo and clean-up have their own time and no budget."""
    if run.has_own_time:
        return end_cleanup_if_late(run, now)
    if now >= run.deadline_at:
        endings.begin(run, EndingReason.DEADLINE, f"the deadline {run.deadline_at:%Y-%m-%d %H:%M} has passed", now)
    elif is_used_up(run.budget, "attempts", run.attempts_count):
        text = f"the budget of {run.budget['attempts']} attempts is used up"
        endings.begin(run, EndingReason.BUDGET, text, now)
    return bool(run.ending_reason)


def end_cleanup_if_late(run_locked: WorkflowRun, now: datetime) -> bool:
    """Give an undo or a clean-up up whose time is over. In memory; the caller concludes the run. False: it has time."""
    run = run_locked
    if run.cleanup_until is None or now < run.cleanup_until:
        return False
    text = f"it was not done by {run.cleanup_until:%Y-%m-%d %H:%M}"
    if run.is_undoing:
        undoing.give_up(run, text, now)
    else:
        endings.fail_cleanup(run, text, now)
    return True


def _changed_from_outside(run: WorkflowRun, step: StepRun) -> str:
    """Say what of the rows this project did not write; '' when all of it is ours (P13)."""
    state = integrity.state_seal(run)
    if state is not Seal.HOLDS:
        return integrity.why_not(state, "the stored state", run.data_key_id)
    if not integrity.is_current(run):
        return "the run was put back to an older checkpoint than its history ends with"
    given = integrity.input_seal(step)
    if given is not Seal.HOLDS:
        return integrity.why_not(given, f"what {step.name} is given", integrity.input_key_id(step))
    return ""


def _effects_before(step: StepRun) -> Sequence[SideEffect]:
    """The effects of earlier attempts at this visit; before the first attempt there can be none."""
    return ledger_facts.effects_of(step) if step.attempts else ()


def _needs_look(
    run: WorkflowRun, step: StepRun, definition: WorkflowDefinition, effects: Sequence[SideEffect], now: datetime
) -> bool:
    """Send a step to reconciliation when an effect of it is in doubt and may not be asked again (rule 6)."""
    for row in effects:
        if row.state not in EFFECT_IN_DOUBT:
            continue
        effect = definition.effects.get(row.effect)
        if effect is None or not _may_ask_again(row, effect, now):
            ledger_answers.doubt_dispatched(step, now, "found under way without a worker")
            reason = f"{row.effect} is in doubt and may not be sent again"
            progress.apply(run, step, Decision("reconcile", reason=reason, wake_at=now), now=now)
            return True
    return False


def _may_ask_again(row: SideEffect, effect: EffectDefinition[object], now: datetime) -> bool:
    in_time = may_resend(row.first_dispatched_at, effect.key_window, effect.settle_seconds, now)
    return in_time and not ledger_facts.said_already(row)


def _definition(run: WorkflowRun, step: StepRun, now: datetime) -> WorkflowDefinition | None:
    """The run's pinned release, or None: another worker may know it, or nobody does (P8)."""
    try:
        definition = registry.get(run.workflow, run.version)
    except UnknownWorkflow:
        _leave_for_another(run, step, now)
        return None
    if definition.structure != run.manifest.get("structure") or not definition.has_step(step.name):
        detail = (
            f"{run.workflow} v{run.version} here has other steps, effects or state than the run began with; "
            "deploy the old code beside it, or migrate the run"
        )
        releases.park(run, ParkedReason.INCOMPATIBLE, detail, now)
        return None
    return definition


def _leave_for_another(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    if releases.park_if_unknown(run, step, now):
        return
    step.retry_reason = f"{WAITS_FOR_WORKER} {run.workflow} v{run.version}"
    step.resend_at = now + timedelta(seconds=min(2.0 * 2 ** min(step.sends, 6), 60.0))
    step.store("retry_reason", "resend_at")


def _take(
    run: WorkflowRun,
    step: StepRun,
    declared: StepDefinition,
    now: datetime,
    *,
    task_id: str,
    pid: int,
    had_sends: bool,
) -> Claim:
    step.claim()
    step.attempts += 1
    step.tries_since = step.tries_since or now
    step.started_at = step.started_at or now
    step.lease_worker, step.lease_token, step.lease_task_id = boot_id(), new_token(), task_id
    step.must_end_by = now + timedelta(seconds=declared.timeout_seconds + settings().LEASE_MARGIN_SECONDS)
    step.wake_at = step.resend_at = None
    step.store(*progress.STEP_FIELDS)
    attempt = StepAttempt(
        step=step,
        number=step.attempts,
        worker=boot_id(),
        worker_name=worker_name()[:200],
        pid=pid,
        celery_task_id=task_id,
        started_at=now,
    )
    insert(attempt, database())
    run.attempts_count += 1
    if not run.trace_context and (root := watching.root(run)):  # begun before anybody traced
        run.store("trace_context")
        watching.keep(root)
    facts: dict[str, JSON] = {"step": step.name, "visit": step.visit, "attempt": step.attempts, "worker": worker_name()}
    journal.record(run, "step.claimed", at=now, step=step, data=facts)
    progress.conclude_claim(run, now)
    return _claimed(run, step, attempt, had_sends=had_sends)


def _claimed(run: WorkflowRun, step: StepRun, attempt: StepAttempt, *, had_sends: bool) -> Claim:
    assert step.lease_token is not None
    assert step.must_end_by is not None
    return view(
        run,
        step,
        step.lease_token,
        attempt.pk,
        must_end_by=step.must_end_by,
        had_sends=had_sends,
        at=attempt.started_at,
    )


def view(
    run: WorkflowRun,
    step: StepRun,
    token: UUID = NO_ONE,
    attempt_id: UUID = NO_ONE,
    *,
    must_end_by: datetime | None = None,
    had_sends: bool = False,
    at: datetime | None = None,
) -> Claim:
    """The run as a step's context reads it. Without a token nothing can be reserved or settled with it."""
    ends_by = run.ends_by(of_cleanup=step.of_cleanup)
    lease = Lease(
        run_id=run.pk,
        step_id=step.pk,
        token=token,
        attempt_id=attempt_id,
        attempt=step.attempts,
        workflow=run.workflow,
        version=run.version,
        step=step.name,
        visit=step.visit,
        item_key=step.item_key,
        must_end_by=must_end_by or ends_by,
    )
    return Claim(
        lease=lease,
        data=run.data,
        checkpoint_sequence=run.checkpoint_sequence,
        deadline_at=ends_by,
        owner_name=run.owner_name,
        tenant=run.tenant,
        subject=_subject(run),
        manifest=run.manifest,
        had_sends=had_sends,
        input=step.input,
        is_item=step.gather_id is not None,
        claimed_at=at or step.created_at,
        trace_context=run.trace_context,
    )


def _subject(run: WorkflowRun) -> str:
    if run.subject_type_id is None:
        return ""
    kind = ContentType.objects.db_manager(database()).get_for_id(run.subject_type_id)  # kept by Django's own cache
    return f"{kind.app_label}.{kind.model}:{run.subject_id}"


@transact
def settle(lease: Lease, outcome: Outcome, *, rng: Random, base: dict[str, JSON] | None = None) -> Decision:
    """Apply an attempt's outcome, once, by the holder of the lease.

    base             the state that the body began with; None: nobody else can have changed it
    Writes / Locks   as `progress.apply`; locks run, step, then the step's effects
    Raises           LeaseLost when the lease was taken away, StateConflict when a step that settled meanwhile changed
                     the same fields, ChangedOutside when no step did: nothing is written then (P2, P13)
    Crash            before the commit the attempt is as if it had not settled: its effects keep their receipts
    """
    run, step = lock_run(lease.run_id), lock_step(lease.step_id)
    now = clock.now()
    ledger.check_lease(step, lease)
    if isinstance(outcome, Done) and base is not None:
        outcome = _merged(run, step, outcome, base)
    effects = ledger_answers.doubt_dispatched(step, now, "the attempt ended without an answer")
    decision = decide.after_step(snapshot(run, step, effects), outcome, now, rng)
    progress.apply(run, step, decision, now=now)
    cross(Boundary.SETTLE_BEFORE_COMMIT)
    return decision


def _merged(run: WorkflowRun, step: StepRun, outcome: Done, base: dict[str, JSON]) -> Done:
    """Bring the body's changes into the state as it is now, and check the whole of it again."""
    if same(run.data, base):
        return outcome
    changed = _changed_from_outside(run, step)
    if changed:  # merged and sealed, it would be taken for ours
        raise ChangedOutside(changed)
    definition = registry.get(run.workflow, run.version)
    data, conflicts = merge(base, outcome.data, run.data, definition.merges)
    if conflicts:
        raise StateConflict(conflicts)
    states.load(definition.state_type, data)
    return replace(outcome, data=data)


def free_locked(run: WorkflowRun, step: StepRun, now: datetime, why: str) -> None:
    """Take the lease of a worker that is gone; the caller has looked again under the lock."""
    effects = ledger_answers.doubt_dispatched(step, now, why)
    progress.apply(run, step, decide.after_loss(snapshot(run, step, effects), why), now=now)


def free_overrun_locked(run: WorkflowRun, step: StepRun, now: datetime, *, rng: Random) -> None:
    """Take the lease of a try that its worker has ended at the hard time limit."""
    effects = ledger_answers.doubt_dispatched(step, now, "its process was ended at the hard time limit")
    progress.apply(run, step, decide.after_overrun(snapshot(run, step, effects), now, rng), now=now)


def snapshot(run: WorkflowRun, step: StepRun, effects: Sequence[SideEffect]) -> Snapshot:
    """The step as a value, with whether its effects are open."""
    states = {EffectState(row.state) for row in effects}
    try:
        declared = registry.get(run.workflow, run.version).step(step.name)
    except UnknownWorkflow:
        declared = StepDefinition(name=step.name, kind=StepKind.TASK)
    return Snapshot(
        step=declared,
        attempts=step.attempts - step.attempts_forgiven,
        lost_workers=step.lost_workers,
        tries_since=step.tries_since or step.created_at,
        is_in_doubt=bool(states & EFFECT_IN_DOUBT),
        is_accepted=EffectState.ACCEPTED in states,
        is_tolerated=groups.is_tolerated(step),
    )
