"""Those around the runs of one chaos test: who starts them, signals, answers, cancels, and sends messages twice.

Each turn is short and survives a database that is away; what was not done then is done at the next turn.
"""

import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from durableflows import FactsChanged, TooLate, api, dispatch
from durableflows.core.states import ApprovalState, RunState
from durableflows.models import ApprovalRequest, SideEffect, StepRun, WorkflowRun
from tests.support.outages import through
from tests.worker_app.providers import REFUSED
from tests.worker_app.storm import Storm

MOST_OPEN = 400
KEPT_MESSAGES = 400

Message = tuple[str, tuple[str, ...]]


@dataclass
class Crowd:
    """`rng`: decides each run's story from the seed; `messages`: some that were sent, to be sent again later."""

    boss: User
    rng: random.Random
    runs: int
    minutes: float
    started: list[UUID] = field(default_factory=list)
    cancelled: set[UUID] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    messages: list[Message] = field(default_factory=list)
    _agenda: list[tuple[float, str, UUID]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _open: int = 0
    _next_look: float = 0.0

    def turn(self) -> None:
        """Everybody does what is due."""
        if time.monotonic() >= self._next_look:
            self._open = through(open_runs)
            self._next_look = time.monotonic() + 0.5
            through(self._answer)
            through(self._send_twice)
        self._start_some()
        self._keep_agenda()

    def is_done(self) -> bool:
        """Have all runs been started?"""
        return len(self.started) >= self.runs

    def answer_all(self) -> None:
        """The boss answers, and late signals come: what runs that go on still need."""
        through(self._answer)
        self._keep_agenda()

    def _start_some(self) -> None:
        """At an even pace over the time, and never more at once than the workers can hold."""
        passed = (time.monotonic() - self._began) / (60 * self.minutes)
        for _ in range(5):
            if self.is_done() or self._open >= MOST_OPEN or len(self.started) > passed * self.runs:
                return
            self._start()
            self._open += 1

    def _start(self) -> None:
        number, rng = len(self.started), self.rng
        items = ["a", REFUSED if rng.random() < 0.15 else "b"]
        state = {"number": number, "seconds": round(rng.uniform(0.2, 3.0), 2), "items": items}
        run: WorkflowRun = through(lambda: api.start(Storm, state, key=f"storm {number}"))
        self.started.append(run.pk)
        now = time.monotonic()
        first = now if rng.random() < 0.3 else now + rng.uniform(0.5, 8)
        self._agenda.append((first, "signal", run.pk))
        if rng.random() < 0.5:
            self._agenda.append((first + rng.uniform(0, 2), "signal again", run.pk))
        if rng.random() < 0.04:
            self._agenda.append((now + rng.uniform(0.1, 10), "cancel", run.pk))

    def _keep_agenda(self) -> None:
        now = time.monotonic()
        due = [entry for entry in self._agenda if entry[0] <= now]
        self._agenda = [entry for entry in self._agenda if entry[0] > now]
        for _, what, run_id in due:
            # Too late: the run has ended, or is ending.
            with contextlib.suppress(TooLate):
                if what == "cancel":
                    through(lambda pk=run_id: api.cancel(pk, reason="changed his mind"))  # type: ignore[misc]
                    self.cancelled.add(run_id)
                else:
                    through(lambda pk=run_id: api.signal(pk, "paid", {"by": "card"}, dedup_key=f"paid {pk}"))  # type: ignore[misc]
                self.seen[what] += 1

    def _answer(self) -> None:
        for request in ApprovalRequest.objects.filter(state=ApprovalState.OPEN)[:50]:
            verdict = "reject" if request.run_id.int % 10 == 0 else "approve"
            with contextlib.suppress(FactsChanged, TooLate):
                api.answer(request.pk, verdict, by=self.boss, facts_digest=request.facts_digest)
                self.seen[verdict] += 1

    def _send_twice(self) -> None:
        """Messages once more: of steps as they are, and of long ago."""
        fresh = self.rng.sample(newest := _newest_messages(), min(3, len(newest)))
        old = self.rng.sample(self.messages, min(2, len(self.messages)))
        for name, arguments in [*fresh, *old]:
            if not dispatch.publish(name, arguments, None):
                self.seen["message again"] += 1
        self.messages = [*self.messages, *fresh][-KEPT_MESSAGES:]


def _newest_messages() -> list[Message]:
    steps = StepRun.objects.order_by("-pk").values_list("run__workflow", "name", "run_id", "pk", "waits_on")[:40]
    found: list[Message] = [(f"{row[0]}.{row[1]}", (str(row[2]), str(row[3]))) for row in steps]
    found += [(dispatch.CROSSING_TASK, (str(row[3]),)) for row in steps if row[4]]
    effects = SideEffect.objects.order_by("-pk").values_list("pk", flat=True)[:10]
    return found + [(dispatch.LOOKUP_TASK, (str(pk),)) for pk in effects]


def open_runs() -> int:
    """How many runs of the test go on."""
    return WorkflowRun.objects.filter(workflow="storm", ended_at__isnull=True).exclude(state=RunState.PARKED).count()


def asks_a_person(run: WorkflowRun) -> bool:
    """Does it wait for a person who is told why?"""
    if run.state == RunState.PARKED:
        return bool(run.parked_detail)
    return run.steps.filter(needs_person=True).exclude(waits_for="").exists()


def why_open(run: WorkflowRun) -> dict[str, Any]:
    """What a reader of a failed test needs to know of it."""
    steps = run.steps.exclude(state__in=["SUCCEEDED", "CANCELLED", "FAILED"])
    facts = ("name", "state", "waits_on", "waits_for", "wake_at", "resend_at", "sends", "attempts", "lease_worker")
    return {"run": str(run.pk), "state": run.state, "parked": run.parked_detail, "steps": list(steps.values(*facts))}
