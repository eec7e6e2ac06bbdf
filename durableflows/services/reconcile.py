"""What becomes of steps whose effects are not settled, and the verdicts of people. One function, one verb."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durableflows import alerts, clock, dispatch, journal, ledger_facts, ledger_undo, progress, providers
from durableflows.claims import snapshot
from durableflows.conf import settings
from durableflows.core import decide, free_text, registry
from durableflows.core.definition import EffectDefinition
from durableflows.core.keys import read_id
from durableflows.core.payload import JSON, canonical, storable
from durableflows.core.reconcile import EffectFacts, Move, Next, most_urgent, next_for
from durableflows.core.states import EffectState
from durableflows.errors import InvalidDefinition, InvalidState, NotAllowed, NotFoundError, TooLate
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_effect, lock_effects, lock_run, lock_step, try_lock_run
from durableflows.releases import may_judge
from durableflows.rights import as_stored
from durableflows.selectors import OPERATE, may_operate, runs_for
from durableflows.services import given_back, loud
from durableflows.transactions import database, transact

VERDICT_FIELDS = (
    *("state", "receipt", "in_doubt_since", "settled_at", "confirmed_number", "settles_at"),
    *("lookups_forgiven", "next_lookup_at", "audit_at"),
    *("verdict", "verdict_by", "verdict_reason", "verdict_at"),
)
VERDICTS = ("happened", "did_not_happen", "ask_again", "seen", given_back.VERDICT)


def route(step_id: UUID) -> None:
    """Look at an unsettled step: make it READY, ask the provider, wait, or say that a person is needed.

    Safe to call at any time and by anybody; somebody else's lock makes it do nothing.
    """
    run_id = progress.run_of(step_id)
    if run_id is None:
        return
    for effect_id in _route(run_id, step_id):
        dispatch.send_lookup(effect_id)


@transact
def _route(run_id: UUID, step_id: UUID) -> list[UUID]:
    run = try_lock_run(run_id)
    if run is None or run.ended_at is not None:
        return []
    step = lock_step(step_id)
    now = clock.now()
    if not step.is_unsettled or not may_judge(run, now):
        return []
    rows = _latest_issues(lock_effects(step))
    moves = {row.pk: move_for(run, step, row, now) for row in rows}
    urgent = most_urgent(moves.values()) or Move(Next.SETTLED, now, "nothing is open")
    if urgent.next in (Next.SETTLED, Next.RESEND) and not run.lets(of_cleanup=step.of_cleanup):
        if not progress.end_if_quiet(run, now):  # another branch holds the end up, or a request may be on its way
            later = now + timedelta(seconds=settings().RESEND_SECONDS)
            _note(run, step, decide.Decision(None, reason="the run ends when all is settled", wake_at=later), now)
        return []
    decision = decide.after_look(urgent)
    if decision.verb is not None:
        progress.apply(run, step, decision, now=now)
        return []
    due = [pk for pk, move in moves.items() if move.next is Next.LOOK_UP and move.at <= now]
    if due:
        # The question is a message, and may be lost or wait in a long queue: ask again later, not at every sweep.
        decision = replace(decision, wake_at=now + timedelta(seconds=settings().RESEND_SECONDS))
    # Nothing is asked of who is left alone: a question a step each few seconds would only fill the queue.
    left_alone = {row.provider for row in rows if row.pk in due and providers.is_left_alone(row.provider, now)}
    if left_alone and not decision.needs_person:
        later = now + timedelta(seconds=providers.LOOK_AGAIN_SECONDS)
        decision = replace(decision, wake_at=later)
    _note(run, step, decision, now)
    return [row.pk for row in rows if row.pk in due and row.provider not in left_alone]


def _note(run: WorkflowRun, step: StepRun, decision: decide.Decision, now: datetime) -> None:
    """Write when the step is due again, and, once, that a person is needed."""
    asks = decision.needs_person and not step.needs_person
    step.wake_at, step.waits_for, step.needs_person = decision.wake_at, decision.reason[:300], decision.needs_person
    if decision.needs_person:
        step.wake_at = None
    step.store("wake_at", "waits_for", "needs_person")
    if asks:
        alerts.add(run, step.waits_for, now)
        journal.record(run, "step.needs_person", at=now, step=step, data={"step": step.name, "reason": decision.reason})
        run.store("alert", "alert_at", *journal.FIELDS)


def _latest_issues(rows: list[SideEffect]) -> list[SideEffect]:
    latest: dict[str, SideEffect] = {}
    for row in sorted(rows, key=lambda row: row.issue):
        latest[row.operation] = row
    return list(latest.values())


def move_for(run: WorkflowRun, step: StepRun, row: SideEffect, now: datetime) -> Move:
    """What one effect of a locked step needs next."""
    view = snapshot(run, step, (row,))
    halted = bool(run.parked_reason) or not run.lets(of_cleanup=step.of_cleanup)
    not_before = step.wake_at or now
    has_tries = view.may_send_again(max(now, not_before))
    return next_for(facts_of(run, row), now, is_halted=halted, has_tries=has_tries, not_before=not_before)


def facts_of(run: WorkflowRun, row: SideEffect) -> EffectFacts:
    """The row and its declaration as a value. Where the declaration is not known here, nothing can be asked."""
    effect = declared(run, row)
    return EffectFacts(
        name=row.effect,
        state=EffectState(row.state),
        key_window=effect.key_window if effect else None,
        settle_seconds=effect.settle_seconds if effect else 0.0,
        has_lookup=effect is not None and effect.lookup is not None,
        resend_when_absent=effect is not None and effect.resend_when_absent,
        accepted_within=effect.accepted_within if effect else None,
        first_dispatched_at=row.first_dispatched_at,
        settles_at=row.settles_at,
        lookup_count=row.lookup_count - row.lookups_forgiven,
        next_lookup_at=row.next_lookup_at,
        lookup_must_end_by=row.lookup_must_end_by,
        accepted_at=row.accepted_at,
        person_said_absent=row.verdict == "did_not_happen",
        said_already=ledger_facts.said_already(row),
        has_event=effect is not None and effect.event is not None,
        asked_again=row.verdict_at is not None and not row.verdict and row.lookup_count == row.lookups_forgiven,
    )


def declared(run: WorkflowRun, row: SideEffect) -> EffectDefinition[object] | None:
    """The declaration of an effect's row, where this process has it."""
    try:
        return registry.get(run.workflow, run.version).effects.get(row.effect)
    except InvalidDefinition:
        return None


@transact
def end_audit_if_lost(effect_id: UUID, known: Collection[tuple[str, int]] | None) -> bool:
    """End the audit of an ABSENT effect that nobody can look up any more, and leave it to a person by an alert.

    known   the releases that workers know, or None when nobody can say; a release that is known here is judged here
    """
    run_id = SideEffect.objects.using(database()).filter(pk=effect_id).values_list("run_id", flat=True).first()
    run = try_lock_run(run_id) if run_id else None
    if run is None:
        return False
    row, now = lock_effect(effect_id), clock.now()
    if row.state != EffectState.ABSENT or row.audit_at is None or row.audit_at > now or not _is_lost(run, row, known):
        return False
    row.audit_at = None
    row.store("audit_at")
    text = (
        f"{row.effect} was found absent, and cannot be looked up once more: the code that could is gone. "
        f"Look for {row.key} at {row.provider}"
    )
    alerts.add(run, text, now)
    data: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "text": text}
    journal.record(run, "effect.alert", at=now, step=row.step, data=data)
    run.store("alert", "alert_at", *journal.FIELDS)
    return True


def _is_lost(run: WorkflowRun, row: SideEffect, known: Collection[tuple[str, int]] | None) -> bool:
    try:
        effect = registry.get(run.workflow, run.version).effects.get(row.effect)
    except InvalidDefinition:
        return known is not None and (run.workflow, run.version) not in known
    return effect is None or effect.lookup is None


def resolve_effect(
    effect_id: UUID | str, verdict: str, *, by: Any, reason: str, row_version: int, receipt: JSON
) -> SideEffect:
    """Record a person's verdict on an effect in doubt, bound to the version of the row that was shown.

    Raises           NotAllowed, NotFoundError; TooLate when the row moved on or a send is still open (rule 5);
                     InvalidState for an unknown verdict, a missing reason, or a receipt that the step cannot go on with
    Writes / Locks   SideEffect, RunEvent; locks run, step, effect; then the step is looked at again
    """
    by = as_stored(by)
    if by is not None and not by.has_perm(OPERATE):
        raise NotAllowed(f"{by} may not resolve effects: the permission {OPERATE} is needed")
    if verdict not in VERDICTS:
        raise InvalidState(f"{verdict!r} is not a verdict: say {', '.join(VERDICTS)}")
    why = free_text.kept_reason(reason, "a verdict")
    rows = SideEffect.objects.using(database()).filter(pk=_id_of(effect_id))
    place = rows.values_list("run_id", "step_id", "id").first()
    run = None if place is None else runs_for(by).filter(pk=place[0]).first()
    if place is None or run is None:
        raise NotFoundError(f"there is no effect {effect_id}, or none that you may see")
    if not may_operate(run, by):
        raise NotAllowed(f"{by} may not resolve this effect: it is of another tenant")
    row = _resolve(*place, verdict, _name(by), why, row_version, receipt)
    route(place[1])
    return row


def _id_of(effect_id: UUID | str) -> UUID:
    wanted = read_id(effect_id)
    if wanted is None:
        raise NotFoundError(f"{str(effect_id)[:60]!r} is not an effect's id")
    return wanted


@transact
def _resolve(
    run_id: UUID,
    step_id: UUID,
    effect_id: UUID,
    verdict: str,
    actor_name: str,
    reason: str,
    row_version: int,
    receipt: JSON,
) -> SideEffect:
    run, step, row = lock_run(run_id), lock_step(step_id), lock_effect(effect_id)
    now = clock.now()
    if row.row_version != row_version:
        raise TooLate(f"{row.effect} has changed since it was shown (it is {row.state} now): look at it again")
    if verdict == "seen":
        return _see(run, step, row, actor_name, reason, now)
    if verdict == given_back.VERDICT:
        return given_back.note(run, step, row, actor_name, reason, now)
    may_be_tried_anew = row.state == EffectState.REJECTED and verdict == "did_not_happen"
    if row.state not in (EffectState.UNKNOWN, EffectState.ACCEPTED, EffectState.ABSENT) and not may_be_tried_anew:
        raise TooLate(f"{row.effect} is {row.state}: there is nothing to decide")
    if SideEffect.objects.using(database()).filter(replaces=row).exists():
        raise TooLate(f"{row.effect} was tried anew under another key since: decide about that newest row")
    if verdict == "happened":
        _happened(run, row, receipt, now)
    elif verdict == "did_not_happen":
        _did_not_happen(run, row, now)
    else:
        _ask_again(run, row, now)
    row.verdict, row.verdict_by, row.verdict_reason, row.verdict_at = verdict, actor_name, reason, now
    if verdict == "ask_again":
        row.verdict = ""
    row.store(*VERDICT_FIELDS)
    ledger_undo.follow(run, step, row, now)
    progress.look_again(step, now)
    facts: dict[str, JSON] = {"effect": row.effect, "verdict": verdict, "reason": reason, "state": str(row.state)}
    journal.record(run, "effect.resolved", at=now, step=step, actor_name=actor_name, data=facts)
    loud.after_verdict(run, now)
    run.store("alert", "alert_at", *journal.FIELDS)
    return row


def _see(run: WorkflowRun, step: StepRun, row: SideEffect, actor_name: str, reason: str, now: datetime) -> SideEffect:
    """Note that a person has looked at what contradicts: the row stays what it is, and is quiet from now on."""
    if not row.contradiction:
        raise TooLate(f"{row.effect} ({row.state}) contradicts nothing: there is nothing to look at")
    facts: dict[str, JSON] = {"effect": row.effect, "verdict": "seen", "reason": reason, "state": str(row.state)}
    journal.record(
        run, "effect.resolved", at=now, step=step, actor_name=actor_name, data=facts | {"was": row.contradiction}
    )
    row.contradiction = ""
    row.store("contradiction")
    loud.after_verdict(run, now)
    run.store("alert", "alert_at", *journal.FIELDS)
    return row


def _happened(run: WorkflowRun, row: SideEffect, receipt: JSON, now: datetime) -> None:
    if receipt in (None, "", [], {}):
        raise InvalidState(
            "saying that it happened needs the receipt as the effect would have returned it, or the provider's "
            'reference in its place: receipt={"id": …}, on the command line --receipt'
        )
    given = storable(receipt)
    canonical(given)
    effect = declared(run, row)
    if effect is not None and run.lets(of_cleanup=row.step.of_cleanup):
        effect.load_receipt(given)  # the step goes on with it, and a receipt is never changed afterwards
    row.confirm()
    row.receipt, row.confirmed_number = given, run.event_sequence + 1
    row.settled_at, row.in_doubt_since, row.next_lookup_at = now, None, None


def _did_not_happen(run: WorkflowRun, row: SideEffect, now: datetime) -> None:
    if row.settles_at is not None and now < row.settles_at:
        raise TooLate(f"a request of {row.effect} may still arrive until {row.settles_at:%H:%M:%S}: decide after that")
    effect = declared(run, row)
    if row.state == EffectState.ACCEPTED and not _is_overdue(row, effect, now):
        raise TooLate(f"{row.effect} was accepted by the provider: it cannot be said not to have happened")
    if row.state == EffectState.ACCEPTED:
        row.reject()
        row.settled_at = now
    if row.state == EffectState.UNKNOWN:
        row.find_absent()
    row.in_doubt_since = row.next_lookup_at = row.settles_at = None
    is_audited = row.state == EffectState.ABSENT and (effect is None or effect.lookup is not None)
    if is_audited:  # without a lookup the audit would be due for ever
        row.audit_at = row.audit_at or now + timedelta(seconds=settings().AUDIT_SECONDS)


def _is_overdue(row: SideEffect, effect: EffectDefinition[object] | None, now: datetime) -> bool:
    """Has the provider had all the time that it may take? Until then it alone takes its word back."""
    within = effect.accepted_within if effect else None
    return within is not None and row.accepted_at is not None and now >= row.accepted_at + within


def _ask_again(run: WorkflowRun, row: SideEffect, now: datetime) -> None:
    effect = declared(run, row)
    if effect is None or effect.lookup is None:
        raise InvalidState(f"{row.effect} has no lookup: nobody can be asked; say whether it happened")
    if row.state == EffectState.ABSENT:
        raise TooLate(f"{row.effect} was looked up and not found; say whether it happened, or did not")
    row.lookups_forgiven, row.next_lookup_at = row.lookup_count, now


def _name(by: Any) -> str:
    return "" if by is None else str(by.get_username())
