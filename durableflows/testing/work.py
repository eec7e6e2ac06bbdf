"""What a played worker is doing: its message, the lease that it has or believes to have, and how it may die."""

from dataclasses import dataclass
from datetime import datetime

from durableflows.models import SideEffect, StepRun
from durableflows.testing.crashes import Crash
from durableflows.transactions import database


class Killed(Crash):
    """As a crash, and the worker's parent reports it at once."""


@dataclass
class Work:
    """What one worker is doing. `fenced`: the rows as they were when it went on without its lease."""

    name: str
    arguments: tuple[str, ...]
    answered: str = ""
    fenced: tuple[object, ...] | None = None


def lease_of(work: Work) -> tuple[object, datetime | None]:
    """Token and end of the lease that a worker has, or believes to have: of its step, or of its question."""
    if len(work.arguments) == 2:
        rows = StepRun.objects.using(database()).filter(pk=work.arguments[1])
        return rows.values_list("lease_token", "must_end_by").first() or (None, None)
    effects = SideEffect.objects.using(database()).filter(pk=work.arguments[0])
    ends_at = effects.values_list("lookup_must_end_by", flat=True).first()
    return None, ends_at  # the answer of a late question may be used while the row is as it was


def cleans_up(work: Work) -> bool:
    """Does the worker do a step of a clean-up? It may send what a cancel forbids others."""
    return StepRun.objects.using(database()).filter(pk__in=work.arguments[1:], of_cleanup=True).exists()


def rows_of(work: Work) -> tuple[object, ...]:
    """What a worker without the lease may not change: its step and the run's checkpoint and end."""
    rows = StepRun.objects.using(database()).filter(pk=work.arguments[1])
    fields = ("state", "lease_token", "attempts", "ended_at", "run__checkpoint_sequence", "run__ended_at")
    return tuple(rows.values_list(*fields).get())
