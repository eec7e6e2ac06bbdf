"""Moving a run to a newer version of its workflow, as that version declares it. One run, one transaction.

The state is changed by user code before the lock, bound to the checkpoint that it read; steps are renamed in place, so
that their effects, with keys and receipts, stay theirs. Source: P8; design, section 7; S2.16, S3.11; R36.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durableflows import clock, gate, integrity, journal, ledger, pinned, progress
from durableflows.boundaries import Boundary, cross
from durableflows.core import changes, migrations, registry
from durableflows.core import state as states
from durableflows.core.definition import StepDefinition, WorkflowDefinition
from durableflows.core.migrations import MigrationDefinition
from durableflows.core.payload import JSON
from durableflows.core.states import EFFECT_OPEN, EffectState, ParkedReason, StepState, WaitsOn
from durableflows.errors import DurableflowsError, InvalidState, TooLate
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.models.locks import lock_run, lock_steps
from durableflows.selectors import open_steps, run_for
from durableflows.services.operations import Order, order
from durableflows.services.runs import manifest_of
from durableflows.transactions import database, transact

Way = tuple[tuple[int, MigrationDefinition], ...]
RENAMED_IN_INPUT = ("on_timeout",)
MAY_HAVE_HAPPENED = [str(state) for state in sorted({*EFFECT_OPEN, EffectState.CONFIRMED, EffectState.REVERSED})]


def migrate(run_id: UUID | str, *, by: Any, reason: str, version: int | None) -> WorkflowRun:
    """Let a run go on under a newer version; None: the highest that declared migrations lead to.

    Raises           NotFoundError, NotAllowed; TooLate when it has ended, is ending, or a worker is at one of its
                     steps; InvalidState without a reason, when no migration leads there, an open step has no place in
                     the new version or has done what that one does not declare, or the migrated state does not fit
    Writes / Locks   WorkflowRun, StepRun, RunEvent; locks run, then its open steps
    Crash            before the commit the run is as it was; after it the sweep sends what is READY
    """
    given = order(run_id, "migrate", by=by, reason=reason)
    run = run_for(given.run_id, None)
    definition, way, data = _worked_out(run, version)
    migrated = _migrate(given, run.checkpoint_sequence, definition, way, data)
    cross(Boundary.OPERATE_AFTER_COMMIT)
    return migrated


@dataclass(frozen=True, slots=True)
class Move:
    """What a migration would make of a run: its version, its state, and old name -> new name of each open step."""

    version: int
    data: Mapping[str, JSON]
    names: Mapping[str, str]


def work_out(run: WorkflowRun, version: int | None) -> Move:
    """Say what `migrate` would do now. Reads only, and runs the declared migrations on a copy. Raises as it does."""
    definition, way, data = _worked_out(run, version)
    steps = open_steps(run)
    _check(run, steps, run.checkpoint_sequence)
    return Move(definition.version, data, _names(run, steps, definition, way))


def _worked_out(run: WorkflowRun, version: int | None) -> tuple[WorkflowDefinition, Way, dict[str, JSON]]:
    if not integrity.is_sealed(run):
        raise InvalidState(f"run {run.pk}: its stored state was changed from outside and is not migrated")
    definition, way = _way(run, version)
    return definition, way, _changed(run, definition, way)


def _way(run: WorkflowRun, version: int | None) -> tuple[WorkflowDefinition, Way]:
    target = gate.way_forward(run) if version is None else version
    way = migrations.path(gate.declared_migrations(run), run.version, target) if target is not None else None
    if target is None or not way:
        wanted = f"to version {version}" if version is not None else "to a newer version"
        raise InvalidState(
            f"no declared migration leads {run.workflow} version {run.version} {wanted}: "
            f"declare @migration(from_version={run.version}) in the newer class"
        )
    return registry.get(run.workflow, target), way


def _changed(run: WorkflowRun, definition: WorkflowDefinition, way: Way) -> dict[str, JSON]:
    """Let each version on the way change the state; the last one must fit. User code: no transaction is open."""
    data: dict[str, JSON] = dict(run.data)
    for version, step in way:
        data = _change(step, registry.get(run.workflow, version), data)
        if not isinstance(data, dict):
            raise InvalidState(f"the migration of {run.workflow} to version {version} gave no mapping")
    states.load(definition.state_type, data)
    return data


def _change(step: MigrationDefinition, definition: WorkflowDefinition, data: dict[str, JSON]) -> dict[str, JSON]:
    try:
        return step.change(definition.workflow, dict(data))
    except DurableflowsError:
        raise
    except Exception as error:
        what = f"the migration of {definition.name} from version {step.from_version} to {definition.version}"
        raise InvalidState(f"{what} fails on this run's state: {type(error).__name__}: {error}") from error


@transact
def _migrate(
    given: Order, read_at: int, definition: WorkflowDefinition, way: Way, data: dict[str, JSON]
) -> WorkflowRun:
    run, now = lock_run(given.run_id), clock.now()
    steps = lock_steps(run)
    _check(run, steps, read_at)
    names = _names(run, steps, definition, way)
    before = run.version
    _rename_all(run, way)
    for step in steps:
        _rename_open(step, names[step.name], way)
    pinned.keep(definition.pins, now)
    run.version, run.manifest = definition.version, {**manifest_of(definition), "migrated_from": before}
    run.schema_version = definition.state_type.schema_version
    facts: dict[str, JSON] = {"from": before, "to": definition.version, "reason": given.reason, "steps": dict(names)}
    facts["changes"] = changes.kept(changes.between(run.data, data))
    integrity.seal(run, data, run.checkpoint_sequence + 1)
    journal.record(run, "run.migrated", at=now, actor_name=given.name, data=facts)
    run.store("version", "manifest", "schema_version")
    if run.parked_reason == ParkedReason.INCOMPATIBLE:
        run.parked_reason, run.parked_detail = "", ""
        for step in steps:
            if step.state in (StepState.READY, StepState.RETRY_SCHEDULED):
                progress.give_new_tries(run, step, now)
    progress.conclude(run, now, progress.CHECKPOINT_FIELDS)
    cross(Boundary.OPERATE_BEFORE_COMMIT)
    return run


def _check(run: WorkflowRun, steps: list[StepRun], read_at: int) -> None:
    if run.ended_at is not None or run.ending_reason:
        raise TooLate(f"the run is {run.word}: it is not migrated any more")
    if run.checkpoint_sequence != read_at:
        raise TooLate("the run has gone on while its state was migrated: try again")
    if not integrity.is_current(run):
        if integrity.has_moved(run):
            raise TooLate("the run was changed while it was looked at: try again")
        raise InvalidState("the run was put back to an older checkpoint: it is not migrated")
    busy = [step.name for step in steps if step.state == StepState.RUNNING]
    if busy:
        raise TooLate(f"a worker is at {', '.join(busy)}: try again when it has ended, or pause the run first")


def _names(run: WorkflowRun, steps: list[StepRun], definition: WorkflowDefinition, way: Way) -> Mapping[str, str]:
    """Old name -> new name of each open step. Raises InvalidState for one that has no place any more."""
    names = {step.name: _name_after(step.name, way) for step in steps}
    lost = sorted(old for old, new in names.items() if new not in definition.steps)
    if lost:
        raise InvalidState(
            f"{run.workflow} version {definition.version} has no step for {', '.join(lost)}, which the run stands at: "
            "name it in steps={...} of the migration, or let the run pass it first"
        )
    for step in steps:
        other = _is_other(step, definition.steps[names[step.name]], definition)
        if other:
            raise InvalidState(f"{step.name} {other} in version {definition.version}")
        _refuse_forgotten(step, definition.steps[names[step.name]], definition.version)
    return names


def _refuse_forgotten(step: StepRun, declared: StepDefinition, version: int) -> None:
    """An open step's body runs again. What it did under a name that is not declared there would be done anew (P3)."""
    known = [effect.name for effect in declared.effects]
    done = SideEffect.objects.using(database()).filter(step=step, state__in=MAY_HAVE_HAPPENED).exclude(effect__in=known)
    row = done.order_by("id").first()
    if row is not None:
        raise InvalidState(
            f"{row} of {step} is {row.state}, and {declared.name} of version {version} does not declare {row.effect}: "
            "under another name it would be done once more. Declare it in effects=(...) of the step, or let the run "
            "pass the step first"
        )


def _is_other(step: StepRun, declared: StepDefinition, definition: WorkflowDefinition) -> str:
    if declared.name != definition.start and declared.name not in definition.reaches[definition.start]:
        return "belongs to the clean-up alone"
    if step.state == StepState.WAITING_HUMAN and declared.approval is None:
        return "waits for a decision, and is no approval"
    if step.waits_on == WaitsOn.BRANCHES and not declared.join:  # nobody would ever let it begin
        return "waits for the branches that lead to it, and is no join"
    return ""


def _name_after(name: str, way: Way) -> str:
    for _, step in way:
        name = step.name_now(name)
    return name


def _rename_all(run: WorkflowRun, way: Way) -> None:
    """Give the run's steps their new names, ended ones too: results and decisions are found by name.

    By way of names that no step can have: two steps may change places.
    """
    rows = StepRun.objects.using(database()).filter(run=run)
    names = {name: _name_after(name, way) for name in rows.order_by().values_list("name", flat=True).distinct()}
    moved = {old: new for old, new in names.items() if old != new}
    if len(set(names.values())) < len(names):
        _refuse_two_in_one_place(run, names)
    for old, new in moved.items():
        rows.filter(name=old).update(name=f"~{new}")
    for new in set(moved.values()):
        rows.filter(name=f"~{new}").update(name=new)
    ledger.rename_steps(run, moved)
    for old in rows.exclude(each_step="").order_by().values_list("each_step", flat=True).distinct():
        rows.filter(each_step=old).update(each_step=_name_after(old, way))


def _refuse_two_in_one_place(run: WorkflowRun, names: Mapping[str, str]) -> None:
    """Two steps may become one where the run has been at one of them. A visit keeps its number: keys are made of it."""
    found: dict[tuple[str, int, str], str] = {}
    rows = StepRun.objects.using(database()).filter(run=run).order_by("id")
    for old, visit, item_key in rows.values_list("name", "visit", "item_key"):
        before = found.setdefault((names[old], visit, item_key), old)
        if before != old:
            raise InvalidState(
                f"the run has been at {before} and at {old}, which the migration makes one step, {names[old]}: "
                "keep two steps in the new version, or let such runs end under the old one"
            )


def _rename_open(step: StepRun, name: str, way: Way) -> None:
    """Follow the new names in memory, and in what an open step was given."""
    step.name, step.each_step = name, _name_after(step.each_step, way)
    integrity.give(step, _renamed(step.input, way))
    step.store("input", "input_seal")


def _renamed(given: dict[str, JSON], way: Way) -> dict[str, JSON]:
    renamed = dict(given)
    for key in RENAMED_IN_INPUT:
        if isinstance(given.get(key), str):
            renamed[key] = _name_after(str(given[key]), way)
    groups, wanted = given.get("each"), given.get("child")
    if isinstance(groups, dict):
        renamed["each"] = {_name_after(name, way): group for name, group in groups.items()}
    if isinstance(wanted, dict) and isinstance(wanted.get("on_failure"), str):
        renamed["child"] = {**wanted, "on_failure": _name_after(str(wanted["on_failure"]), way)}
    return renamed
