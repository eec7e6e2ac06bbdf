"""What a verb would do to a run now: what it closes, what is done again, what is certain, what is unknown, how much
money that is. Reads only; the verb itself looks again under the lock.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from durableflows import clock, ledger_undo
from durableflows.core import operate
from durableflows.core.ending import cleanup_of
from durableflows.core.money import Money
from durableflows.core.payload import JSON, canonical, redact
from durableflows.core.reconcile import REPEAT
from durableflows.core.states import (
    EFFECT_OPEN,
    ENDS_BY_LIMIT,
    STEP_OPEN,
    ApprovalState,
    EffectState,
    EndingReason,
    StepState,
    WaitsOn,
)
from durableflows.core.undo import undo_of
from durableflows.core.wording import did_you_mean
from durableflows.errors import DurableflowsError, InvalidState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from durableflows.selectors import may_see_values, open_steps, run_for
from durableflows.services import abandon, compensate, edit, limits, migrations, operations, redrive, runs
from durableflows.transactions import database

LONGEST_SHOWN = 200
_DUE = (StepState.READY, StepState.RETRY_SCHEDULED)
HAPPENED = (EffectState.CONFIRMED, EffectState.UNDO_FAILED)
ENDING = frozenset({"cancel", "compensate", "abandon"})
"""Verbs after which nothing of the main path is done, so that no choice to repeat something is carried out."""


@dataclass(frozen=True, slots=True)
class Preview:
    """`refused`: why the verb would not be done now, '' when it would. The others are sentences' parts, for people.

    changes      which fields of the state become what, of a migration the version, of an extension the limits
    closes       what it puts an end to: requests, votes, waits, children, workers' leases, why the run stands still
    begins       which steps are done again, or go on
    keeps        which steps keep what they were given, or what they were refused, whatever the state becomes
    repeats      confirmed effects that would be done once more, by explicit choice, now or in a redrive before
    undoes       what has happened and would be undone, newest first
    stays        what has happened and can be undone by nobody, though the rest is undone
    confirmed    what has happened, and is not done again
    unknown      what may have happened, and stays to be settled
    money        the sums of money in the arguments of the lists of effects, from `repeats` on, one a currency; none for
                 who may not see what the run works with
    checkpoint   the one that a run stands at which does not go on by itself; None for one that does
    """

    verb: str
    run_id: UUID
    refused: str = ""
    changes: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    undoes: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    money: Mapping[str, tuple[Money, ...]] = field(default_factory=dict)
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A verb with the arguments that matter for what it would do."""

    by: Any = None
    deadline: object = None
    budget: Mapping[str, object] = field(default_factory=dict)
    step: str = ""
    item: str = ""
    repeat: Collection[str] = ()
    heir: Any = None
    changes: Mapping[str, object] = field(default_factory=dict)
    checkpoint: int | None = None
    version: int | None = None


@dataclass(slots=True)
class Found:
    """What a look at the run for one verb came to."""

    changes: list[str] = field(default_factory=list)
    closes: list[str] = field(default_factory=list)
    begins: list[str] = field(default_factory=list)
    keeps: list[str] = field(default_factory=list)
    repeats: list[SideEffect] = field(default_factory=list)
    undoes: list[SideEffect] = field(default_factory=list)
    stays: list[SideEffect] = field(default_factory=list)


def preview(verb: str, run_id: UUID | str, asked: Asked) -> Preview:
    """Say what a verb would do. Raises NotFoundError, and InvalidState for a verb that has no preview."""
    if verb not in _LOOKS:
        raise InvalidState(f"there is no preview of {verb!r}{did_you_mean(verb, _LOOKS)}: {', '.join(_LOOKS)} have one")
    run, now = run_for(run_id, asked.by), clock.now()
    found, refused = Found(), ""
    try:
        _check_right(verb, run, asked.by)
        _LOOKS[verb](run, asked, found, now)
    except DurableflowsError as error:
        found, refused = Found(), str(error)
    return _of(verb, run, found, refused, sees=asked.by is None or may_see_values(run, asked.by))


def _of(verb: str, run: WorkflowRun, found: Found, refused: str, *, sees: bool) -> Preview:
    rows = list(SideEffect.objects.using(database()).filter(run=run).order_by("id"))
    if verb != "redrive" and verb not in ENDING:  # a redrive ends the choices of the one before
        found.repeats += _chosen_before(rows)
    again = {row.pk for row in (*found.repeats, *found.undoes, *found.stays)}
    confirmed = [row for row in rows if row.state in HAPPENED and row.pk not in again]
    unknown = [row for row in rows if row.state in EFFECT_OPEN]
    parts = {"repeats": found.repeats, "undoes": found.undoes, "stays": found.stays}
    parts |= {"confirmed": confirmed, "unknown": unknown}
    return Preview(
        verb=verb,
        run_id=run.pk,
        refused=refused,
        changes=tuple(found.changes),
        closes=tuple(found.closes),
        begins=tuple(found.begins),
        keeps=tuple(found.keeps),
        repeats=_names(found.repeats),
        undoes=_names(found.undoes),
        stays=_names(found.stays),
        confirmed=_names(confirmed),
        unknown=_names(unknown),
        money={name: _money(rows) for name, rows in parts.items()} if sees else {},
        checkpoint=run.checkpoint_sequence if run.parked_reason or run.ended_at is not None else None,
    )


def _chosen_before(rows: Iterable[SideEffect]) -> list[SideEffect]:
    """What an earlier redrive has chosen to do once more, and no attempt has come to yet."""
    rows = list(rows)
    replaced = {row.replaces_id for row in rows}
    return [row for row in rows if row.verdict == REPEAT and row.pk not in replaced]


def _names(rows: Iterable[SideEffect]) -> tuple[str, ...]:
    return tuple(f"{row} of {row.step_name}" + (f" for {row.item_key}" if row.item_key else "") for row in rows)


def _money(rows: Iterable[SideEffect]) -> tuple[Money, ...]:
    """What an undo gives back is counted where it was given: with the effect that it undoes."""
    acts = [row for row in rows if row.undoes_id is None]
    return operate.sums(amount for row in acts for amount in operate.money_in(row.arguments))


def _check_right(verb: str, run: WorkflowRun, by: Any) -> None:
    if verb == "cancel":
        runs.check_may_cancel(run, by)
    else:
        operations.check_right(run, verb, by)


def _cancel(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    runs.check_cancel(run)
    main = [step for step in open_steps(run) if not step.of_cleanup]
    found.closes += _closes(run, main)
    overtakes = not run.ending_reason or run.ending_reason in ENDS_BY_LIMIT
    reason = EndingReason.CANCEL if overtakes else run.ending_reason
    if undo_of(run.manifest).starts(reason):
        _undoes(run, found)
    cleanup = cleanup_of(run.manifest, reason)
    if cleanup is not None and not run.is_cleaning_up:
        found.begins.append(f"{cleanup.step}, to clean up")


def _undoes(run: WorkflowRun, found: Found) -> None:
    """What is in doubt now may turn out to have happened, and is undone too: it is listed as unknown."""
    rows = ledger_undo.tally(run)
    found.undoes += reversed(rows.left)
    found.stays += rows.not_reversible


def _compensate(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    compensate.check_compensate(run)
    if compensate.is_undone(run):
        return
    main = [step for step in open_steps(run) if not step.of_cleanup]
    found.closes += _closes(run, main)
    found.closes += [f"{step}, which would come next" for step in main if step.state in _DUE]
    _undoes(run, found)


def _pause(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    operations.check_pause(run)


def _resume(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    operations.check_resume(run)
    found.closes += _stands(run)
    found.begins += [str(step) for step in open_steps(run) if step.state == StepState.READY]


def _retry(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    runs.check_retry(run)
    found.closes += _stands(run)
    found.begins += [str(step) for step in open_steps(run) if step.state in _DUE]


def _extend(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    new = limits.check_extend(run, asked.deadline, asked.budget, now)
    found.changes += _extended(run, asked.deadline, new, now)
    if limits.ended_by(run) is not None:
        closed = StepRun.objects.using(database()).filter(run=run, stood__isnull=False).order_by("id")
        found.begins += [str(step) for step in [*open_steps(run), *closed]]


def _stands(run: WorkflowRun) -> list[str]:
    """Why the run stands still now: whoever lets it go on does not mean another reason, which came since."""
    return [f"why it stands still, {run.parked_reason}: {run.parked_detail}"] if run.parked_reason else []


def _extended(run: WorkflowRun, asked: object, new: limits.Limits, now: datetime) -> Iterator[str]:
    """Each limit as it is and as it becomes: whoever extends a run twice, or beside somebody else, sees it."""
    if asked is not None:
        # From a deadline that has passed on, a span is counted from the moment at which it is done.
        until = (
            f"{asked} from then on" if isinstance(asked, timedelta) and run.deadline_at < now else _utc(new.deadline_at)
        )
        yield f"deadline: {_utc(run.deadline_at)} -> {until}"
    for name, limit in new.budget.items():
        if limit != run.budget.get(name):
            yield f"{name}: {run.budget.get(name)} -> {limit}"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _edit(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    new = edit.work_out(run, asked.changes, asked.checkpoint)
    found.changes += [_change(name, old, value) for name, (old, value) in new.changes.items()]
    found.closes += [f"every vote on the request {request.title!r}: it asks anew" for request, _ in new.asks]
    if new.changes:
        found.closes += [f"the approval of {one.title!r}: it no longer counts" for one in edit.lapsing(run, new.data)]
    steps = open_steps(run)
    found.begins += [f"{step}, with the new state, once the run goes on" for step in steps if step.state in _DUE]
    found.keeps += [f"{step}: {', '.join(given)}" for step in steps if (given := _given(step))]


def _migrate(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    move = migrations.work_out(run, asked.version)
    found.changes.append(f"version: {run.version} -> {move.version}")
    for name in sorted({*run.data, *move.data}):
        if name not in move.data:
            found.changes.append(f"{name}: {_shown(name, run.data[name])} -> no longer there")
        elif name not in run.data or run.data[name] != move.data[name]:
            old = _shown(name, run.data[name]) if name in run.data else "not there yet"
            found.changes.append(f"{name}: {old} -> {_shown(name, move.data[name])}")
    found.begins += [f"{old}, as {new}" if old != new else old for old, new in sorted(move.names.items())]


def _change(name: str, old: JSON, new: JSON) -> str:
    return f"{name}: {_shown(name, old)} -> {_shown(name, new)}"


def _shown(name: str, value: JSON) -> str:
    """A value as JSON, its end cut off; what looks like a secret is masked, as everywhere."""
    masked = redact({name: value})
    assert isinstance(masked, dict)
    text = canonical(masked[name]).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _given(step: StepRun) -> list[str]:
    given = [words for kind, words in _GIVEN.items() if kind in step.input]
    return [*given, "the time that it waits for"] if step.waits_on == WaitsOn.TIMER else given


_GIVEN = {
    "item": "its item",
    "signal": "its signal",
    "child": "what the run that it has started was given, or has come to",
}


def _redrive(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    route = redrive.check_redrive(run, asked.step, asked.item, asked.repeat, now)
    found.closes += [*_stands(run), *_closes(run, [step for step in route.steps if step.state in STEP_OPEN])]
    found.begins += [str(step) for step in route.steps]
    found.keeps += [
        f"{row.step}: {row} was refused ({row.reason}), and is not sent: `resolve` it as did_not_happen for a new try"
        for row in redrive.refused(route.steps)
    ]
    found.keeps += [
        f"{row.step_name}: {row} was taken back by its provider, and is not sent again unless you choose it"
        for row in redrive.taken_back(run)
        if row not in route.repeats
    ]
    found.repeats += route.repeats


def _abandon(run: WorkflowRun, asked: Asked, found: Found, now: datetime) -> None:
    abandon.check_abandon(run)
    abandon.check_heir(run, asked.heir)
    found.closes += _closes(run, open_steps(run))


_LOOKS: Mapping[str, Callable[[WorkflowRun, Asked, Found, datetime], None]] = {
    "cancel": _cancel,
    "compensate": _compensate,
    "pause": _pause,
    "resume": _resume,
    "retry": _retry,
    "extend": _extend,
    "edit": _edit,
    "redrive": _redrive,
    "abandon": _abandon,
    "migrate": _migrate,
}


def _closes(run: WorkflowRun, steps: list[StepRun]) -> list[str]:
    """What ends with these steps, in words."""
    requests = ApprovalRequest.objects.using(database()).filter(step__in=steps, state=ApprovalState.OPEN)
    closes = [f"the request {request.title!r}" for request in requests.order_by("id")]
    for step in steps:
        if step.state == StepState.RUNNING:
            closes.append(f"the worker's lease on {step}")
        elif step.waits_on and step.waits_on != WaitsOn.CHILD:
            closes.append(f"{step}'s wait for {step.waits_for}")
    children = WorkflowRun.objects.using(database()).filter(parent_step__in=steps, ended_at__isnull=True)
    return closes + [f"the {child.workflow} run {child.pk} that it has started" for child in children]
