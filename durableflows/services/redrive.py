"""Letting a failed or parked run, or a clean-up that failed, go on from a step that it has been at.

Visits are kept, and with them the keys: what is confirmed gives its receipt. Doing it once more is an explicit choice,
on record.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from durableflows import arrivals, clock, journal, progress, reopening
from durableflows.boundaries import Boundary, cross
from durableflows.core import registry
from durableflows.core.payload import JSON
from durableflows.core.reconcile import REPEAT
from durableflows.core.states import (
    EFFECT_REPEATABLE,
    RUN_CLEANED_UP,
    ApprovalState,
    EffectState,
    RunState,
    StepState,
    WaitsOn,
)
from durableflows.errors import InvalidState, TooLate
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_effect, lock_run, lock_step
from durableflows.services.limits import check_iterations, check_may_reopen
from durableflows.services.operations import Order, check_settled, check_stands_still, order
from durableflows.transactions import database, transact


@dataclass(frozen=True, slots=True)
class Route:
    """Where a redrive begins, which visits it goes back before, and which effects are done once more.

    waiting   of those the joins that wait again: other branches, which are not sent back, have come to them
    also      visits of other branches that had failed the run too: they get another try with the target
    """

    target: StepRun
    after: list[StepRun]
    waiting: frozenset[UUID]
    also: list[StepRun]
    repeats: list[SideEffect]

    @property
    def steps(self) -> list[StepRun]:
        """Every visit that may be done again."""
        return [self.target, *self.after, *self.also]


def redrive(run_id: UUID | str, *, by: Any, reason: str, step: str, item: str, repeat: Collection[str]) -> WorkflowRun:
    """Let a failed or parked run go on from the last visit of a step, on the state as it is now.

    Raises           NotFoundError, NotAllowed; InvalidState for a step it has not been at, an effect that has not
                     happened there or was approved for once, and for iterations that are used up; TooLate for a run
                     that goes on, has ended otherwise, or has something unsettled
    Writes / Locks   WorkflowRun, StepRun, SideEffect, ApprovalRequest, RunEvent; locks run, steps, effects
    Crash            after the commit the sweep sends the step
    """
    redriven = _redrive(order(run_id, "redrive", by=by, reason=reason), step, item, tuple(repeat))
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return redriven


@transact
def _redrive(given: Order, step: str, item: str, repeat: tuple[str, ...]) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    route = check_redrive(run, step, item, repeat, now)
    data: dict[str, JSON] = {"step": route.target.name, "visit": route.target.visit, "reason": given.reason}
    data["repeat"] = [str(row.key) for row in route.repeats]
    journal.record(run, "run.redriven", at=now, step=route.target, actor_name=given.name, data=data)
    for visit in route.after:
        reopening.rewind(run, visit, now)
    for join in route.waiting:
        arrivals.gather_again(run, lock_step(join), now)
    _choose_repeats(run, route.repeats, given, now)
    run.alert, run.alert_at = ("", None) if not _has_contradiction(run) else (run.alert, run.alert_at)
    _begin(run, route, now)
    progress.conclude(run, now)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def _begin(run: WorkflowRun, route: Route, now: datetime) -> None:
    if route.target.of_cleanup:
        reopening.take_up_cleanup(run, now)  # the main path stays closed
    else:
        reopening.take_back_end(run)
        reopening.leave_cleanup(run)
        if any(_may_have_ended(run, visit) for visit in route.steps):
            run.result = None  # it came from what is done again
        reopening.close_requests(run, route.target, now)
    for visit in [route.target, *route.also]:
        reopening.begin_again(run, lock_step(visit.pk), now)
    reopening.go_on(run, now)


def check_redrive(run: WorkflowRun, step: str, item: str, repeat: Collection[str], now: datetime) -> Route:
    """The route. Raises as `redrive`."""
    target = _last_visit(run, step, item)
    if target is not None and target.of_cleanup:
        _check_cleanup(run)
    else:
        _check_run(run, now)
        check_iterations(run, run.budget)
    # A second walk beside an unknown first one could act twice.
    check_settled(run, "the run goes on from elsewhere")
    if target is None:
        raise InvalidState(_never_been(run, step, item))
    _check_place(target)
    after, waiting = reopening.after(run, target)
    failed = reopening.failed(run, of_cleanup=target.of_cleanup)
    also = [visit for visit in failed if visit not in (target, *after)]
    again = [target, *after, *also]
    _check_children(again)
    repeats = _to_repeat(again, repeat, now)
    _check_decisions(run, again, repeats)
    return Route(target, after, waiting, also, repeats)


def _check_cleanup(run: WorkflowRun) -> None:
    """A clean-up that failed may be done again, also after a cancel: the run ends as it did. What is done is done."""
    if run.ended_at is None or run.state not in RUN_CLEANED_UP:
        raise TooLate(f"the run is {run.word}: its clean-up is done again only when it has ended")
    if not run.cleanup_error:
        raise TooLate("the clean-up of the run is done: there is nothing to do again")


def _check_run(run: WorkflowRun, now: datetime) -> None:
    if run.ended_at is not None and run.state != RunState.FAILED:
        raise TooLate(f"the run is {run.word}: {_NOT_FROM.get(run.state, 'that is final')}")
    check_stands_still(run)
    check_may_reopen(run)
    if now >= run.deadline_at:
        raise TooLate(f"the run's deadline {run.deadline_at:%Y-%m-%d %H:%M} (UTC) has passed: extend it first")


_NOT_FROM = {
    RunState.SUCCEEDED: "what it was started for is done; start a new run for a new request",
    RunState.EXHAUSTED_BUDGET: "extend it, and it goes on where it stood",
    RunState.DEADLINE_EXCEEDED: "extend it, and it goes on where it stood",
}


def _last_visit(run: WorkflowRun, step: str, item: str) -> StepRun | None:
    return _been(run).filter(name=step, item_key=item).order_by("-visit").first()


def _been(run: WorkflowRun) -> QuerySet[StepRun]:
    """Where the run has been. A clean-up may be done again that no worker came to in its time."""
    rows = StepRun.objects.using(database()).filter(run=run, rewound=False)
    return rows.filter(Q(started_at__isnull=False) | Q(of_cleanup=True))


def _never_been(run: WorkflowRun, step: str, item: str) -> str:
    been = dict.fromkeys(_been(run).order_by("id").values_list("name", flat=True))
    for_item = f" for item {item!r}" if item else ""
    return f"the run has not been at {step!r}{for_item}; it has been at {', '.join(been) or 'no step'}"


def _check_place(target: StepRun) -> None:
    """A join or item that waits for others is no place to begin from: the run comes to it by itself, once more."""
    if reopening.waits_for(target) in (WaitsOn.BRANCHES, WaitsOn.TURN):
        raise TooLate(f"{target} waits until others have ended: the run comes to it by itself")


def _check_children(steps: list[StepRun]) -> None:
    """A child is started once for each wait: one that did not succeed would only be handed over again."""
    children = WorkflowRun.objects.using(database()).filter(parent_step__in=[step.pk for step in steps])
    child = children.exclude(state=RunState.SUCCEEDED).first()
    if child is not None:
        raise TooLate(
            f"{child.workflow} run {child.pk}, which it has started, is {child.word}: it is not started again"
        )


def _may_have_ended(run: WorkflowRun, visit: StepRun) -> bool:
    return visit.state == StepState.SUCCEEDED and registry.get(run.workflow, run.version).step(visit.name).end


def _to_repeat(steps: list[StepRun], names: Collection[str], now: datetime) -> list[SideEffect]:
    rows = SideEffect.objects.using(database()).filter(step__in=[step.pk for step in steps], replaced_by__isnull=True)
    rows = rows.select_related("step")
    found = [row for row in rows.order_by("id") if row.state in EFFECT_REPEATABLE]
    chosen = [row for row in found if row.operation in names or row.effect in names]
    for name in names:
        if not any(name in (row.operation, row.effect) for row in chosen):
            done = ", ".join(sorted({row.operation for row in found})) or "nothing"
            raise InvalidState(f"repeat: {name!r} has not happened in the steps that are done again; {done} has")
    for row in chosen:
        if row.settles_at is not None and now < row.settles_at:  # confirmed, and another send of it is still open
            raise TooLate(f"a request of {row} may still arrive until {row.settles_at:%H:%M:%S}: repeat it after that")
    return chosen


def refused(steps: list[StepRun]) -> list[SideEffect]:
    """Effects that a step learns were refused when it is done again: nobody has said that they may be tried anew."""
    rows = SideEffect.objects.using(database()).filter(step__in=[step.pk for step in steps], replaced_by__isnull=True)
    return list(rows.filter(state=EffectState.REJECTED, verdict="").select_related("step").order_by("id"))


def taken_back(run: WorkflowRun) -> list[SideEffect]:
    """Effects that happened and do not stand any more: a step that is done again gets their receipts all the same."""
    rows = SideEffect.objects.using(database()).filter(run=run, state=EffectState.REVERSED, replaced_by__isnull=True)
    return list(rows.exclude(undoes__isnull=False).order_by("id"))


def _check_decisions(run: WorkflowRun, steps: list[StepRun], repeats: list[SideEffect]) -> None:
    """A decision counts once (P9): who may operate runs does not do twice by it what others had to approve."""
    asked_anew = {step.pk for step in steps}
    for row, request in _decisions(run, {row.step_id: row for row in repeats}):
        if request.state != ApprovalState.APPROVED or request.step_id in asked_anew:
            continue
        name, cure = request.step.name, f"redrive from {request.step.name}, and people are asked anew"
        if request.run_id != run.pk:
            cure = f"{name} is of run {request.run_id}, which has started this one, and only that one can ask anew"
        raise InvalidState(f"repeat: {row} was approved at {name}, and a decision counts once: {cure}")


def _decisions(run: WorkflowRun, acts: Mapping[UUID, SideEffect]) -> Iterator[tuple[SideEffect, ApprovalRequest]]:
    """What was decided last before each act, by the visit that acts; else in the run that started this one."""
    if not acts:
        return
    requests = ApprovalRequest.objects.using(database()).filter(run=run).select_related("step")
    decided, led_by = {request.step_id: request for request in requests.order_by("id")}, _led_by(run)
    before: dict[UUID, SideEffect] = {}
    for visit, row in acts.items():
        found = list(behind(visit, led_by, decided))
        yield from ((row, decided[pk]) for pk in found)
        if not found and run.parent_step_id is not None:
            before[run.parent_step_id] = row
    if before and run.parent_id is not None:
        yield from _decisions(WorkflowRun.objects.using(database()).get(pk=run.parent_id), before)


def _led_by(run: WorkflowRun) -> Mapping[UUID, set[UUID]]:
    """Each visit of the run, and those that have led to it: to a join all branches that have come to it."""
    found: dict[UUID, set[UUID]] = defaultdict(set)
    rows = StepRun.objects.using(database()).filter(run=run).values_list("pk", "came_from_id", "joined")
    for pk, came_from, joined in rows:
        if came_from is not None:
            found[pk].add(came_from)
        for join in joined:
            found[UUID(join)].add(pk)
    return found


def behind(visit: UUID, led_by: Mapping[UUID, Collection[UUID]], decided: Collection[UUID]) -> Iterator[UUID]:
    """The last decisions on each way that has led to a visit: what was decided before those was for other things."""
    ahead, seen = [visit], {visit}
    while ahead:
        for pk in led_by.get(ahead.pop(), ()):
            if pk in decided:
                yield pk
            elif pk not in seen:
                ahead.append(pk)
            seen.add(pk)


def _choose_repeats(run: WorkflowRun, chosen: list[SideEffect], given: Order, now: datetime) -> None:
    """Put the choice on the rows: the next attempt makes a new issue that replaces each. An older choice ends here."""
    old = SideEffect.objects.using(database()).filter(run=run, verdict=REPEAT, replaced_by__isnull=True)
    picked = [row.pk for row in chosen]
    for pk in list(old.exclude(pk__in=picked).values_list("pk", flat=True)):
        row = lock_effect(pk)
        row.verdict = ""
        row.store("verdict")
    for pk in picked:
        row = lock_effect(pk)
        row.verdict, row.verdict_by, row.verdict_reason, row.verdict_at = REPEAT, given.name, given.reason, now
        row.store("verdict", "verdict_by", "verdict_reason", "verdict_at")
        data: dict[str, JSON] = {"effect": row.effect, "operation": row.operation, "verdict": REPEAT}
        data["reason"] = given.reason
        journal.record(run, "effect.resolved", at=now, step=row.step, actor_name=given.name, data=data)


def _has_contradiction(run: WorkflowRun) -> bool:
    return SideEffect.objects.using(database()).filter(run=run).exclude(contradiction="").exists()
