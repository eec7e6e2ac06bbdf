"""What `each` has declared for its items: how many may be under way at a time, and how many may fail. Reads only."""

from typing import cast

from durableflows.core.decide import TOLERATED
from durableflows.core.payload import JSON
from durableflows.core.states import STEP_OPEN, StepState, WaitsOn
from durableflows.models import StepRun
from durableflows.transactions import database


def limit_of(step: StepRun) -> int | None:
    """How many branches of the step's group may be under way at a time."""
    return cast("int | None", _group(step).get("limit"))


def has_turn(step: StepRun) -> bool:
    """May this step of an item begin, beside the items that are under way, or were when the run's end closed them?"""
    limit = None if step.gather_id is None else limit_of(step)
    if limit is None:
        return True
    rows = StepRun.objects.using(database()).filter(gather_id=step.gather_id, each_step=step.each_step)
    values = rows.exclude(item_key=step.item_key).values_list("item_key", "state", "waits_on", "stood")
    begun = {item for item, state, waits_on, stood in values if _is_under_way(state, waits_on, stood)}
    return len(begun) < limit


def _is_under_way(state: str, waits_on: str, stood: dict[str, JSON] | None) -> bool:
    if stood is not None:
        return stood.get("waits_on", WaitsOn.TURN) != WaitsOn.TURN  # one that had ended waits for nothing
    return state in STEP_OPEN and waits_on != WaitsOn.TURN


def is_tolerated(step: StepRun) -> bool:
    """May this step of an item's branch fail for good without failing the run?"""
    if step.gather_id is None:
        return False
    tolerates = _group(step).get("tolerates", 0)
    if tolerates is None:
        return True
    failed = StepRun.objects.using(database()).filter(
        gather_id=step.gather_id,
        each_step=step.each_step,
        state=StepState.FAILED_PERMANENT,
        output=TOLERATED,
        rewound=False,
    )
    return failed.count() < cast(int, tolerates)


def _group(step: StepRun) -> dict[str, JSON]:
    assert step.gather is not None
    groups = cast(dict[str, JSON], step.gather.input.get("each") or {})
    return cast(dict[str, JSON], groups.get(step.each_step) or {})
