"""The state diagram of a run: its workflow as declared, with the way that the run has come. Reads only its steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from durableflows.core import registry
from durableflows.core.definition import StepKind, WorkflowDefinition
from durableflows.core.layout import HEIGHT, WIDTH, Arrow, Box, edges, layout
from durableflows.core.states import STEP_OPEN
from durableflows.errors import InvalidDefinition
from durableflows.explain_words import state_words
from durableflows.models import StepRun, WorkflowRun
from durableflows.templatetags.durableflows import tone

LONGEST_NAME = 21
LEAST_LABELLED = 2
LABEL_AT = (0.72, 0.62)
"""Where on its first curve an arrow has its words: nearer to its head, where those of one step stand apart."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step as it is drawn. `standing`: "" where the run has not been."""

    name: str
    x: int
    y: int
    kind: str
    look: str
    standing: str

    @property
    def short(self) -> str:
        """The name as it fits its box."""
        return self.name if len(self.name) <= LONGEST_NAME else f"{self.name[: LONGEST_NAME - 1]}…"

    @property
    def middle(self) -> int:
        """Where its words stand."""
        return self.x + WIDTH // 2


@dataclass(frozen=True, slots=True)
class Line:
    """An arrow as it is drawn: a path of curves, its words, and whether the run has gone this way."""

    path: str
    head: str
    when: str
    x: int
    y: int
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Diagram:
    """The sheet, and the same in words."""

    width: int
    height: int
    nodes: list[Node]
    lines: list[Line]
    words: list[tuple[str, str, str]]
    box_width: int = WIDTH
    box_height: int = HEIGHT


def diagram(run: WorkflowRun, steps: Sequence[StepRun]) -> Diagram | None:
    """Draw the run's workflow; None where this process does not know it.

    steps   of the run, in the order of their making
    """
    try:
        workflow = registry.get(run.workflow, run.version)
    except InvalidDefinition:
        return None
    picture, standing, gone = layout(workflow.steps, workflow.start), _newest(steps), _gone(steps)
    nodes = [_node(box, workflow, standing.get(box.name)) for box in picture.boxes]
    lines = [_line(arrow, is_gone=(arrow.source, arrow.target) in gone) for arrow in picture.arrows]
    lines.sort(key=lambda line: line.is_gone)  # the way that was gone lies over the others
    return Diagram(picture.width, picture.height, nodes, lines, list(_words(workflow, standing)))


def _newest(steps: Iterable[StepRun]) -> dict[str, StepRun]:
    """The step that says how each node stands: an open one, else the last."""
    found: dict[str, StepRun] = {}
    for step in steps:
        old = found.get(step.name)
        if old is None or old.state not in STEP_OPEN or step.state in STEP_OPEN:
            found[step.name] = step
    return found


def _gone(steps: Sequence[StepRun]) -> set[tuple[str, str]]:
    names = {step.pk: step.name for step in steps}
    return {(names[step.came_from_id], step.name) for step in steps if step.came_from_id in names}


def _node(box: Box, workflow: WorkflowDefinition, step: StepRun | None) -> Node:
    kind = "approval" if workflow.step(box.name).kind is StepKind.APPROVAL else "task"
    if step is None:
        return Node(box.name, box.x, box.y, kind, "ahead", "")
    look = "now" if step.state in STEP_OPEN else str(tone(step.state))
    return Node(box.name, box.x, box.y, kind, look, state_words(step.state, "steprun"))


def _line(arrow: Arrow, *, is_gone: bool) -> Line:
    points = arrow.points
    (x, y), parts = points[0], [f"M{points[0][0]} {points[0][1]}"]
    for to_x, to_y in points[1:]:
        bend = (y + to_y) // 2
        parts.append(f"C{x} {bend} {to_x} {bend} {to_x} {to_y}")
        x, y = to_x, to_y
    up = -1 if arrow.is_back and arrow.source != arrow.target else 1
    head = f"M{x - 5} {y - 8 * up}L{x} {y}L{x + 5} {y - 8 * up}Z"
    if arrow.source == arrow.target:
        head = f"M{x + 8} {y - 4}L{x} {y}L{x + 9} {y + 5}Z"
    (first_x, first_y), (second_x, second_y) = points[:LEAST_LABELLED]
    along, down = LABEL_AT
    at_x, at_y = first_x + round(along * (second_x - first_x)), first_y + round(down * (second_y - first_y))
    return Line(" ".join(parts), head, arrow.when, at_x, at_y + 4, is_gone)


def _words(workflow: WorkflowDefinition, standing: Mapping[str, StepRun]) -> Iterable[tuple[str, str, str]]:
    """Each step, how it stands, and where it may lead."""
    for step in workflow.steps.values():
        ways = [f"{to} when {when}" if when else to for to, when in edges(step)]
        ends = ["the end"] if step.end else []
        known = standing.get(step.name)
        said = state_words(known.state, "steprun") if known else "not reached"
        yield step.name, said, ", or ".join([*ways, *ends])
