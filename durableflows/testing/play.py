"""Plays one schedule: a run from its start to its end, with workers, broker, ticker, providers and people in one
process, on a clock that jumps to whatever is due next.

Everything that happens is decided by the schedule, so the same line plays the same story again.
"""

import copy
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from durableflows import api, boundaries, clock
from durableflows.boundaries import Boundary
from durableflows.errors import DurableflowsError
from durableflows.models import EffectSend, WorkflowRun
from durableflows.services import sweeps
from durableflows.testing import due, fakes, promises
from durableflows.testing.crashes import Crash
from durableflows.testing.faults import MESSAGE, PLACES, Post, Schedule, Strike
from durableflows.testing.people import TRIES, People
from durableflows.testing.promises import Broken, Standing
from durableflows.testing.provider import Provider
from durableflows.testing.scenarios import Scenario
from durableflows.testing.telling import Events
from durableflows.testing.work import Killed, Work, cleans_up, lease_of, rows_of
from durableflows.testing.world import FakeClock, World
from durableflows.transactions import database

TURNS, NESTED = 500, 3
LATE_MOVES = 2
"""A late message comes after the clock has moved so often, or after the end."""


@dataclass
class Outcome:
    """How one schedule ended, and what was really met on the way."""

    schedule: Schedule
    standing: Standing
    broken: tuple[Broken, ...]
    crossed: Counter[Boundary]
    struck: set[str]
    behaviours: set[str]
    posted: set[str]
    messages: int
    requests: int
    effects: tuple[str, ...]
    events: int
    met: dict[tuple[str, int], int]
    story: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)


class Simulation(World):
    """One run under one schedule. `begin` is the state to start with, or a function that starts the run."""

    def __init__(self, scenario: Scenario, begin: object, users: Sequence[Any], schedule: Schedule) -> None:
        super().__init__(FakeClock())
        self.scenario, self.schedule = scenario, schedule
        self.events = Events(schedule, self._tell_event, self.meet)
        self.provider = Provider(
            scenario, schedule, self.events, self.blame, self.clock.advance, self._note_answer, self.meet
        )
        self.broken: list[Broken] = []
        self.story: list[str] = []
        self.crossed: Counter[Boundary] = Counter()
        self.struck: set[str] = set()
        self.posted: set[str] = set()
        self.deaths = 0
        self._begin, self._users = begin, users
        self.people = People(scenario, schedule, users, survive=self._survive, tell=self.tell, meet=self.meet)
        self._held: list[tuple[int, str, tuple[str, ...]]] = []
        self._at_work: list[Work] = []
        self.known: tuple[UUID, ...] = ()
        self.turns = 0
        self.met: dict[tuple[str, int], int] = {}
        """(place, time) -> in which turn something came by there: before that turn no fault there can strike."""
        self._taken = 0
        self._depth = 0
        self._due = due.Due()  # as of the last sweep: since then nothing has happened

    def finish(self) -> Outcome:
        """Play on to the end in a transaction that is rolled back, and judge rows and books before that."""
        with fakes.rolled_back():
            with self._playing():
                while self._turn():
                    pass
            with clock.replaced(self.clock):
                return self._judged()

    def advance(self) -> bool:
        """Play one turn, in the caller's transaction. False: the run is over, or chance had a hand in the turn."""
        with self._playing() as chance:
            before = chance.getstate()
            return self._turn() and chance.getstate() == before

    def branch(self, schedule: Schedule) -> "Simulation":
        """The same simulation at this moment, under another schedule: nothing of that has happened so far."""
        shared = (self.scenario, self._begin, self._users)
        twin = copy.deepcopy(self, {id(one): one for one in shared})
        twin.schedule = twin.provider.schedule = twin.people.schedule = twin.events.schedule = schedule
        return twin

    @contextmanager
    def _playing(self) -> Iterator[Random]:
        seed = zlib.crc32(str(self.schedule).encode())
        with ExitStack() as stack:
            stack.enter_context(fakes.commits_played())
            chance = stack.enter_context(fakes.played_time(self.clock, self.clock.advance, seed))
            stack.enter_context(fakes.played_messages(self.carry))
            stack.enter_context(fakes.played_effects(self.provider))
            errors = stack.enter_context(fakes.quiet())
            self._depth = fakes.depth()
            stack.callback(boundaries.install, None)
            boundaries.install(self._cross)
            yield chance
            for text in errors.texts:
                self.blame("P10", f"a sweep failed: {text}")

    def runs(self) -> list[WorkflowRun]:
        """The runs of this simulation, the one that it is about first."""
        return list(WorkflowRun.objects.using(database()).exclude(pk__in=self.known).order_by("created_at", "pk"))

    def blame(self, promise: str, text: str) -> None:
        """Note a promise that does not hold."""
        if Broken(promise, text) not in self.broken:
            self.broken.append(Broken(promise, text))
            self.tell(f"BROKEN {promise}: {text}")

    def tell(self, text: str) -> None:
        """Keep what happens, for whoever reads the story of a failing schedule."""
        self.story.append(f"{self.clock.now():%m-%d %H:%M:%S} {'  ' * len(self._at_work)}{text}")

    def meet(self, place: str, nth: int) -> None:
        """Note that something comes by at a place for the nth time."""
        self.met.setdefault((place, nth), self.turns)

    # The broker

    def carry(self, name: str, arguments: tuple[str, ...]) -> None:
        """Take a message, and lose, double or hold it as the schedule says."""
        self.sent.append((name, arguments))
        self.meet(MESSAGE, len(self.sent))
        post = self.schedule.at(MESSAGE, Post, len(self.sent))
        if post:
            self.posted.add(post)
            self.tell(f"{post} message {len(self.sent)}: {name}")
        if post == Post.LATE:
            self._held.append((LATE_MOVES, name, arguments))
        elif post != Post.LOSE:
            copies = 2 if post == Post.DOUBLE else 1
            self.messages.extend([(name, arguments)] * copies)

    def _release(self, moves: int) -> None:
        held = [(left - moves, name, arguments) for left, name, arguments in self._held]
        self._held = [one for one in held if one[0] > 0]
        self.messages.extend((name, arguments) for left, name, arguments in held if left <= 0)

    # Time and turns

    def _turn(self) -> bool:
        """Let one thing happen. False: nothing will ever happen by itself any more, or it went on for too long."""
        self.turns += 1
        if self.turns > TURNS:
            self.blame("P10", f"it is still busy after {TURNS} turns")
            return False
        if self.turns == 1:
            return self._start()
        if self.messages:
            self._deliver(*self.messages.popleft())
            return True
        if self.events.arrive() or self._sweep() or self.messages:
            return True
        if (self._due.asks or self.people.has_plans) and self.people.act():
            return True
        return self._pass_time() or self._sweep_all()

    def _pass_time(self) -> bool:
        """Go on to whatever is due next, and release what was held back. False: nothing is due any more."""
        moments = [self._due.next(self.clock.now()), self.provider.next_landing(), self.events.next()]
        moment = min((moment for moment in moments if moment is not None), default=None)
        if moment is None and not self._held:
            return False
        if moment is not None:
            self.clock.move_to(moment)
            self.provider.land()
        self._release(1 if moment is not None else LATE_MOVES)
        return True

    def _tell_event(self, take: Callable[[], object], name: str) -> bool:
        """Let whoever receives webhooks take an event: a process of its own, which is none of the workers."""
        at_work, self._at_work = self._at_work, []
        self.tell(f"{name} arrives")
        try:
            return self._survive(take, f"whoever takes {name}")
        finally:
            self._at_work = at_work

    def _start(self) -> bool:
        """Start as the project does; whoever died of it does it again, unless the run is there."""
        self.known = tuple(WorkflowRun.objects.using(database()).values_list("pk", flat=True))
        self.people.known = self.known
        for _ in range(TRIES):
            if self._survive(self._start_once, "whoever starts the run") or self.runs():
                break
        if not self.runs():
            self.blame("P1", "the run could not be started, not even when it was asked for again")
        return True

    def _start_once(self) -> None:
        begin = self._begin
        if callable(begin):
            begin()
        else:
            api.start(self.scenario.workflow, begin, key="faulttest")  # type: ignore[arg-type]

    def _work_until_death(self) -> None:
        """Deliver and sweep until nothing is due at this moment, or somebody has died."""
        deaths = self.deaths
        for _ in range(TURNS):
            if self.deaths > deaths:
                return
            if self.messages:
                self._deliver(*self.messages.popleft())
            elif not self._sweep() and not self.messages:
                return
        self.blame("P10", f"it is still busy after {TURNS} turns at one moment")

    def _deliver(self, name: str, arguments: tuple[str, ...]) -> None:
        self._taken += 1
        if self.schedule.at(MESSAGE, Strike, self._taken):
            self._cancel()
        task_id = f"faulttest-{len(self.story)}"
        work = Work(name, arguments)
        self.tell(f"a worker takes {name}")
        self._at_work.append(work)
        try:
            self._survive(lambda: self.deliver(name, arguments, task_id=task_id), name, task_id)
        finally:
            self._at_work.pop()
        if work.fenced is not None and work.fenced != rows_of(work):
            self.blame("P2", f"a worker of {name} changed its step or run after it had lost its lease")

    def _sweep(self) -> bool:
        """Do what a ticker does: those of its sweeps that have something to do."""
        moved = False

        def once() -> None:
            nonlocal moved
            self._due = due.look(self.known)
            wanted = self._due.sweeps(self.clock.now())
            for name in [name for name in sweeps.SWEEPS if name in wanted]:
                moved |= bool(sweeps.SWEEPS[name](self.clock.now()))

        return not self._survive(once, "the ticker") or moved

    def _sweep_all(self) -> bool:
        """Every sweep once more, before the run is left alone: nothing may be overlooked that a ticker would find."""
        if not self._due.is_live:
            return False
        moved: dict[str, int] = {}
        self._survive(lambda: moved.update(sweeps.sweep(may_free_stale=False)), "the ticker")
        return any(moved.values()) or bool(self.messages)

    def _survive(self, act: Callable[[], object], who: str, task_id: str = "") -> bool:
        """Do something; when the process dies of it, others go on."""
        try:
            act()
        except Crash as crash:
            self.deaths += 1
            self.tell(f"{who} dies: {crash}")
            if isinstance(crash, Killed) and task_id:
                self._survive(lambda: sweeps.free_lost_tasks([task_id]), "the ticker")
            return False
        except DurableflowsError as error:
            if task_id:
                self.blame("P1", f"{who} failed: {type(error).__name__}: {error}")
            self.tell(f"{who} is told: {error}")
            return False
        except Exception as error:
            if not task_id and who != "the ticker":
                raise
            self.blame("P1", f"{who} failed: {type(error).__name__}: {error}")
            return False
        return True

    # Boundaries

    def _cross(self, boundary: Boundary) -> None:
        self.crossed[boundary] += 1
        self.meet(PLACES[boundary], self.crossed[boundary])
        self._watch(boundary)
        strike = self.schedule.at(PLACES[boundary], Strike, self.crossed[boundary])
        if not strike:
            return
        is_outside = fakes.depth() == self._depth
        if strike in (Strike.CRASH, Strike.KILL):
            self.struck.add(PLACES[boundary])
            raise (Killed if strike == Strike.KILL else Crash)(str(boundary))
        if not is_outside:
            return  # inside a transaction nobody else sees what is written
        self.struck.add(PLACES[boundary])
        if strike == Strike.CANCEL:
            self._cancel()
        elif self._at_work and len(self._at_work) <= NESTED:
            self._stall(boundary)

    def _cancel(self) -> None:
        for run in self.runs()[:1]:
            self.people.cancel(run.pk)

    def _stall(self, boundary: Boundary) -> None:
        """Stop here until the lease is gone, let others work meanwhile, and go on."""
        work = self._at_work[-1]
        token, ends_at = lease_of(work)
        self.tell(f"{work.name} stalls: {boundary}")
        if ends_at is not None:
            self.clock.move_to(ends_at + timedelta(microseconds=1))
        self._work_until_death()  # who dies meanwhile keeps a lease that the stalled one must respect
        self.tell(f"{work.name} goes on")
        if work.fenced is not None or (token is not None and lease_of(work)[0] != token):
            work.fenced = rows_of(work)

    def _watch(self, boundary: Boundary) -> None:
        """What must hold at a boundary itself, from its text in `boundaries.py`."""
        if not self._at_work:
            return
        work = self._at_work[-1]
        is_cancelled = UUID(work.arguments[0]) in self.people.cancelled and not cleans_up(work)
        if boundary is Boundary.EFFECT_AFTER_RESERVE and is_cancelled:
            self.blame("P6", "an effect was reserved after the run's cancel had been stored")
        if boundary is Boundary.EFFECT_AFTER_RESERVE and work.fenced is not None:
            self.blame("P2", "an effect was reserved by a worker that had lost its lease")
        if boundary is Boundary.EFFECT_AFTER_RECEIPT and work.answered:
            key, work.answered = work.answered, ""
            sends = EffectSend.objects.using(database()).filter(effect__key=key)
            if not sends.filter(outcome__in=["receipt", "accepted"]).exists():
                self.blame("P4", "a step went on with a receipt that was not stored")

    def _note_answer(self, key: str) -> None:
        if self._at_work:
            self._at_work[-1].answered = key

    # The end

    def _judged(self) -> Outcome:
        runs = self.runs()
        standing = promises.judge(runs, self.provider.books, self.blame)
        if self.scenario.check is not None and runs:
            self._check(self.scenario.check, runs[0])
        if self.broken:
            standing = Standing.BROKEN
        return Outcome(
            schedule=self.schedule,
            standing=standing,
            broken=tuple(self.broken),
            crossed=self.crossed,
            struck=self.struck,
            behaviours=self.provider.played,
            posted=self.posted | self.events.played,
            messages=len(self.sent),
            requests=len(self.people.asked),
            effects=tuple(self.provider.books.sends),
            events=self.events.count,
            met=self.met,
            story=self.story,
            explained=[line for run in runs for line in promises.explained(run)] if self.broken else [],
        )

    def _check(self, check: Callable[[WorkflowRun], None], run: WorkflowRun) -> None:
        try:
            check(run)
        except AssertionError as error:
            self.blame("check", str(error).splitlines()[0] if str(error) else "an assertion of the scenario failed")
