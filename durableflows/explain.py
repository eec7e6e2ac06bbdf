"""A run in plain sentences: what happened, what is certain, what is unknown, what comes next. Reads only."""

from dataclasses import dataclass
from datetime import datetime

from durableflows.models import WorkflowRun


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened or stands open. `kind`: done, waiting, problem, certain, unknown, note."""

    at: datetime
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`sentence` says why the run stands where it stands; `next` what comes and `next_at` when; `safe` what a person may do."""

    sentence: str
    lines: tuple[Line, ...]
    next: str
    next_at: datetime | None
    safe: tuple[str, ...]
    ended: bool


def explain_run(run: WorkflowRun) -> Explanation:
    """Explain one run from its rows."""
    return Explanation(run.word, (), "", None, (), run.is_ended)
