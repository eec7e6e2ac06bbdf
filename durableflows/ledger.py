"""The intent to act, stored before the act. Writes `SideEffect` and `EffectSend`; only `ledger_answers` does besides.

Values in and values out; each function is one transaction, and no row leaves it. Called by the step's context.
Source: P3, P4, P5; protocol, rules 1, 2 and 9.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from durableflows import journal, ledger_facts, provider_state, providers
from durableflows.core.budget import is_used_up
from durableflows.core.definition import SEND_BY_SECONDS, EffectDefinition
from durableflows.core.effects import EffectCall
from durableflows.core.keys import idempotency_key
from durableflows.core.payload import JSON, sha256
from durableflows.core.reconcile import REPEAT, may_resend
from durableflows.core.states import EffectState, StepState
from durableflows.core.undo import UNDOES
from durableflows.errors import KeyConflict, LeaseLost, LimitReached, RunHalted
from durableflows.leases import Lease
from durableflows.models import EffectSend, SideEffect, StepRun, WorkflowRun
from durableflows.models.compiled import insert
from durableflows.models.locks import lock_effects, lock_run, lock_step
from durableflows.providers import Pass
from durableflows.transactions import database, transact_durably


@dataclass(frozen=True, slots=True)
class Reserved:
    """The intent is stored: the request may leave until `call.send_by`."""

    effect_id: UUID
    send_id: UUID
    call: EffectCall
    arguments: dict[str, JSON]
    request_digest: str


@dataclass(frozen=True, slots=True)
class Stored:
    """It happened before; this is the receipt."""

    receipt: JSON


@dataclass(frozen=True, slots=True)
class Unsettled:
    """It may have happened, or the provider is not done: the step waits."""

    state: EffectState
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider refused it before; a new try is a new decision of a person."""

    reason: str


NOT_UNDER_WAY = (EffectState.ABSENT, EffectState.REJECTED, EffectState.UNDONE)
"""Nothing of such a row is under way: the next send is of another issue."""

Reservation = Reserved | Stored | Unsettled | Rejected


@transact_durably
def reserve(
    lease: Lease,
    effect: EffectDefinition[object],
    operation: str,
    arguments: dict[str, JSON],
    *,
    send_by: float,
    turn_key: str = "",
) -> Reservation:
    """Store the intent to act, or find out that there is nothing to send.

    send_by          monotonic seconds, read before this call (protocol, rule 2)
    turn_key         of effects of one provider that give the same one, one is under way at a time
    Writes / Locks   SideEffect, EffectSend, RunEvent; locks run, step, effect, then the provider
    Raises           LeaseLost, RunHalted, KeyConflict, LimitReached; EffectOpen when the provider takes nothing now;
                     nothing is written then
    Crash            before the commit: nothing left. After it: DISPATCHED, and whoever frees the lease makes it UNKNOWN
    """
    run, step = lock_run(lease.run_id), lock_step(lease.step_id)
    now, breaker = provider_state.look(effect.provider)
    check_lease(step, lease)
    _check_halt(run, step)
    digest = request_digest(effect.name, effect.version, arguments)
    row = _latest(step, operation)
    if row is not None and row.verdict != REPEAT:
        if not (row.state == EffectState.REJECTED and row.verdict):  # it did nothing, and a person lets it be done anew
            check_same(row, digest)
        found = _done_before(row, digest) or _without_sending(row, effect, now)
        if found is not None:
            return found
    if row is None or row.state != EffectState.UNKNOWN:  # nothing of it is under way: this would be a first send
        _check_limits(run, step, now)
    if row is None or row.state in NOT_UNDER_WAY or row.verdict == REPEAT:
        row = planned(run, step, effect, operation, arguments, replaces=row, now=now)
        row.turn_key = turn_key
    passed = providers.admit(step, row, breaker, effect.timeout_seconds, now=now)
    return _dispatch(run, step, row, effect, lease, passed, send_by=send_by)


def check_lease(step_locked: StepRun, lease: Lease) -> None:
    """Raise LeaseLost unless the lease on the row is this one (P2)."""
    if step_locked.state != StepState.RUNNING or step_locked.lease_token != lease.token:
        raise LeaseLost(f"{lease.step}, attempt {lease.attempt}: the lease was taken away; this attempt writes nothing")


def request_digest(name: str, version: int, arguments: dict[str, JSON]) -> str:
    """What makes two requests the same one."""
    return sha256({"effect": name, "version": version, "arguments": arguments})


def check_may_begin(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Raise RunHalted or LimitReached unless something new of this step may be sent now."""
    _check_halt(run, step)
    _check_limits(run, step, now)


def _check_halt(run: WorkflowRun, step: StepRun) -> None:
    if run.parked_reason or not run.lets(of_cleanup=step.of_cleanup):
        raise RunHalted(f"run {run.pk} was stopped: nothing more is sent")
    if not step.of_cleanup and run.is_left():
        raise RunHalted(f"run {run.pk} is not waited for any more: nothing more is sent")


def _check_limits(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Hold time and budget, before a first send only: what is under way is finished. A clean-up has no such budget."""
    if now >= run.ends_by(of_cleanup=step.of_cleanup):
        raise RunHalted(f"run {run.pk} is past its deadline: nothing more is sent")
    if not step.of_cleanup and is_used_up(run.budget, "tool_calls", run.tool_calls_count):
        raise LimitReached(
            f"the budget of {run.budget['tool_calls']} calls is used up ({run.tool_calls_count} were made)",
            limit="tool_calls",
        )


def _latest(step: StepRun, operation: str) -> SideEffect | None:
    issues = [row for row in lock_effects(step) if row.operation == operation]
    return max(issues, key=lambda row: row.issue, default=None)


def check_same(row: SideEffect, digest: str) -> None:
    """Raise KeyConflict unless this is the request that was stored."""
    if row.request_digest != digest:
        raise KeyConflict(
            f"{row.operation} was stored as {row.effect} v{row.effect_version} with other arguments, and is "
            f"{row.state}; nothing was sent. {_cure_of(row)}"
        )


def _cure_of(row: SideEffect) -> str:
    if row.state == EffectState.REJECTED:
        return f"To do it with these: `manage.py durableflows resolve {row.pk} --verdict did_not_happen`, then retry"
    return "Compute arguments from the state, not from things that change, or give the second one operation='...'"


def _done_before(row: SideEffect, digest: str) -> Reservation | None:
    """An earlier issue was taken for not done, and its receipt came after all: what is not yet sent stays unsent."""
    earlier = SideEffect.objects.using(database()).filter(step=row.step_id, operation=row.operation)
    earlier = earlier.exclude(verdict=REPEAT)  # that it happened before is why somebody wanted it again
    done = earlier.filter(issue__lt=row.issue, state=EffectState.CONFIRMED).first()
    if done is None or row.state == EffectState.CONFIRMED:
        return None
    if row.state in (EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED):
        check_same(done, digest)
        return Stored(done.receipt)
    return Unsettled(EffectState(row.state), f"issue {done.issue} of it happened, and this one may have too")


def _without_sending(row: SideEffect, effect: EffectDefinition[object], now: datetime) -> Reservation | None:
    """What a stored row answers without another send; None: it may be sent."""
    if row.state in (EffectState.CONFIRMED, EffectState.REVERSED):
        return Stored(row.receipt)
    if row.state == EffectState.ACCEPTED:
        return Unsettled(EffectState.ACCEPTED, "the provider has accepted it and is not done")
    if row.state == EffectState.UNKNOWN:
        if ledger_facts.said_already(row):
            return Unsettled(
                EffectState.UNKNOWN, "the provider says that it is already done; by whom must be found out"
            )
        if may_resend(row.first_dispatched_at, effect.key_window, effect.settle_seconds, now):
            return None
        return Unsettled(EffectState.UNKNOWN, "it may have happened, and may not be sent again")
    if row.state == EffectState.ABSENT and not (row.verdict or _may_issue_anew(row, effect)):
        return Unsettled(EffectState.ABSENT, "a lookup says that it did not happen; a person decides about a new try")
    if row.state == EffectState.REJECTED and not row.verdict:
        return Rejected(row.reason)  # P3: a body that runs again learns what it learned before
    if row.state in (EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED, EffectState.UNDONE):
        return None  # what is undone is never taken for done: once more is another issue, with a key of its own
    return Unsettled(EffectState(row.state), f"it is {row.state}")


def _may_issue_anew(row: SideEffect, effect: EffectDefinition[object]) -> bool:
    """May what a lookup did not find go out again by itself? Not when the provider says that it is already done."""
    return effect.resend_when_absent and not ledger_facts.said_already(row)


def planned(
    run: WorkflowRun,
    step: StepRun,
    effect: EffectDefinition[object],
    operation: str,
    arguments: dict[str, JSON],
    *,
    replaces: SideEffect | None,
    now: datetime,
) -> SideEffect:
    """The row of a first send, in memory; the caller stores it."""
    issue = 1 if replaces is None else replaces.issue + 1
    return SideEffect(
        run=run,
        step=step,
        step_name=step.name,
        visit=step.visit,
        item_key=step.item_key,
        operation=operation,
        issue=issue,
        key=_key(run, step, operation, issue),
        effect=effect.name,
        effect_version=effect.version,
        provider=effect.provider,
        arguments=arguments,
        request_digest=request_digest(effect.name, effect.version, arguments),
        replaces=replaces,
        undoes_id=_undone_by(step),
        created_at=now,
    )


def _undone_by(step: StepRun) -> UUID | None:
    return UUID(str(step.input[UNDOES])) if step.is_undo else None


def _key(run: WorkflowRun, step: StepRun, operation: str, issue: int) -> str:
    """The key of a first send. A migration may have given the step a name under which another one has acted (P3)."""
    key = idempotency_key(run.pk, step.name, step.visit, step.item_key, operation, issue)
    if "migrated_from" in run.manifest and SideEffect.objects.using(database()).filter(key=key).exists():
        return idempotency_key(run.pk, f"{step.name} {step.pk}", step.visit, step.item_key, operation, issue)
    return key


def _dispatch(
    run: WorkflowRun,
    step: StepRun,
    row: SideEffect,
    effect: EffectDefinition[object],
    lease: Lease,
    passed: Pass,
    *,
    send_by: float,
) -> Reserved:
    now = passed.now
    row.dispatch()
    row.send_count += 1
    row.first_dispatched_at = row.first_dispatched_at or now
    row.dispatched_at = now
    row.settles_at = now + timedelta(seconds=effect.settle_seconds)
    if row._state.adding:
        insert(row, database())
    else:
        row.store("state", "send_count", "first_dispatched_at", "dispatched_at", "settles_at")
    send = EffectSend(
        effect=row,
        number=row.send_count,
        kind="send",
        provider=row.provider,
        is_repeat=passed.is_repeat,
        is_probe=passed.is_probe,
        attempt_id=lease.attempt_id,
        lease_token=lease.token,
        phase="dispatched",
        started_at=now,
        closes_at=row.settles_at,
    )
    insert(send, database())
    run.tool_calls_count += 1
    facts: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "key": row.key, "send": row.send_count}
    journal.record(run, "effect.dispatched", at=now, step=step, data=facts)
    run.store("tool_calls_count", *journal.FIELDS)
    call = call_of(row, lease.step, effect.timeout_seconds, send_by)
    return Reserved(row.pk, send.pk, call, row.arguments, row.request_digest)


def call_of(row: SideEffect, step: str, timeout_seconds: float, send_by: float) -> EffectCall:
    """What the effect's function is called with."""
    return EffectCall(
        key=row.key,
        operation=row.operation,
        effect=row.effect,
        provider=row.provider,
        run_id=str(row.run_id),
        step=step,
        send=row.send_count,
        first_dispatched_at=row.first_dispatched_at,
        timeout_seconds=timeout_seconds,
        send_by=send_by,
    )


def lookup_call(row: SideEffect, timeout_seconds: float, now_monotonic: float) -> EffectCall:
    """The call that a lookup gets: the same key and operation, with time of its own."""
    return call_of(row, row.step_name, timeout_seconds, now_monotonic + SEND_BY_SECONDS)


def rename_steps(run_locked: WorkflowRun, names: Mapping[str, str]) -> None:
    """Follow new names of steps. Keys stay as they are: they were given to the provider."""
    rows = SideEffect.objects.using(database()).filter(run=run_locked)
    for old, new in names.items():
        rows.filter(step_name=old).update(step_name=f"~{new}")
    for new in set(names.values()):
        rows.filter(step_name=f"~{new}").update(step_name=new)
