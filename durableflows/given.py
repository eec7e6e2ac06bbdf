"""What a step was given to go on with: a signal, the end of a child, the results of branches. Reads only."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from durableflows.core.payload import JSON, sha256
from durableflows.core.run import Child, Result
from durableflows.core.run import Signal as SignalView
from durableflows.core.states import StepState
from durableflows.errors import ChangedOutside
from durableflows.models import RunEvent, Signal, StepRun
from durableflows.transactions import database


def signal_of(given: JSON) -> SignalView | None:
    """The signal that a step was given. Raises ChangedOutside when its payload is not what was sent."""
    if not isinstance(given, dict):
        return None
    row = Signal.objects.using(database()).get(pk=UUID(str(given["id"])))
    if sha256(row.payload) != given["sha256"]:
        raise ChangedOutside(f"the payload of signal {row.name} does not match its digest: it was changed from outside")
    return SignalView(row.name, row.payload, row.sender_name, row.arrived_at)


def child_of(given: Mapping[str, JSON]) -> Child:
    """The end of a child, as it was handed over."""
    return Child(str(given["run"]), str(given["workflow"]), given["result"], str(given["error"]))


def results_of(run_id: UUID, join_id: UUID, step_name: str) -> tuple[Result, ...]:
    """What the branches that a join gathers came to at a step; else what its last visit came to.

    Raises ChangedOutside for a result that was changed since
    """
    rows = StepRun.objects.using(database()).filter(run_id=run_id, name=step_name, ended_at__isnull=False)
    rows = rows.filter(rewound=False)  # what a redrive went back before, and was not come to again, counts no more
    gathered = list(rows.filter(gather_id=join_id).order_by("id"))
    if not gathered:
        last = rows.filter(gather__isnull=True).order_by("-visit").first()
        gathered = [] if last is None else [last]
    _prove_outputs(gathered)
    return tuple(_result(step) for step in gathered)


def _prove_outputs(steps: Sequence[StepRun]) -> None:
    """Raise ChangedOutside for a result that is not what the history says the step came to (P13)."""
    ends = RunEvent.objects.using(database()).filter(step__in=steps, kind="step.succeeded").order_by("sequence")
    said = {step_id: data.get("output_sha256") for step_id, data in ends.values_list("step_id", "data")}
    for step in steps:
        digest = said.get(step.pk)
        if step.state == StepState.SUCCEEDED and digest is not None and sha256(step.output) != digest:
            raise ChangedOutside(f"the result of {step} does not match its digest in the history: it was changed")


def _result(step: StepRun) -> Result:
    if step.state == StepState.SUCCEEDED:
        return Result(step.item_key, step.output, "")
    return Result(step.item_key, None, step.error_text or f"it was {step.state.lower()}")
