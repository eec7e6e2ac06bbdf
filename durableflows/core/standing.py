"""What is kept of a step for whoever lets its run go on after an end: where it stood, or how it wanted to end the run.

Pure: values to JSON and back. A step has one of both, in `StepRun.stood`.
"""

from collections.abc import Mapping
from datetime import datetime

from durableflows.core.decide import End
from durableflows.core.outcomes import ErrorInfo
from durableflows.core.payload import JSON
from durableflows.core.states import EndingReason, StepState

END = "end"


def place(state: StepState, waits_on: str, waits_for: str, wake_at: datetime | None) -> dict[str, JSON]:
    """Where an open step stands when the end of its run closes it."""
    at = None if wake_at is None else wake_at.isoformat()
    return {"state": str(state), "waits_on": waits_on, "waits_for": waits_for, "wake_at": at}


def ending(end: End) -> dict[str, JSON]:
    """How a step wanted to end its run, which was ending already."""
    error = None if end.error is None else [end.error.error_class, end.error.code, end.error.text]
    reason = None if end.reason is None else str(end.reason)
    return {END: {"verb": end.verb, "reason": reason, "result": end.result, "error": [*error] if error else None}}


def end_of(stood: Mapping[str, JSON]) -> End | None:
    """The end that a step wanted; None for one that stood somewhere."""
    kept = stood.get(END)
    if not isinstance(kept, dict):
        return None
    reason, error = kept["reason"], kept["error"]
    return End(
        str(kept["verb"]),
        None if reason is None else EndingReason(str(reason)),
        kept["result"],
        ErrorInfo(*(str(part) for part in error)) if isinstance(error, list) else None,
    )
