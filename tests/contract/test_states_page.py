"""The page about states shows all of them. That it is printed from the code: test_reference_pages."""

import re

import pytest

from durableflows.core.states import RunState
from durableflows.management import graph


@pytest.mark.parametrize("machine", graph.MACHINES, ids=lambda machine: machine.title)
def test_a_diagram_shows_every_state_and_every_move(machine: graph.Machine):
    """S2.36."""
    text = graph.diagram(machine)

    verbs = set(re.findall(r": (\w+)$", text, re.MULTILINE))
    assert verbs == set(machine.moves)
    touched = {state for sources, target in machine.moves.values() for state in (*sources, target)}
    assert touched == set(machine.states)
    assert machine.ends <= set(machine.states)


def test_what_has_ended_has_no_way_out():
    """But steps, which may be undone or done again; and runs that an operator lets go on, or clean up again."""
    ways_out = {
        (verb, str(state))
        for machine in graph.MACHINES
        for verb, (sources, _) in machine.moves.items()
        for state in machine.ends & set(sources)
    }

    steps = {("compensate", "SUCCEEDED"), ("compensate", "FAILED"), ("make_ready", "FAILED_PERMANENT")}
    again = {("reopen", state) for state in ("SUCCEEDED", "FAILED_PERMANENT", "CANCELLED")}
    runs = {("reopen", state) for state in ("FAILED", "EXHAUSTED_BUDGET", "DEADLINE_EXCEEDED")}
    runs |= {("clean_up_again", state) for state in ("FAILED", "CANCELLED")}
    ends = ("SUCCEEDED", "FAILED", "CANCELLED", "EXHAUSTED_BUDGET", "DEADLINE_EXCEEDED")
    runs |= {
        ("compensate", state) for state in (*ends, "COMPENSATED", "COMPENSATION_FAILED")
    }  # what came to light since
    assert ways_out == steps | again | runs | {("wait_again", state) for _, state in again}


def test_every_run_state_has_a_word():
    assert [line.split("|")[1].strip() for line in graph.words().splitlines()[2:]] == [str(state) for state in RunState]
