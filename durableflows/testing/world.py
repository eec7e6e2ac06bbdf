"""Time that a test moves, and messages that a test carries: one process that plays workers, broker and ticker.

Works inside Django's TestCase: nothing here waits for `on_commit`. The next due moments are read from the rows.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

from durableflows import clock, dispatch, lookups, notify, runner
from durableflows.core.states import RUN_MOVING, ApprovalState, EffectState, StepState
from durableflows.errors import NotFoundError
from durableflows.models import ApprovalRequest, ProviderEvent, SideEffect, StepRun, WorkflowRun
from durableflows.services import children, notices, reconcile, sweeps, unanswerable
from durableflows.transactions import database

MOVING = [str(state) for state in RUN_MOVING]


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

    def deliver(self, name: str, arguments: tuple[str, ...], *, task_id: str = "") -> None:
        """Do what a worker does with one message."""
        if name == dispatch.LOOKUP_TASK:
            step_id = lookups.look_up(UUID(arguments[0]))
            if step_id is not None:
                reconcile.route(step_id)
        elif name == dispatch.CROSSING_TASK:
            children.carry(UUID(arguments[0]))
        elif name == dispatch.ADDRESS_TASK:
            notices.address(UUID(arguments[0]))
        elif name == dispatch.NOTIFY_TASK:
            notify.deliver(UUID(arguments[0]))
        else:
            runner.run_step(UUID(arguments[0]), UUID(arguments[1]), task_id=task_id or f"test-{len(self.sent)}")

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
    ending = SideEffect.objects.using(database()).filter(
        run__state__in=["ENDING", "COMPENSATING"], settles_at__gt=clock.now()
    )
    moments += [moment for moment in ending.values_list("settles_at", flat=True) if moment]
    events = ProviderEvent.objects.using(database()).filter(judge_at__isnull=False)
    moments += [moment for moment in events.values_list("judge_at", flat=True) if moment]
    return min((moment for moment in moments if after is None or moment > after), default=None)


def open_request(run_id: UUID) -> ApprovalRequest:
    """The run's open request. Raises DoesNotExist when nobody is asked."""
    return ApprovalRequest.objects.using(database()).get(run_id=run_id, state=ApprovalState.OPEN)


def effect_states(run_id: UUID) -> list[tuple[str, EffectState]]:
    """Operation and state of each effect row of a run, oldest first."""
    rows = SideEffect.objects.using(database()).filter(run_id=run_id).order_by("created_at", "issue", "pk")
    return [(row.operation, EffectState(row.state)) for row in rows]


_worlds: list[World] = []


@contextmanager
def virtual(fake: FakeClock | None = None) -> Iterator[World]:
    """Play clock, broker and workers in this process."""
    world = World(fake or FakeClock())
    unanswerable.forget()
    _worlds.append(world)
    try:
        with clock.replaced(world.clock), dispatch.replaced(world.carry):
            yield world
    finally:
        _worlds.remove(world)


def run_until_idle(*, limit: int = 200) -> None:
    """Do all that is due now, as workers and a ticker would, in this process. AssertionError after `limit` turns.

    Inside `virtual()` it is that world which goes on; elsewhere the clock is the real one and nothing is published.
    """
    if _worlds:
        _worlds[-1].run_until_idle(limit=limit)
        return
    world = World(FakeClock(clock.now()))
    with dispatch.replaced(world.carry):
        world.run_until_idle(limit=limit)


def run_step(run: WorkflowRun | UUID, name: str = "") -> StepRun:
    """Make one attempt at a READY step of a run, and return its row as it is then.

    name     of the step, where several are READY
    Raises   NotFoundError when no such step is READY and due
    """
    run_id = run.pk if isinstance(run, WorkflowRun) else run
    ready = StepRun.objects.using(database()).filter(run_id=run_id, state=StepState.READY)
    step = (ready.filter(name=name) if name else ready).order_by("created_at", "pk").first()
    if step is None or not _attempt(step):
        which = f"step {name}" if name else "step"
        raise NotFoundError(f"no {which} of run {run_id} is READY and due now")
    step.refresh_from_db()
    return step


def _attempt(step: StepRun) -> bool:
    if _worlds:
        return runner.run_step(step.run_id, step.pk, task_id="test")
    with dispatch.replaced(lambda name, arguments: None):
        return runner.run_step(step.run_id, step.pk, task_id="test")
