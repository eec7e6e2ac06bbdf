"""The one funnel: `apply` carries out a Decision on locked rows. Nothing else moves a run, a step or a request.

Called inside the caller's transaction, with run and step locked in that order. Messages leave after the commit.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from durableflows import (
    arrivals,
    dispatch,
    endings,
    integrity,
    journal,
    model_calls,
    questions,
    undoing,
    visits,
    watching,
)
from durableflows.arrivals import Branch
from durableflows.boundaries import Boundary
from durableflows.conf import settings
from durableflows.core import changes, standing
from durableflows.core.budget import idle_at, is_used_up
from durableflows.core.decide import Decision, End, Park, unparked
from durableflows.core.outcomes import ErrorInfo, Held
from durableflows.core.payload import JSON, same, sha256
from durableflows.core.plan import VERB_OF, Flags, run_state
from durableflows.core.states import STEP_ENDED, STEP_OPEN, UNDO_PHASES, EndingReason, RunState, StepState
from durableflows.core.ways import Each, Way
from durableflows.models import StepAttempt, StepRun, WorkflowRun
from durableflows.models.compiled import Question, update
from durableflows.transactions import database

CHECKPOINT_FIELDS = ("data", "checkpoint_sequence", "data_digest", "data_key_id")
RUN_FIELDS = (
    "state",
    "attempts_count",
    "iterations_count",
    "cancel_asked_at",
    "cancel_asked_by",
    "cancel_reason",
    "parked_reason",
    "parked_detail",
    *("ending_reason", "ending_phase", "cleanup_at", "cleanup_until", "cleanup_error"),
    "alert",
    "alert_at",
    "deadline_at",
    "idle_at",
    "result",
    "error_class",
    "error_code",
    "error_text",
    "changed_at",
    "ended_at",
    *journal.FIELDS,
)
STEP_FIELDS = (
    "state",
    "attempts",
    "attempts_forgiven",
    "lost_workers",
    "tries_since",
    "wake_at",
    "sent_at",
    "sends",
    "resend_at",
    "send_error",
    "lease_worker",
    "lease_token",
    "lease_task_id",
    "must_end_by",
    "output",
    "error_class",
    "error_code",
    "error_text",
    "retry_reason",
    "waits_on",
    "waits_for",
    "needs_person",
    *("held_by", "held_for", "held_key", "held_since"),
    "stood",
    "started_at",
    "ended_at",
)


def apply(run: WorkflowRun, step: StepRun, decision: Decision, *, now: datetime, actor_name: str = "") -> None:
    """Carry out a decision: step, attempt, checkpoint, next steps, request, run state, event, message.

    Writes / Locks   all of them in the caller's transaction; run and step are locked by the caller
    Raises           InvalidState for a checkpoint that is too large; TransitionNotAllowed for an illegal move
    Crash            before the commit nothing of it; after it the READY rows are sent by the sweep
    """
    decision = unparked(decision) if step.is_undo else decision
    attempt = _close_attempt(run, step, decision, now)
    if decision.held is not None:
        run.attempts_count -= 1  # it waits for a provider: that is not charged (P7)
    if decision.verb is not None:
        _move_step(step, decision, now)
    step.needs_person = decision.needs_person
    step.store(*STEP_FIELDS)
    checkpoint: tuple[str, ...] = ()
    before = run.data
    if decision.data is not None and not same(decision.data, before):
        integrity.seal(run, decision.data, run.checkpoint_sequence + 1)
        checkpoint = CHECKPOINT_FIELDS
    facts = _facts(step, decision, attempt)
    if checkpoint:  # the history says what the state was after each step (P13), and the row only what it is
        facts["checkpoint_sha256"] = sha256(run.data)
        facts["changes"] = changes.kept(changes.between(before, run.data))
    journal.record(run, f"step.{decision.past}", at=now, step=step, actor_name=actor_name, data=facts)
    _go_on(run, step, decision, now)
    if decision.question is not None and not run.ending_reason:
        questions.ask(run, step, decision.question, now)
    if decision.park is not None:
        park(run, decision.park, now)
    if decision.end is not None:
        _end(run, step, decision.end, now)
    if step.state in STEP_ENDED and run.lets(of_cleanup=step.of_cleanup):
        arrivals.after_end(run, step, now)
    conclude(run, now, checkpoint)
    if step.state == StepState.READY and not run.parked_reason and run.lets(of_cleanup=step.of_cleanup):
        _send_when_due(run, step, now)


def arrive(
    run: WorkflowRun,
    name: str,
    now: datetime,
    boundary: Boundary = Boundary.SETTLE_BEFORE_SEND,
    branch: Branch = arrivals.MAIN,
) -> None:
    """Make the next visit of a step READY, and send it after the commit; at a join, wait for the other branches.

    When the iteration budget is used up the run begins to end: nothing of the visit is done, and who gives more
    iterations lets the run go on there.
    """
    if not arrivals.is_waiting_join(run, name):
        _charge_visit(run, name, branch.item_key, branch.came_from, now)
    arrivals.arrive(run, name, branch, now, boundary)


def _charge_visit(run: WorkflowRun, name: str, item_key: str, came_from: StepRun | None, now: datetime) -> None:
    """Charge the iteration budget for a step that the run comes to once more; a redrive's visits are charged.

    A clean-up's are not: it is bounded by its time, and must work in a run that has used everything up.
    """
    if run.is_cleaning_up:
        return
    before = visits.past(run, name, item_key)
    if not before.visits or (before.rewound and visits.rewound(run, name, item_key, came_from) is not None):
        return
    if is_used_up(run.budget, "iterations", run.iterations_count):
        text = f"the budget of {run.budget['iterations']} iterations is used up"
        endings.begin(run, EndingReason.BUDGET, text, now)
    run.iterations_count += 1


def _go_on(run: WorkflowRun, step: StepRun, decision: Decision, now: datetime) -> None:
    branch = arrivals.branch_of(step)
    following = replace(branch, input={**branch.input, **decision.brings})
    for name in decision.next_steps:
        arrive(run, name, now, branch=following)
    for way in decision.ways:
        _charge_visit(run, *_first_of(way, branch), step, now)
        arrivals.take_way(run, way, branch, now)


def _first_of(way: Way, branch: Branch) -> tuple[str, str]:
    """The step that a way leads to, with its item; of many items the first stands for all: one round is one visit."""
    if isinstance(way, Each):
        return way.step, way.items[0][0] if way.items else ""
    return way.then, branch.item_key


def park(run: WorkflowRun, why: Park, now: datetime) -> None:
    """Stop the run until somebody makes it go on; an undo or a clean-up ends there. In memory; `conclude` stores it."""
    if run.is_undoing:
        undoing.give_up(run, why.detail, now)
        return
    if run.is_cleaning_up:
        endings.fail_cleanup(run, why.detail, now)
        return
    run.parked_reason, run.parked_detail = str(why.reason), why.detail
    journal.record(run, "run.parked", at=now, data={"reason": str(why.reason), "detail": why.detail})


def conclude(run: WorkflowRun, now: datetime, checkpoint: tuple[str, ...] = ()) -> None:
    """Bring the run's state in line with its steps and flags, end it when it is due, and store it.

    checkpoint   its fields when it is a new one. Else it is left alone: what was tampered with may be no JSON, and the
                 run must be parked or cancelled all the same
    """
    if run.ended_at is None and run.ending_reason:
        endings.move_on(run, now)
    is_held = run.ended_at is None and _follow_steps(run)
    run.changed_at = now
    may_idle = run.state not in (RunState.PENDING, RunState.RUNNING) or is_held
    run.idle_at = None if may_idle else idle_at(run.budget, now)
    run.store(*RUN_FIELDS, *checkpoint)


def conclude_claim(run: WorkflowRun, now: datetime) -> None:
    """Store the run after a claim: READY or RUNNING is the same to it, except for its very first step."""
    if run.state == RunState.PENDING:
        run.move("begin")
    run.changed_at, run.idle_at = now, idle_at(run.budget, now) if run.state == RunState.RUNNING else None
    run.store("state", "attempts_count", "changed_at", "idle_at", *journal.FIELDS)


def end_if_quiet(run: WorkflowRun, now: datetime) -> bool:
    """Bring a run that is ending and has become quiet on. False: it is not, and its row is left as it was."""
    if not endings.move_on(run, now):
        return False
    run.changed_at, run.idle_at = now, None
    run.store(*RUN_FIELDS)
    return True


def _where_steps_stand(alias: str, run_id: UUID) -> QuerySet[StepRun, Any]:
    rows = StepRun.objects.using(alias).filter(run=run_id, state__in=[str(state) for state in STEP_OPEN])
    return rows.order_by().values_list("state", "held_by").distinct()


_WHERE_STEPS_STAND = Question(_where_steps_stand)


def _follow_steps(run: WorkflowRun) -> bool:
    """Move the run to where its steps stand. Returns whether one of them waits for a provider."""
    steps = _WHERE_STEPS_STAND.answers(database(), run.pk)
    is_held = any(provider for _, provider in steps)
    was_claimed, is_undoing = is_held or run.attempts_count > 0, run.ending_phase in UNDO_PHASES
    flags = Flags(run.parked_reason, run.ending_reason, was_claimed=was_claimed, is_undoing=is_undoing)
    target = run_state([StepState(state) for state, _ in steps], flags)
    if target is None:
        raise AssertionError(f"run {run.pk} has no open step and no end: a decision forgot one of them")
    if run.state != target:
        run.move(VERB_OF[target])
    return is_held


def _end(run: WorkflowRun, step: StepRun, end: End, now: datetime) -> None:
    if step.is_undo:
        undoing.after_end(run, step, end.error.text if end.error is not None else "", now)
        return
    if step.of_cleanup:  # it can fail its clean-up; how the run ends is known
        if end.error is not None:
            _keep_end(step, end)
            endings.fail_cleanup(run, f"{step.name}: {end.error.text}", now)
        return
    if run.ending_reason or end.reason == EndingReason.FAILURE:
        _keep_end(step, end)
    if run.ending_reason and end.reason != EndingReason.COMPENSATE:
        return  # it was cancelled or ran out of time while the step was under way: no success overtakes that (P6)
    carry_end(run, step, end, now)


def _keep_end(step: StepRun, end: End) -> None:
    """Keep how the step wanted to end the run: whoever lets the run go on must not lose a result, or a failure."""
    if step.stood is None:
        step.stood = standing.ending(end)
        step.store("stood")


def carry_end(run: WorkflowRun, step: StepRun, end: End, now: datetime) -> None:
    """End the run as a step of it has decided, or let it go on until its other branches have ended too."""
    if end.result is not None and step.gather_id is None:  # an item's result is for the join that gathers it
        run.result = end.result
    if end.error is not None:
        _put_error(run, end.error)
    if end.reason is not None:
        endings.begin(run, end.reason, end.error.text if end.error else "", now)
    elif not _has_other_open_steps(run, step):  # a run succeeds with the last of its branches (P15)
        endings.finish(run, end.verb, now)


def _has_other_open_steps(run: WorkflowRun, step: StepRun) -> bool:
    others = StepRun.objects.using(database()).filter(run=run).exclude(pk=step.pk)
    return others.filter(state__in=[str(state) for state in STEP_OPEN]).exists()


def _move_step(step: StepRun, decision: Decision, now: datetime) -> None:
    assert decision.verb is not None
    if decision.verb == "cancel" and decision.end is not None and not step.of_cleanup:
        step.stood = endings.place(step)  # a limit stopped it: who gives more lets it go on
    step.move(decision.verb)
    _drop_lease(step)
    step.attempts_forgiven += 1 if decision.forgives else 0
    step.lost_workers += 1 if decision.lost_worker else 0
    step.wake_at = decision.wake_at
    if step.wake_at is None and decision.verb in ("reconcile", "wait"):
        step.wake_at = now  # without a time no sweep would ever look at it (P10)
    step.retry_reason = decision.reason[:300] if decision.verb in ("schedule_retry", "make_ready") else ""
    _hold(step, decision.held, now)
    step.waits_on = ""
    step.waits_for = decision.reason[:300] if decision.verb in ("wait", "wait_human", "reconcile") else ""
    step.output = decision.output if decision.output is not None else step.output
    if decision.error is not None:
        _put_error(step, decision.error)
    if decision.verb in ("succeed", "fail", "cancel"):
        step.ended_at = now
    if decision.verb == "make_ready":
        step.sent_at, step.sends, step.send_error = None, 0, ""
        step.resend_at = max(now, decision.wake_at or now) + timedelta(seconds=settings().PUBLISH_SECONDS)


def _hold(step: StepRun, held: Held | None, now: datetime) -> None:
    """Put a step into the line before a provider, where it was before if it was in it, or take it out."""
    if held is None:
        step.held_by, step.held_for, step.held_key, step.held_since = "", "", "", None
        return
    since = step.held_since if step.held_by == held.provider else None
    step.held_by, step.held_for, step.held_key, step.held_since = held.provider, held.held_for, held.key, since or now


def _drop_lease(step: StepRun) -> None:
    step.lease_worker, step.lease_token, step.lease_task_id, step.must_end_by = None, None, "", None


def _put_error(row: WorkflowRun | StepRun, error: ErrorInfo) -> None:
    row.error_class, row.error_code, row.error_text = error.error_class, error.code, error.text


def _send_when_due(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    if step.wake_at is None or step.wake_at <= now:
        dispatch.send_after_commit(run, step)


def _close_attempt(run: WorkflowRun, step: StepRun, decision: Decision, now: datetime) -> int:
    if step.state == StepState.RUNNING and decision.verb is not None:
        model_calls.lose(run, step, now)
        error = decision.error or ErrorInfo("", "", "")
        trace_id, span_id = watching.ids_of(step.lease_token)
        ended = {
            "ended_at": now,
            "outcome": decision.outcome[:40],
            "error_class": error.error_class,
            "error_code": error.code,
            "error_text": error.text or (decision.reason if decision.lost_worker else ""),
            "delay_seconds": decision.delay_seconds,
            "trace_id": trace_id,
            "span_id": span_id,
        }
        update(StepAttempt, database(), ended, {"step": step, "number": step.attempts})
    return step.attempts


def _facts(step: StepRun, decision: Decision, attempt: int) -> dict[str, JSON]:
    facts: dict[str, JSON] = {"step": step.name, "visit": step.visit, "state": str(step.state), **decision.facts}
    if attempt:
        facts["attempt"] = attempt
    if decision.reason:
        facts["reason"] = decision.reason
    if decision.next_steps:
        facts["next"] = list(decision.next_steps)
    if decision.wake_at is not None:
        facts["wake_at"] = decision.wake_at.isoformat()
    if decision.error is not None:
        facts["error"] = decision.error.text
    if decision.output is not None:
        facts["output_sha256"] = sha256(decision.output)
    return facts


def give_new_tries(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Make a waiting step due at once, with its tries counted from here. The caller concludes the run."""
    if step.state == StepState.RETRY_SCHEDULED:
        step.make_ready()
    step.attempts_forgiven, step.lost_workers, step.tries_since = step.attempts, 0, None
    step.wake_at, step.retry_reason = None, ""
    step.sent_at, step.sends, step.send_error = None, 0, ""
    step.resend_at = now + timedelta(seconds=settings().PUBLISH_SECONDS)
    step.store(*STEP_FIELDS)
    dispatch.send_after_commit(run, step)


def look_again(step: StepRun, now: datetime) -> None:
    """Make an unsettled step due: what was not allowed while its run was parked may be allowed now."""
    if step.is_unsettled:
        step.wake_at, step.needs_person = now, False
        step.store("wake_at", "needs_person")


def run_of(step_id: UUID) -> UUID | None:
    """The run a step belongs to, read without a lock."""
    return StepRun.objects.using(database()).filter(pk=step_id).values_list("run_id", flat=True).first()
