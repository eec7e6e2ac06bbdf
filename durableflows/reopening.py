"""How a run goes on that stood still, was about to end, or has ended. Called by operators' verbs, with the run locked.

Steps that the end closed stand where they stood, at the same visit: their effects' keys stay, so what is confirmed
gives its receipt and is not done again. The caller concludes the run in the same transaction.
"""

from datetime import datetime
from typing import cast

from django.db.models import Q, QuerySet

from durableflows import arrivals, dispatch, journal, progress, questions
from durableflows.core import registry
from durableflows.core.payload import JSON
from durableflows.core.states import STEP_OPEN, ApprovalState, StepState, WaitsOn
from durableflows.models import ApprovalRequest, StepRun, WorkflowRun
from durableflows.models.locks import lock_closed_steps, lock_step, lock_steps
from durableflows.transactions import database


def unpark(run: WorkflowRun) -> None:
    """Nothing holds the run up any more. In memory."""
    run.parked_reason, run.parked_detail = "", ""


def take_back_end(run: WorkflowRun) -> None:
    """The run is neither ended nor ending any more. In memory, with its steps as they are."""
    if run.ended_at is not None:
        run.move("reopen")
    unpark(run)
    run.ending_reason, run.ended_at, run.result = "", None, None
    run.error_class = run.error_code = run.error_text = ""


def go_on(run: WorkflowRun, now: datetime) -> None:
    """Let every open step go on, and every step that the run's end closed stand where it stood."""
    for step in lock_closed_steps(run):
        _stand(run, step, now)
    for step in lock_steps(run):
        if step.state == StepState.WAITING_HUMAN and not _requests(step).exists():
            begin_again(run, step, now)  # the end closed its request: whoever may decide is asked anew
        _go_on(run, step, now)
    if StepRun.objects.using(database()).filter(run=run, waits_on=WaitsOn.BRANCHES).exists():
        arrivals.begin_joins(run, now)


def _go_on(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    if step.state == StepState.READY:
        send_again(step, now)
    elif step.waits_on == WaitsOn.CHILD:
        dispatch.send_crossing_after_commit(step.pk)
    else:
        if step.needs_person and run.alert[:300] == step.waits_for:
            run.alert, run.alert_at = "", None
        progress.look_again(step, now)


def _requests(step: StepRun) -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.using(database()).filter(step=step, state=ApprovalState.OPEN)


def close_requests(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Ask nobody any more at this step: it will be asked anew when the run comes to it again."""
    for request in _requests(step):
        questions.close(run, request, "close", "the run goes on from an earlier step", now)


def send_again(step: StepRun, now: datetime) -> None:
    """Send a READY step as if it had never been sent; one with a time of its own when that has come."""
    arrivals.make_due(step, max(now, step.wake_at or now))
    step.store("sent_at", "sends", "send_error", "resend_at")
    if step.wake_at is None or step.wake_at <= now:
        dispatch.send_after_commit(step)


def _stand(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Let a closed step stand where it stood. One that was under way, due or asking begins its visit again."""
    stood = cast(dict[str, JSON], step.stood)
    waits_on, wake_at = str(stood["waits_on"]), stood["wake_at"]
    if not waits_on:
        begin_again(run, step, now)
        return
    arrivals.stand_again(step, StepState.WAITING)
    step.waits_on, step.waits_for = waits_on, str(stood["waits_for"])
    step.wake_at = None if wake_at is None else datetime.fromisoformat(str(wake_at))
    step.store(*arrivals.AGAIN_FIELDS)
    _tell(run, step, now)


def begin_again(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Make a visit READY once more, ended or open, with all its tries and under its keys. `go_on` sends it."""
    if step.state in STEP_OPEN:
        if step.state != StepState.READY:
            step.make_ready()
        step.attempts_forgiven, step.lost_workers, step.tries_since = step.attempts, 0, None
        step.wake_at, step.waits_on, step.waits_for, step.needs_person = None, "", "", False
    else:
        arrivals.stand_again(step, StepState.READY)
    arrivals.make_due(step, now)
    step.store(*arrivals.AGAIN_FIELDS)
    _tell(run, step, now)


def _tell(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    data: dict[str, JSON] = {"step": step.name, "visit": step.visit, "state": str(step.state)}
    journal.record(run, "step.reopened", at=now, step=step, data=data)


def after(run: WorkflowRun, target: StepRun) -> list[StepRun]:
    """The visits that came after this one along the graph, oldest first: a redrive goes back before them.

    A join counts from when it began, not from when its first branch came. Of other items only what they share counts.
    """
    definition = registry.get(run.workflow, run.version)
    names = definition.reaches[definition.step(target.name).name]
    rows = StepRun.objects.using(database()).filter(run=run, name__in=names, rewound=False).exclude(pk=target.pk)
    rows = rows.filter(Q(created_at__gte=target.created_at) | Q(started_at__gte=target.created_at))
    if target.gather_id is not None:
        # The join has not begun: it waits for this item too, and gathers what the others have come to.
        rows = rows.exclude(Q(gather=target.gather_id) & ~Q(item_key=target.item_key))
        rows = rows.exclude(pk=target.gather_id, started_at__isnull=True)
    return list(rows.order_by("id"))


def rewind(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Go back before a visit: close it if it is open, and let the run's next arrival at the step take it up again."""
    step = lock_step(step.pk)
    if step.state in STEP_OPEN:
        close_requests(run, step, now)
        progress.close_step(run, step, now)
    step.stood, step.rewound = None, True
    step.store("stood", "rewound")


def can_stand(run: WorkflowRun) -> bool:
    """Does the run know where it stood when it ended? Those that ended before that was kept do not."""
    return StepRun.objects.using(database()).filter(run=run, stood__isnull=False).exists()


def is_awaited(run: WorkflowRun) -> bool:
    """Does somebody still wait for the end of this run? A child's end is handed over once, and not taken back."""
    if run.parent_step_id is None:
        return True
    step = StepRun.objects.using(database()).get(pk=run.parent_step_id)
    return step.state == StepState.WAITING and step.waits_on == WaitsOn.CHILD
