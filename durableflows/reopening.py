"""How a run goes on that stood still, was about to end, or has ended. Called by operators' verbs, with the run locked.

Steps that the end closed stand where they stood, at the same visit: their effects' keys stay, so what is confirmed
gives its receipt and is not done again. The caller concludes the run in the same transaction.
"""

from datetime import datetime
from typing import cast
from uuid import UUID

from django.db.models import Q, QuerySet

from durableflows import alerts, arrivals, dispatch, endings, groups, journal, progress, questions, visits
from durableflows.core import registry, standing
from durableflows.core.decide import End
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.ending import cleanup_of
from durableflows.core.payload import JSON
from durableflows.core.plan import Visit, back_to
from durableflows.core.states import STEP_OPEN, ApprovalState, EndingPhase, RunState, StepState, WaitsOn
from durableflows.models import ApprovalRequest, RunEvent, StepRun, WorkflowRun
from durableflows.models.locks import lock_closed_steps, lock_step, lock_steps
from durableflows.transactions import database


def unpark(run: WorkflowRun) -> None:
    """Nothing holds the run up any more. In memory."""
    run.parked_reason, run.parked_detail = "", ""


def take_back_end(run: WorkflowRun) -> None:
    """The run is neither ended nor ending any more. In memory, with its steps and its result as they are."""
    if run.ended_at is not None:
        run.move("reopen")
    unpark(run)
    run.ending_reason, run.ended_at = "", None
    run.ending_phase, run.cleanup_at, run.cleanup_until, run.cleanup_error = EndingPhase.SETTLING, None, None, ""
    run.error_class = run.error_code = run.error_text = ""


def leave_cleanup(run: WorkflowRun) -> None:
    """The run goes on with its main path: its next clean-up makes visits of its own, with keys of their own."""
    left = StepRun.objects.using(database()).filter(run=run, of_cleanup=True)
    left.filter(Q(rewound=True) | Q(stood__isnull=False)).update(rewound=False, stood=None)


def take_up_cleanup(run: WorkflowRun, now: datetime) -> None:
    """The run has not ended, and is in its clean-up again; it ends as it did. In memory, with its steps as they are."""
    cleanup = cleanup_of(run.manifest, run.ending_reason)
    assert cleanup is not None
    run.move("clean_up_again")
    run.ended_at = None
    endings.put_in_cleanup(run, cleanup, now)


def go_on(run: WorkflowRun, now: datetime) -> None:
    """Let every open step go on, and every step that the run's end closed stand where it stood; in a clean-up its own.

    A step that had ended, and wanted to end the run while that was ending already, ends it now.
    """
    closed = [(step, standing.end_of(step.stood or {})) for step in _closed(run)]
    for step in [step for step, end in closed if end is None]:
        _stand(run, step, now)
    _end_now(run, [(step, end) for step, end in closed if end is not None], now)
    for step in lock_steps(run):
        if step.state == StepState.WAITING_HUMAN and not _requests(step).exists():
            begin_again(run, step, now)  # the end closed its request: whoever may decide is asked anew
        _go_on(run, step, now)
    waiting = StepRun.objects.using(database()).filter(run=run, waits_on__in=[WaitsOn.BRANCHES, WaitsOn.TURN])
    if run.lets(of_cleanup=run.is_cleaning_up) and waiting.exists():
        arrivals.begin_turns(run, now)  # the branch that would have passed it on may have ended with the run
        arrivals.begin_joins(run, now)


def _closed(run: WorkflowRun) -> list[StepRun]:
    return lock_closed_steps(run, of_cleanup=run.is_cleaning_up)


def _end_now(run: WorkflowRun, ends: list[tuple[StepRun, End]], now: datetime) -> None:
    """Carry out the ends that were kept. A failure comes first, and keeps the others: no success overtakes it."""
    for step, end in ends:
        if end.reason is not None:
            progress.carry_end(run, step, end, now)
            return
    for step, end in ends:
        step.stood = None
        step.store("stood")
        if run.ended_at is None:
            progress.carry_end(run, step, end, now)
        elif end.result is not None and step.gather_id is None:
            run.result = end.result


def _go_on(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    if step.state == StepState.READY:
        send_again(run, step, now)
    elif step.waits_on == WaitsOn.CHILD:
        dispatch.send_crossing_after_commit(step.pk)
    else:
        if step.needs_person:
            alerts.drop_question(run, step)
        progress.look_again(step, now)


def _requests(step: StepRun) -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.using(database()).filter(step=step, state=ApprovalState.OPEN)


def close_requests(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Ask nobody any more at this step: it will be asked anew when the run comes to it again."""
    for request in _requests(step):
        questions.close(run, request, "close", "the run goes on from an earlier step", now)


def send_again(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Send a READY step as if it had never been sent; one with a time of its own when that has come."""
    arrivals.make_due(step, max(now, step.wake_at or now))
    step.store("sent_at", "sends", "send_error", "resend_at")
    if step.wake_at is None or step.wake_at <= now:
        dispatch.send_after_commit(run, step)


def _stand(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Let a closed step stand where it stood. One that was under way, due or asking begins its visit again."""
    stood = cast(dict[str, JSON], step.stood)
    waits_on, wake_at = str(stood["waits_on"]), stood["wake_at"]
    if step.of_cleanup and waits_on == WaitsOn.CHILD and _is_child_lost(run, step, now):
        return
    if not waits_on:
        begin_again(run, step, now)
        return
    visits.stand_again(step, StepState.WAITING)
    step.waits_on, step.waits_for = waits_on, str(stood["waits_for"])
    step.wake_at = None if wake_at is None else datetime.fromisoformat(str(wake_at))
    step.store(*visits.AGAIN_FIELDS)
    _tell(run, step, now)


def _is_child_lost(run: WorkflowRun, step: StepRun, now: datetime) -> bool:
    """Was the child of a clean-up's step cancelled with it? It would fail the clean-up at once, beside those that can
    be done: it stays closed, and the run's alert leaves it to a person. In memory
    """
    children = WorkflowRun.objects.using(database()).filter(parent_step=step, cancel_asked_at__isnull=False)
    child = children.exclude(state=RunState.SUCCEEDED).first()
    if child is None:
        return False
    text = f"{step} was not done: {child.workflow} run {child.pk} was cancelled with it, and is not started again"
    alerts.add(run, text, now)
    return True


def begin_again(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Make a visit READY once more, ended or open, with all its tries and under its keys. `go_on` sends it.

    An item waits for its turn when as many others are under way as may be.
    """
    if step.state in STEP_OPEN:
        if step.state != StepState.READY:
            step.make_ready()
        step.attempts_forgiven, step.lost_workers, step.tries_since = step.attempts, 0, None
        step.wake_at, step.waits_on, step.waits_for, step.needs_person = None, "", "", False
    else:
        has_turn = groups.has_turn(step)
        visits.stand_again(step, StepState.READY if has_turn else StepState.WAITING)
        step.waits_on, step.waits_for = ("", "") if has_turn else (str(WaitsOn.TURN), arrivals.ITS_TURN)
    arrivals.make_due(step, now)
    step.store(*visits.AGAIN_FIELDS)
    _tell(run, step, now)


def waits_for(step: StepRun) -> str:
    """What a step waits on, or did when the run's end closed it."""
    return str((step.stood or {}).get("waits_on", "")) or step.waits_on


def _tell(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    data: dict[str, JSON] = {"step": step.name, "visit": step.visit, "state": str(step.state)}
    journal.record(run, "step.reopened", at=now, step=step, data=data)


def after(run: WorkflowRun, target: StepRun) -> tuple[list[StepRun], frozenset[UUID]]:
    """The visits that came after this one, oldest first: a redrive goes back before them. Which of them wait again."""
    definition = registry.get(run.workflow, run.version)
    definition.step(target.name)
    rows = list(StepRun.objects.using(database()).filter(run=run, rewound=False).exclude(pk=target.pk).order_by("id"))
    back = back_to(_visit(definition, target), [_visit(definition, row) for row in rows], definition.reaches)
    return [row for row in rows if row.pk in back.visits], back.waiting


def _visit(definition: WorkflowDefinition, row: StepRun) -> Visit:
    return Visit(
        id=row.pk,
        name=row.name,
        is_join=row.name in definition.steps and definition.steps[row.name].join,
        is_waiting=waits_for(row) == WaitsOn.BRANCHES,
        created_at=row.created_at,
        started_at=row.started_at,
        came_from=row.came_from_id,
        joined=[UUID(join) for join in row.joined],
        gather=row.gather_id,
    )


def rewind(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Go back before a visit: close it if it is open, and let the run's next arrival at the step take it up again.

    A join that others have come to waits again at once (`gather_again`): they are not sent back, and come no more.
    """
    step = lock_step(step.pk)
    if step.state in STEP_OPEN:
        close_requests(run, step, now)
        endings.close_step(run, step, now)
    step.stood, step.rewound = None, True
    step.store("stood", "rewound")


def failed(run: WorkflowRun, *, of_cleanup: bool) -> list[StepRun]:
    """The visits that have failed the run, or its clean-up: one did so first, the others while it was ending."""
    rows = StepRun.objects.using(database()).filter(run=run, of_cleanup=of_cleanup, stood__isnull=False).order_by("id")
    ends = [(step, standing.end_of(step.stood or {})) for step in rows]
    return [step for step, end in ends if end is not None and end.reason is not None]


def can_stand(run: WorkflowRun) -> bool:
    """Does the run know where it stood when it ended? Those that ended before that was kept do not."""
    return StepRun.objects.using(database()).filter(run=run, stood__isnull=False).exists()


def _was_child(run: WorkflowRun) -> bool:
    """Has the run that started it been removed? What that one made of this end stays."""
    started = RunEvent.objects.using(database()).filter(run=run, kind="run.started")
    return any("parent" in data for data in started.values_list("data", flat=True))


def is_awaited(run: WorkflowRun) -> bool:
    """Does somebody still wait for the end of this run? A child's end is handed over once, and not taken back."""
    if run.parent_step_id is None:
        return not _was_child(run)
    step = StepRun.objects.using(database()).get(pk=run.parent_step_id)
    return step.state == StepState.WAITING and step.waits_on == WaitsOn.CHILD
