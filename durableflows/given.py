"""What a step was given to go on with: a signal, the end of a child, the results of branches. Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from django.db.models import QuerySet

from durableflows.core.payload import JSON, sha256
from durableflows.core.run import Child, Result
from durableflows.core.run import Signal as SignalView
from durableflows.core.states import StepState
from durableflows.errors import ChangedOutside, InvalidState
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

    Raises ChangedOutside when that is not what the history says that the step gave.
    """
    rows = StepRun.objects.using(database()).filter(run_id=run_id, name=step_name, ended_at__isnull=False)
    rows = rows.filter(rewound=False)  # what a redrive went back before, and was not come to again, counts no more
    gathered = list(rows.filter(gather_id=join_id).order_by("id"))
    if not gathered:
        last = rows.filter(gather__isnull=True).order_by("-visit").first()
        gathered = [] if last is None else [last]
    _check_given(run_id, gathered)
    return tuple(_result(step) for step in gathered)


def _check_given(run_id: UUID, steps: Sequence[StepRun]) -> None:
    """What a step gave has no seal of its own: the event of its end says the digest (P13)."""
    events = RunEvent.objects.using(database()).filter(run=run_id)
    for step in changed_outputs(steps, events.filter(step=steps[0]) if len(steps) == 1 else events):
        raise ChangedOutside(f"the result of {step} does not match its digest in the history: it was changed")


def changed_outputs(steps: Sequence[StepRun], events: QuerySet[RunEvent]) -> Iterator[StepRun]:
    """Each step that has succeeded and gave something else than the event of its end says. `events`: all of theirs."""
    succeeded = [step for step in steps if step.state == StepState.SUCCEEDED]
    ends = events.filter(kind="step.succeeded").order_by("sequence")
    told = dict(ends.values_list("step", "data")) if succeeded else {}
    for step in succeeded:
        if step.pk not in told or told[step.pk].get("output_sha256") != _digest(step.output):
            yield step


def _digest(output: JSON) -> str | None:
    try:
        return None if output is None else sha256(output)
    except (InvalidState, RecursionError):  # infinity, a lone surrogate, too deep: we never wrote that
        return ""


def _result(step: StepRun) -> Result:
    if step.state == StepState.SUCCEEDED:
        return Result(step.item_key, step.output, "")
    return Result(step.item_key, None, step.error_text or f"it was {step.state.lower()}")
