"""For tests of workflows: time that a test moves, messages that a test carries, crashes at named boundaries.

    def test_refund(db, user):
        clock = FakeClock()
        with virtual(clock) as world:
            run = api.start(Refund, {...}, by=user)
            world.run_until_idle()
            ...

The rows, locks and transactions are the real ones; only the clock, the broker and the worker processes are played.
Works inside Django's TestCase: nothing here waits for `on_commit`.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

from durableflows import boundaries, clock, dispatch, lookups, runner
from durableflows.boundaries import Boundary
from durableflows.core.states import RUN_MOVING, ApprovalState, EffectState, StepState
from durableflows.models import ApprovalRequest, SideEffect, StepRun
from durableflows.services import children, reconcile, sweeps
from durableflows.transactions import database

__all__ = ["Boundary", "Crash", "FakeClock", "World", "crash_at", "virtual"]

MOVING = [str(state) for state in RUN_MOVING]


class Crash(BaseException):
    """The process died at a boundary. BaseException: no code of ours or a user's may handle it."""


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

    def now(self) -> datetime:
        """The time that was set."""
        return self._now

    def advance(self, seconds: float = 0.0, **parts: float) -> None:
        """Move on by seconds, or by parts of a timedelta (hours=2)."""
        self._now += timedelta(seconds=seconds, **parts)

    def move_to(self, moment: datetime) -> None:
        """Move on to a moment; never back."""
        self._now = max(self._now, moment)


class World:
    """Workers, broker and ticker, played in this process."""

    def __init__(self, fake: FakeClock) -> None:
        self.clock = fake
        self.messages: deque[tuple[str, tuple[str, ...]]] = deque()
        self.sent: list[tuple[str, tuple[str, ...]]] = []

    def carry(self, name: str, arguments: tuple[str, ...]) -> None:
        """Take a message as the broker would."""
        self.messages.append((name, arguments))
        self.sent.append((name, arguments))

    def lose_messages(self) -> int:
        """Lose everything that is on its way. Returns how many messages there were."""
        count = len(self.messages)
        self.messages.clear()
        return count

    def deliver(self, name: str, arguments: tuple[str, ...]) -> None:
        """Do what a worker does with one message."""
        if name == dispatch.LOOKUP_TASK:
            step_id = lookups.look_up(UUID(arguments[0]))
            if step_id is not None:
                reconcile.route(step_id)
        elif name == dispatch.CROSSING_TASK:
            children.carry(UUID(arguments[0]))
        else:
            runner.run_step(UUID(arguments[0]), UUID(arguments[1]), task_id=f"test-{len(self.sent)}")

    def run_until_idle(self, *, limit: int = 200) -> None:
        """Deliver and sweep until nothing is due at this moment. Raises AssertionError after `limit` turns."""
        for _ in range(limit):
            if self.messages:
                self.deliver(*self.messages.popleft())
                continue
            moved = sweeps.sweep(may_free_stale=False)
            if not self.messages and not any(moved.values()) and not self._run_ready():
                return
        raise AssertionError(f"still busy after {limit} turns")

    def run_through(self, *, limit: int = 100, until: datetime | None = None) -> None:
        """Run until idle, move the clock to whatever is due next, and go on; stops when only a person can help."""
        for _ in range(limit):
            self.run_until_idle()
            # What was due until now is done, or due in vain (a READY step of a run that waits to end): time goes on.
            due = next_due(after=self.clock.now())
            if due is None or (until is not None and due > until):
                return
            self.clock.move_to(due)
        raise AssertionError(f"still busy after {limit} moves of the clock")

    def _run_ready(self) -> bool:
        now = self.clock.now()
        steps = StepRun.objects.using(database()).filter(state=StepState.READY, run__state__in=MOVING)
        ran = False
        for step in steps.exclude(wake_at__gt=now):
            ran |= runner.run_step(step.run_id, step.pk, task_id="test")
        return ran


def next_due(*, after: datetime | None = None) -> datetime | None:
    """The next moment at which something happens by itself, requests' expiry aside. None: only a person can help.

    after   leave out what was due until then
    """
    states = [StepState.RETRY_SCHEDULED, StepState.NEEDS_RECONCILIATION, StepState.WAITING, StepState.READY]
    steps = StepRun.objects.using(database()).filter(state__in=states, wake_at__isnull=False, run__state__in=MOVING)
    moments = [moment for moment in steps.values_list("wake_at", flat=True) if moment]
    running = StepRun.objects.using(database()).filter(state=StepState.RUNNING)
    last = [moment for moment in running.values_list("must_end_by", flat=True) if moment]
    moments += [moment + timedelta(microseconds=1) for moment in last]  # void when its last moment is over
    ending = SideEffect.objects.using(database()).filter(run__state="ENDING", settles_at__gt=clock.now())
    moments += [moment for moment in ending.values_list("settles_at", flat=True) if moment]
    return min((moment for moment in moments if after is None or moment > after), default=None)


def open_request(run_id: UUID) -> ApprovalRequest:
    """The run's open request. Raises DoesNotExist when nobody is asked."""
    return ApprovalRequest.objects.using(database()).get(run_id=run_id, state=ApprovalState.OPEN)


def effect_states(run_id: UUID) -> list[tuple[str, EffectState]]:
    """Operation and state of each effect row of a run, oldest first."""
    rows = SideEffect.objects.using(database()).filter(run_id=run_id).order_by("created_at", "issue")
    return [(row.operation, EffectState(row.state)) for row in rows]


@contextmanager
def virtual(fake: FakeClock | None = None) -> Iterator[World]:
    """Play clock, broker and workers in this process."""
    world = World(fake or FakeClock())
    with clock.replaced(world.clock), dispatch.replaced(world.carry):
        yield world


@contextmanager
def crash_at(boundary: Boundary, *, times: int = 1) -> Iterator[None]:
    """Let the process "die" (raise Crash) when it next crosses the boundary, `times` times."""
    left = times

    def hook(crossed: Boundary) -> None:
        nonlocal left
        if crossed is boundary and left > 0:
            left -= 1
            raise Crash(str(boundary))

    boundaries.install(hook)
    try:
        yield
    finally:
        boundaries.install(None)
