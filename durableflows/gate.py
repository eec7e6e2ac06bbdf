"""Could every run that is under way go on under the code that is about to be deployed? Reads only.

Run it with the new code against the live database, before workers start. It loads each live run's state, steps and
unsettled effects against the declarations of this process. Source: P8; design, section 7; S2.16; R36.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Prefetch

from durableflows.core import migrations, registry
from durableflows.core import state as states
from durableflows.core.definition import WorkflowDefinition
from durableflows.core.migrations import MigrationDefinition
from durableflows.core.states import EFFECT_OPEN, STEP_OPEN, WaitsOn
from durableflows.errors import DurableflowsError, UnknownWorkflow
from durableflows.models import SideEffect, StepRun, WorkflowRun
from durableflows.transactions import database

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of `runs` runs, one of which is `example`. `stops`: they could not go on."""

    workflow: str
    version: int
    text: str
    cure: str
    runs: int
    example: UUID
    stops: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many live runs were looked at, and what stands in the way of some."""

    runs: int
    obstacles: tuple[Obstacle, ...]

    @property
    def is_open(self) -> bool:
        """May this code be deployed? Every run could go on, by itself or by a declared migration."""
        return not any(obstacle.stops for obstacle in self.obstacles)


@dataclass(frozen=True, slots=True)
class _Problem:
    workflow: str
    version: int
    text: str
    cure: str
    stops: bool = True


def examine() -> Verdict:
    """Look at every run that has not ended. One pass in chunks, however many there are."""
    found: Counter[_Problem] = Counter()
    examples: dict[_Problem, UUID] = {}
    seen = 0
    for run in _live():
        seen += 1
        for problem in _problems(run):
            found[problem] += 1
            examples.setdefault(problem, run.pk)
    obstacles = [
        Obstacle(one.workflow, one.version, one.text, one.cure, count, examples[one], one.stops)
        for one, count in found.items()
    ]
    return Verdict(seen, tuple(sorted(obstacles, key=lambda one: (not one.stops, one.workflow, one.version))))


def _live() -> Iterator[WorkflowRun]:
    still_open = StepRun.objects.using(database()).filter(state__in=[str(state) for state in STEP_OPEN])
    unsettled = SideEffect.objects.using(database()).filter(state__in=[str(state) for state in EFFECT_OPEN])
    runs = WorkflowRun.objects.using(database()).filter(ended_at__isnull=True).order_by("pk")
    runs = runs.prefetch_related(
        Prefetch("steps", still_open, to_attr="open_steps"), Prefetch("effects", unsettled, to_attr="open_effects")
    )
    return runs.iterator(chunk_size=CHUNK)


def _problems(run: WorkflowRun) -> Iterator[_Problem]:
    try:
        definition = registry.get(run.workflow, run.version)
    except UnknownWorkflow:
        yield _unknown(run)
        return
    if definition.structure != run.manifest.get("structure"):
        yield _other_structure(run)
        return
    yield from _state_problems(run, definition)
    yield from _effect_problems(run, definition)
    yield from _child_problems(run)
    if run.manifest.get("code") not in (None, "", definition.code):
        text = "code inside its steps has changed since it started"
        yield _Problem(run.workflow, run.version, text, "nothing need be done if the change was meant", stops=False)


def _unknown(run: WorkflowRun) -> _Problem:
    latest = way_forward(run)
    if latest is not None:
        text = f"this code does not know version {run.version}, and can migrate it to version {latest}"
        cure = f"after the deploy: manage.py durableflows migrate --workflow {run.workflow}"
        return _Problem(run.workflow, run.version, text, cure, stops=False)
    text = "this code does not know it"
    cure = (
        f"keep the class of version {run.version} beside the new one, or declare @migration(from_version={run.version})"
    )
    return _Problem(run.workflow, run.version, text, cure)


def _other_structure(run: WorkflowRun) -> _Problem:
    text = "this code has other steps, edges, effects or state under the same version"
    cure = f"give the changed class version {run.version + 1}, and keep the old one until its runs have ended"
    return _Problem(run.workflow, run.version, text, cure)


def way_forward(run: WorkflowRun) -> int | None:
    """The highest version that declared migrations lead this run to; None when there is none."""
    return next(ways_forward(run), None)


def ways_forward(run: WorkflowRun) -> Iterator[int]:
    """Each newer version that declared migrations lead this run to, the highest first. Reads no rows."""
    declared = declared_migrations(run)
    for version in sorted(declared, reverse=True):
        if version > run.version and migrations.path(declared, run.version, version):
            yield version


def declared_migrations(run: WorkflowRun) -> Mapping[int, Mapping[int, MigrationDefinition]]:
    """Of each version of the run's workflow: its migrations, by the version that they come from."""
    return {one.version: one.migrations for one in registry.definitions() if one.name == run.workflow}


def _state_problems(run: WorkflowRun, definition: WorkflowDefinition) -> Iterator[_Problem]:
    try:
        states.load(definition.state_type, run.data)
    except DurableflowsError as error:
        text = f"its stored state does not fit {definition.state_type.__name__}: {error}"
        yield _Problem(run.workflow, run.version, text, "let the new state read what the old one wrote")


def _effect_problems(run: WorkflowRun, definition: WorkflowDefinition) -> Iterator[_Problem]:
    rows: list[SideEffect] = getattr(run, "open_effects")  # noqa: B009 - Prefetch puts it there
    for row in rows:
        effect = definition.effects.get(row.effect)
        if effect is None or effect.version != row.effect_version:
            text = f"effect {row.effect} version {row.effect_version} is unsettled and not declared"
            yield _Problem(run.workflow, run.version, text, "keep the effect's version until its rows are settled")
            continue
        try:
            effect.load_arguments(row.arguments)
        except DurableflowsError as error:
            text = f"the stored arguments of effect {row.effect} cannot be read: {error}"
            yield _Problem(run.workflow, run.version, text, "give the changed effect a new version")


def _child_problems(run: WorkflowRun) -> Iterator[_Problem]:
    steps: list[StepRun] = getattr(run, "open_steps")  # noqa: B009 - Prefetch puts it there
    for step in steps:
        wanted = step.input.get("child") if step.waits_on == WaitsOn.CHILD else None
        if wanted and (wanted["workflow"], wanted["version"]) not in registry.known():
            text = (
                f"its step {step.name} waits for {wanted['workflow']} version {wanted['version']}, which is not known"
            )
            yield _Problem(run.workflow, run.version, text, "keep that workflow until these runs have ended")
