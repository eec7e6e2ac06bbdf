"""Workers as the console shows them: who lives, who drains, who is silent, and what each of them holds. Reads only.

A worker serves all tenants; of the steps that it holds those are shown whose run the person may see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durableflows.conf import settings
from durableflows.core.states import StepState
from durableflows.models import StepAttempt, Worker
from durableflows.reading.standing import span
from durableflows.selectors import Sight
from durableflows.templatetags.durableflows import lasted
from durableflows.transactions import database

Context = dict[str, Any]
WORKERS_SHOWN, STEPS_SHOWN = 100, 200
HEAVY = ("data", "manifest", "budget", "labels", "result", "trace_context")


@dataclass(frozen=True, slots=True)
class Held:
    """A step that a worker has. `is_late`: it should have ended by now."""

    attempt: StepAttempt
    since: str
    is_late: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One worker. `beat`: how long ago it gave a sign of life; `leads`: its ticker has done what is due lately."""

    worker: Worker
    word: str
    tone: str
    beat: str
    leads: bool
    knows: list[str]
    held: list[Held]


def workers(sight: Sight, now: datetime) -> Context:
    """All that the page shows: two queries."""
    rows = list(
        Worker.objects.using(database())
        .filter(stopped_at__isnull=True)
        .order_by("name", "started_at", "pk")[: WORKERS_SHOWN + 1]
    )
    attempts = list(_under_way(sight)[: STEPS_SHOWN + 1])
    held = _by_worker(attempts[:STEPS_SHOWN], now)
    shown = [_member(row, held.pop(row.boot_id, []), now) for row in rows[:WORKERS_SHOWN]]
    swept_at = max((row.swept_at for row in rows if row.swept_at is not None), default=None)
    return {
        "members": sorted(shown, key=lambda one: one.tone == "bad"),
        "strays": [one for those in held.values() for one in those],
        "living": sum(one.tone != "bad" for one in shown),
        "held_count": min(len(attempts), STEPS_SHOWN),
        "swept_at": swept_at,
        "swept": ago(swept_at, now) if swept_at else "",
        "is_late": swept_at is None or now - swept_at > _stale(),
        "stale": f"{settings().STALE_SECONDS:g}",
        "workers_cut": WORKERS_SHOWN if len(rows) > WORKERS_SHOWN else 0,
        "steps_cut": STEPS_SHOWN if len(attempts) > STEPS_SHOWN else 0,
    }


def _under_way(sight: Sight) -> Any:
    """The tries that are under way, those that must end first in front: without what their runs remember."""
    rows = StepAttempt.objects.using(database()).filter(ended_at__isnull=True, step__state=StepState.RUNNING)
    rows = rows.filter(sight.within("step__run__")).select_related("step__run")
    light = rows.defer("step__input", "step__stood", *(f"step__run__{name}" for name in HEAVY))
    return light.order_by("step__must_end_by", "pk")


def _by_worker(attempts: Sequence[StepAttempt], now: datetime) -> dict[UUID | None, list[Held]]:
    found: dict[UUID | None, list[Held]] = {}
    for attempt in attempts:
        until = attempt.step.must_end_by
        one = Held(attempt, lasted(attempt.started_at, now), until is not None and until < now)
        found.setdefault(attempt.step.lease_worker, []).append(one)
    return found


def _member(row: Worker, held: list[Held], now: datetime) -> Member:
    is_silent = now - row.heartbeat_at > _stale()
    word, tone = ("silent", "bad") if is_silent else ("drains", "look") if row.draining_at else ("lives", "good")
    leads = row.swept_at is not None and now - row.swept_at <= _stale()
    return Member(row, word, tone, ago(row.heartbeat_at, now), leads, _knows(row.knows), held)


def _knows(pairs: Sequence[Any]) -> list[str]:
    """Workflows with their versions: "refund 1, 2"."""
    found: dict[str, list[str]] = {}
    for name, version in pairs:
        found.setdefault(str(name), []).append(str(version))
    return [f"{name} {', '.join(versions)}" for name, versions in sorted(found.items())]


def ago(at: datetime, now: datetime) -> str:
    """How long ago: to the second while it is less than a minute."""
    seconds = max(0.0, (now - at).total_seconds())
    return f"{seconds:.0f} s ago" if seconds < 60 else f"{span(at, now)} ago"


def _stale() -> timedelta:
    return timedelta(seconds=settings().STALE_SECONDS)
