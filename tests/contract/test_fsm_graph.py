"""The machines on the models are the tables in `core.states`, move for move."""

from typing import Any

import pytest

from durableflows.core.states import APPROVAL_MOVES, EFFECT_MOVES, RUN_MOVES, STEP_MOVES
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun

MACHINES = [
    (WorkflowRun, RUN_MOVES),
    (StepRun, STEP_MOVES),
    (SideEffect, EFFECT_MOVES),
    (ApprovalRequest, APPROVAL_MOVES),
]


Model = type[WorkflowRun] | type[StepRun] | type[SideEffect] | type[ApprovalRequest]


def graph_of(model: Model) -> set[tuple[str, str, str]]:
    transitions = model._meta.get_field("state").get_all_transitions(model)
    return {(move.name, str(move.source), str(move.target)) for move in transitions}


@pytest.mark.parametrize(("model", "moves"), MACHINES)
def test_the_model_moves_as_the_table_says(model: Model, moves: dict[str, Any]):
    """S2.1, B.3."""
    table = {(verb, str(source), str(target)) for verb, (sources, target) in moves.items() for source in sources}

    assert graph_of(model) == table
    assert model.MOVES is moves


@pytest.mark.parametrize(("model", "moves"), MACHINES)
def test_every_move_is_possible_and_no_other(model: Model, moves: dict[str, Any]):
    """S3.22."""
    states = {state for sources, target in moves.values() for state in (*sources, target)}

    for verb, (sources, target) in moves.items():
        for state in states:
            row = model(state=state)
            if state in sources:
                row.move(verb)
                assert row.state == target
            else:
                with pytest.raises(Exception, match="Can't switch"):
                    row.move(verb)
