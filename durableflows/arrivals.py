"""How a step of a run begins: at once, after a wait, once for each item, or when all branches have come.

The only maker of StepRun rows. Called by `progress` inside the settlement, with the run locked; decides nothing that
`core` can decide, and ends no run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from django.db.models import Case, Count, Q, When

from durableflows import dispatch, groups, integrity, journal, visits
from durableflows.boundaries import Boundary
from durableflows.conf import settings
from durableflows.core import registry
from durableflows.core.payload import JSON, check_size, sha256
from durableflows.core.plan import OpenStep, joins_ready
from durableflows.core.states import STEP_OPEN, StepState, WaitsOn
from durableflows.core.ways import Child, Each, Sleep, WaitFor, Way
from durableflows.errors import UnknownWorkflow
from durableflows.models import Signal, StepRun, WorkflowRun
from durableflows.models.compiled import insert, write
from durableflows.models.locks import lock_step
from durableflows.transactions import database

COMING = "the branches that lead to it"
ITS_TURN = "its turn"
OPEN = [str(state) for state in sorted(STEP_OPEN)]
WAKE_FIELDS = (
    "state",
    "waits_on",
    "waits_for",
    "wake_at",
    "resend_at",
    "sent_at",
    "sends",
    "send_error",
    "input",
    "input_seal",
)


@dataclass(frozen=True, slots=True)
class Branch:
    """What a step hands on to the one after it: the item that its branch is about, if there is one, and its name."""

    item_key: str = ""
    each_step: str = ""
    gather: StepRun | None = None
    came_from: StepRun | None = None
    input: Mapping[str, JSON] = field(default_factory=dict)


MAIN = Branch()


def branch_of(step: StepRun) -> Branch:
    """The branch that a step belongs to. A join belongs to none: it gathers those of all items that lead to it."""
    if step.gather_id is None:
        return Branch(came_from=step)
    return Branch(step.item_key, step.each_step, step.gather, step, {"item": step.input.get("item")})


def arrive(run: WorkflowRun, name: str, branch: Branch, now: datetime, boundary: Boundary) -> StepRun:
    """Make the next visit of a step READY and send it after the commit; at a join, wait for the other branches."""
    if _is_join(run, name):
        return _join(run, name, branch, now)
    return _begin(run, name, branch, now, boundary)


def arrive_to_clean_up(run: WorkflowRun, name: str, now: datetime) -> StepRun:
    """Make the step READY that the run's clean-up begins with. Needs no declaration: no clean-up begins at a join."""
    return _begin(run, name, MAIN, now, Boundary.CLEANUP_BEFORE_SEND)


def _begin(run: WorkflowRun, name: str, branch: Branch, now: datetime, boundary: Boundary) -> StepRun:
    step = _new(run, name, branch, now)
    make_due(step, now)
    _put(step)
    journal.record(run, "step.ready", at=now, step=step, data=_named(step))
    if not run.parked_reason:  # it was paused while the step before was under way: this one stays unsent
        dispatch.send_after_commit(run, step, boundary)
    return step


def take_way(run: WorkflowRun, way: Way, branch: Branch, now: datetime) -> None:
    """Begin to wait as a step has returned it. The run is locked: a signal that comes meanwhile finds the wait."""
    match way:
        case Sleep():
            _wait(run, way.then, branch, now, WaitsOn.TIMER, "a time", wake_at=way.due(now))
        case WaitFor():
            _wait_for(run, way, branch, now)
        case Child():
            _wait_child(run, way, branch, now)
        case Each():
            _open_each(run, way, branch, now)


def is_waiting_join(run: WorkflowRun, name: str) -> bool:
    """Does a join of this name wait already? Who comes to it then makes no new visit."""
    return _is_join(run, name) and _waiting_join(run, name) is not None


def after_end(run: WorkflowRun, step: StepRun, now: datetime) -> None:
    """Let others begin that waited for this step to end: the next item, and joins that nobody comes to any more."""
    if step.gather_id is not None:
        _next_turns(run, step, now)
        if _has_twin(run, step):  # of ten thousand items all but the last need not look at all the others
            return
    begin_joins(run, now)


def _has_twin(run: WorkflowRun, step: StepRun) -> bool:
    """Is another branch of the group at the same step? Wherever this one could have come to, that one still can."""
    rows = StepRun.objects.using(database()).filter(run=run, name=step.name, gather=step.gather_id, state__in=OPEN)
    return rows.exclude(pk=step.pk).exclude(waits_on=WaitsOn.BRANCHES).exists()


def begin_turns(run: WorkflowRun, now: datetime) -> None:
    """Let the next items of every group begin, as many as its limit allows."""
    waiting = StepRun.objects.using(database()).filter(run=run, waits_on=WaitsOn.TURN).order_by("id")
    one_of_each = {(step.gather_id, step.each_step): step for step in waiting.select_related("gather")}
    for step in one_of_each.values():
        _next_turns(run, step, now)


def wake(run: WorkflowRun, step: StepRun, now: datetime, reason: str) -> None:
    """Make a waiting step READY: what it waited for is here. The caller concludes the run."""
    step.make_ready()
    step.waits_on, step.waits_for, step.wake_at = "", "", None
    make_due(step, now)
    step.store(*WAKE_FIELDS)
    facts = {**_named(step), "state": str(step.state), "reason": reason}
    journal.record(run, "step.ready", at=now, step=step, data=facts)
    if not run.parked_reason:
        dispatch.send_after_commit(run, step)


def give_signal(run: WorkflowRun, step: StepRun, signal: Signal, now: datetime) -> None:
    """Hand a stored signal to the step that waits for it, once."""
    signal.used_by = step
    write(signal, database(), "used_by")
    # With the payload's digest: the signal's own row has no seal.
    integrity.give(step, {**_item_of(step), "signal": {"id": str(signal.pk), "sha256": sha256(signal.payload)}})
    wake(run, step, now, f"the signal {signal.name} is here")


def waiting_for_signal(run: WorkflowRun, name: str) -> StepRun | None:
    """The step that has waited longest for a signal of this name."""
    rows = StepRun.objects.using(database()).filter(run=run, state=StepState.WAITING, waits_on=WaitsOn.SIGNAL)
    given = rows.order_by("id").values_list("pk", "input")
    found = next((pk for pk, wait in given if isinstance(wait, dict) and wait.get("wants") == name), None)
    return lock_step(found) if found else None


def _item_of(step: StepRun) -> dict[str, JSON]:
    return {"item": step.input["item"]} if "item" in step.input else {}


def _named(step: StepRun) -> dict[str, JSON]:
    named: dict[str, JSON] = {"step": step.name, "visit": step.visit}
    return {**named, "item": step.item_key} if step.item_key else named


def _is_join(run: WorkflowRun, name: str) -> bool:
    return registry.get(run.workflow, run.version).step(name).join


def _new(
    run: WorkflowRun,
    name: str,
    branch: Branch,
    now: datetime,
    *,
    state: StepState = StepState.READY,
    waits_on: str = "",
    waits_for: str = "",
    wake_at: datetime | None = None,
) -> StepRun:
    """The next visit of a step. One that a redrive went back before comes first: its keys keep it from acting twice."""
    before = visits.past(run, name, branch.item_key)
    step = visits.rewound(run, name, branch.item_key, branch.came_from) if before.rewound else None
    if step is None:
        step = _first(run, name, branch, now, state, visit=before.visits + 1)
    else:
        integrity.check_input(step)
        visits.stand_again(step, state)
    kept = {"each": step.input["each"]} if "each" in step.input else {}  # of the items that a join gathers
    step.each_step, step.gather, step.input = branch.each_step, branch.gather, {**kept, **branch.input}
    step.came_from = branch.came_from
    step.base_sequence = run.checkpoint_sequence
    step.waits_on, step.waits_for, step.wake_at = waits_on, waits_for, wake_at
    return step


def _first(run: WorkflowRun, name: str, branch: Branch, now: datetime, state: StepState, *, visit: int) -> StepRun:
    step = StepRun(run=run, name=name, visit=visit, item_key=branch.item_key, created_at=now, state=state)
    step.of_cleanup = run.is_cleaning_up
    return step


def _put(step: StepRun) -> None:
    integrity.seal_input(step)
    if step._state.adding:
        insert(step, database())
    else:
        step.store(*visits.AGAIN_FIELDS)


def make_due(step: StepRun, now: datetime) -> None:
    """Let a READY step be sent from now on, in memory."""
    step.sent_at, step.sends, step.send_error = None, 0, ""
    step.resend_at = now + timedelta(seconds=settings().PUBLISH_SECONDS)


def _wait(
    run: WorkflowRun,
    name: str,
    branch: Branch,
    now: datetime,
    kind: WaitsOn,
    what: str,
    *,
    wake_at: datetime | None = None,
    more: Mapping[str, JSON] | None = None,
) -> StepRun:
    step = _new(run, name, branch, now, state=StepState.WAITING, waits_on=str(kind), waits_for=what, wake_at=wake_at)
    step.input = {**step.input, **(more or {})}
    what_given = f"what {name} of {run.workflow} run {run.pk} is given"
    check_size(step.input, settings().MAX_STATE_BYTES, what_given)
    integrity.refuse_secrets(step.input, what_given)
    _put(step)
    facts: dict[str, JSON] = {**_named(step), "reason": what, "on": str(kind)}
    if wake_at is not None:
        facts["wake_at"] = wake_at.isoformat()
    journal.record(run, "step.waiting", at=now, step=step, data=facts)
    return step


def _wait_for(run: WorkflowRun, way: WaitFor, branch: Branch, now: datetime) -> None:
    until = None if way.timeout is None else now + way.timeout
    more: dict[str, JSON] = {"wants": way.signal, "on_timeout": way.on_timeout}
    what = f"the signal {way.signal}"
    step = _wait(run, way.then, branch, now, WaitsOn.SIGNAL, what, wake_at=until, more=more)
    # A visit that is done again gets its signal again; one that a redrive went back before has used none.
    mine = Q(used_by__isnull=True) | Q(used_by=step) | Q(used_by__rewound=True)
    kept = Signal.objects.using(database()).filter(mine, run=run, name=way.signal)
    first = Case(When(used_by=step, then=0), When(used_by__isnull=True, then=1), default=2)
    early = kept.order_by(first, "arrived_at", "id").first()
    if early is not None:
        give_signal(run, step, early, now)


def _wait_child(run: WorkflowRun, way: Child, branch: Branch, now: datetime) -> None:
    wanted: dict[str, JSON] = {
        "workflow": str(way.workflow),
        "version": way.version,
        "data": cast(JSON, way.data),
        "on_failure": way.on_failure,
    }
    what = f"the run of {way.workflow} that it has started"
    step = _wait(run, way.then, branch, now, WaitsOn.CHILD, what, more={"child": wanted})
    dispatch.send_crossing_after_commit(step.pk)


def _open_each(run: WorkflowRun, way: Each, branch: Branch, now: datetime) -> None:
    """Make the branches of all items: the first ones READY, the others waiting for their turn."""
    join = _join(run, way.then, branch, now)
    declared = cast(dict[str, JSON], join.input.get("each") or {})
    declared[way.step] = {"limit": way.limit, "tolerates": way.tolerates}
    integrity.give(join, {**join.input, "each": declared})
    join.store("input", "input_seal")
    what = f"the items of {way.step} in run {run.pk}"
    check_size(dict(way.items), settings().MAX_STATE_BYTES * 4, what)
    integrity.refuse_secrets(dict(way.items), what)
    steps = _item_steps(run, way, join, branch, now)
    StepRun.objects.using(database()).bulk_create([step for step in steps if step._state.adding])
    for again in [step for step in steps if not step._state.adding]:
        again.store(*visits.AGAIN_FIELDS)
    facts: dict[str, JSON] = {"step": way.step, "items": len(steps), "limit": way.limit, "then": way.then}
    journal.record(run, "each.opened", at=now, step=join, data=facts)
    for step in steps:
        if step.state == StepState.READY and not run.parked_reason:
            dispatch.send_after_commit(run, step)


def _item_steps(run: WorkflowRun, way: Each, join: StepRun, branch: Branch, now: datetime) -> list[StepRun]:
    keys = [key for key, _ in way.items]
    rows = StepRun.objects.using(database()).filter(run=run, name=way.step, item_key__in=keys)
    before = dict(rows.order_by().values_list("item_key").annotate(Count("id")))
    rewound: dict[str, list[StepRun]] = {}
    for step in rows.filter(rewound=True).order_by("visit"):
        rewound.setdefault(step.item_key, []).append(step)
    again = {
        key: one
        for key, found in rewound.items()
        if (one := visits.to_take_up(run, found, branch.came_from)) is not None
    }
    steps = []
    for position, (key, item) in enumerate(way.items):
        has_turn = way.limit is None or position < way.limit
        state = StepState.READY if has_turn else StepState.WAITING
        if key in again:
            step = again[key]
            visits.stand_again(step, state)
        else:
            visit = before.get(key, 0) + 1
            step = StepRun(run=run, name=way.step, visit=visit, item_key=key, created_at=now, state=state)
            step.of_cleanup = run.is_cleaning_up
        step.each_step, step.gather, step.came_from, step.input = way.step, join, branch.came_from, {"item": item}
        step.base_sequence = run.checkpoint_sequence
        if has_turn:
            make_due(step, now)
        else:
            step.waits_on, step.waits_for = str(WaitsOn.TURN), ITS_TURN
        integrity.seal_input(step)
        steps.append(step)
    return steps


def _join(run: WorkflowRun, name: str, branch: Branch, now: datetime) -> StepRun:
    """The join that gathers the branches under way; a new visit when none waits. Keeps who came to it."""
    join = _waiting_join(run, name)
    if join is None:
        first = Branch(came_from=branch.came_from)
        join = _wait(run, name, first, now, WaitsOn.BRANCHES, COMING)
    if branch.came_from is not None:
        branch.came_from.joined = [*branch.came_from.joined, str(join.pk)]
        branch.came_from.store("joined")
    return join


def gather_again(run: WorkflowRun, join: StepRun, now: datetime) -> None:
    """Let a join that a redrive went back before wait again: others that came to it are not done again."""
    visits.stand_again(join, StepState.WAITING)
    join.waits_on, join.waits_for, join.base_sequence = str(WaitsOn.BRANCHES), COMING, run.checkpoint_sequence
    join.store(*visits.AGAIN_FIELDS)
    facts: dict[str, JSON] = {**_named(join), "reason": COMING, "on": join.waits_on}
    journal.record(run, "step.waiting", at=now, step=join, data=facts)


def _waiting_join(run: WorkflowRun, name: str) -> StepRun | None:
    rows = StepRun.objects.using(database()).filter(run=run, name=name, state=StepState.WAITING)
    return rows.filter(waits_on=WaitsOn.BRANCHES).first()


def _may_have_joins(run: WorkflowRun) -> bool:
    try:
        return registry.get(run.workflow, run.version).has_joins
    except UnknownWorkflow:  # another process's workflow: the rows will tell
        return True


def begin_joins(run: WorkflowRun, now: datetime) -> None:
    """Let joins begin that nobody comes to any more."""
    if not _may_have_joins(run):
        return
    rows = StepRun.objects.using(database()).filter(run=run, state__in=OPEN).order_by("id")
    values = rows.values_list("pk", "name", "waits_on", "gather_id")
    steps = [OpenStep(pk, name, kind == WaitsOn.BRANCHES, gather) for pk, name, kind, gather in values]
    if not any(step.is_join for step in steps):
        return
    for pk in joins_ready(steps, registry.get(run.workflow, run.version).reaches):
        wake(run, StepRun.objects.using(database()).get(pk=pk), now, "all branches that lead to it have ended")


def _next_turns(run: WorkflowRun, one: StepRun, now: datetime) -> None:
    """Let the next items of one's group begin, as many as branches of the group have ended."""
    group = StepRun.objects.using(database()).filter(
        run=run, gather_id=one.gather_id, each_step=one.each_step, state__in=OPEN
    )
    waiting = group.filter(waits_on=WaitsOn.TURN)
    limit = groups.limit_of(one)
    if limit is None or not waiting.exists():
        return
    begun = set(group.exclude(waits_on=WaitsOn.TURN).values_list("item_key", flat=True))
    for step in waiting.order_by("id")[: max(limit - len(begun), 0)]:
        wake(run, step, now, "it is its turn")
