"""States and legal moves as a page: Mermaid diagrams and tables, printed from `core.states` and nothing else.

Called by `manage.py durableflows graph` and by the test that compares docs/reference/states.md with the code.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from durableflows.core.states import (
    APPROVAL_MOVES,
    EFFECT_MOVES,
    EFFECT_OPEN,
    RUN_ENDED,
    RUN_LIVE,
    RUN_MOVES,
    STEP_ENDED,
    STEP_MOVES,
    STEP_OPEN,
    WORDS,
    ApprovalState,
    EffectState,
    Moves,
    RunState,
    StepState,
)

PAGE = "docs/reference/states.md"


@dataclass(frozen=True, slots=True)
class Machine:
    """One state machine. `group`: states that many moves share as their source, drawn as one."""

    title: str
    states: type[StrEnum]
    moves: "Moves[RunState] | Moves[StepState] | Moves[EffectState] | Moves[ApprovalState]"
    start: str
    ends: frozenset[str]
    group: frozenset[str]
    group_name: str
    note: str


MACHINES = (
    Machine(
        "Runs",
        RunState,
        RUN_MOVES,
        RunState.PENDING,
        frozenset(RUN_ENDED),
        frozenset(RUN_LIVE),
        "any live state",
        "A live run's state follows from its steps and flags; `manage.py durableflows doctor` computes it again. "
        "One that is ENDING settles what is under way; it is COMPENSATING while what it did is undone, and ENDING "
        "again for its clean-up, where its workflow declares these.",
    ),
    Machine(
        "Steps",
        StepState,
        STEP_MOVES,
        StepState.READY,
        frozenset(STEP_ENDED),
        frozenset(STEP_OPEN),
        "any open state",
        "A READY row is its own outbox; a RUNNING row carries the lease.",
    ),
    Machine(
        "Effects",
        EffectState,
        EFFECT_MOVES,
        EffectState.PLANNED,
        frozenset(),
        frozenset(),
        "",
        f"No step and no run ends while an effect of it is {', '.join(sorted(EFFECT_OPEN))}.",
    ),
    Machine(
        "Approval requests",
        ApprovalState,
        APPROVAL_MOVES,
        ApprovalState.OPEN,
        frozenset(ApprovalState) - {ApprovalState.OPEN},
        frozenset(),
        "",
        "Every end of a run closes its open requests in the same transaction.",
    ),
)


def page() -> str:
    """The whole of docs/reference/states.md."""
    parts = [
        "# States and legal moves",
        "Printed from `durableflows/core/states.py` by `manage.py durableflows graph --write-docs`; do not edit.",
    ]
    for machine in MACHINES:
        parts += [f"## {machine.title}", machine.note, f"```mermaid\n{diagram(machine)}\n```", table(machine)]
    parts += ["## Words", "What people are shown for a run's state.", words()]
    return "\n\n".join(parts) + "\n"


def diagram(machine: Machine) -> str:
    """A Mermaid state diagram; moves from every live state are drawn from one node."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.start}"]
    arrows = [f"    {source} --> {target}: {verb}" for source, target, verb in _arrows(machine)]
    if any(arrow.startswith("    any ") for arrow in arrows):
        lines.insert(1, f'    state "{machine.group_name}" as any')
    lines += arrows
    lines += [f"    {state} --> [*]" for state in machine.states if state in machine.ends]
    return "\n".join(lines)


def _arrows(machine: Machine) -> Iterator[tuple[str, str, str]]:
    for verb, (sources, target) in machine.moves.items():
        if machine.group and frozenset(sources) | {target} >= machine.group:
            yield "any", str(target), verb
        else:
            yield from ((str(source), str(target), verb) for source in machine.states if source in sources)


def table(machine: Machine) -> str:
    """Every move: what it is called, where from, where to."""
    lines = ["| Move | From | To |", "|---|---|---|"]
    for verb, (sources, target) in machine.moves.items():
        names = ", ".join(str(state) for state in machine.states if state in sources)
        lines.append(f"| `{verb}` | {names} | {target} |")
    return "\n".join(lines)


def words() -> str:
    """Each run state with the word for people."""
    return "\n".join(["| State | Word |", "|---|---|", *(f"| {state} | {word} |" for state, word in WORDS.items())])


def as_data() -> dict[str, object]:
    """The same for programs."""
    return {
        machine.title: {
            "states": [str(state) for state in machine.states],
            "start": str(machine.start),
            "ends": sorted(machine.ends),
            "moves": {
                verb: {"from": sorted(sources), "to": str(target)} for verb, (sources, target) in machine.moves.items()
            },
        }
        for machine in MACHINES
    }
