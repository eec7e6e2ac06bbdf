"""Who follows runs from outside: traces, error trackers. The engine tells them, and never depends on them.

`DURABLEFLOWS["WATCHERS"]` names classes by dotted path, as MIDDLEWARE does; what is not named is never imported. A
watcher that fails is logged once, and the step goes on. Told in memory: before the attempt, around its calls, and once
more when it is settled, so that whatever a watcher sends leaves after the settlement.
Source: specification S3.21, S3.41 to S3.48, S3.51.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import TracebackType
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded
from django.utils.module_loading import import_string

from durableflows.at_work import About, working_on
from durableflows.conf import settings
from durableflows.core import log_lines
from durableflows.core.decide import Decision
from durableflows.core.definition import StepDefinition
from durableflows.core.outcomes import Outcome
from durableflows.core.payload import JSON
from durableflows.leases import Claim
from durableflows.models import StepRun, WorkflowRun
from durableflows.transactions import after_commit

logger = log_lines.logger("durableflows.watching")

NO_IDS = ("", "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of a run's history, told after its commit."""

    run_id: UUID
    kind: str
    data: dict[str, JSON]
    at: datetime


class Timed:
    """Something with a duration. Its times are the database's (P12): its begin, and what has passed here since."""

    def __init__(self, began_at: datetime) -> None:
        self.began_at, self._began = began_at, time.monotonic()
        self.kept: dict[object, object] = {}
        """What each watcher keeps of it, by the watcher."""

    def now(self) -> datetime:
        """The time, without asking the database."""
        return self.began_at + timedelta(seconds=time.monotonic() - self._began)


class Attempt(Timed):
    """One attempt of a step. `outcome`, `decision`: of its settlement, None when it was not settled here."""

    def __init__(self, claim: Claim, step: StepDefinition) -> None:
        super().__init__(claim.claimed_at)
        self.claim, self.step = claim, step
        self.outcome: Outcome | None = None
        self.decision: Decision | None = None
        self.error: BaseException | None = None
        self.facts: list[Fact] = []
        self.ids = NO_IDS
        """Trace and span, for the attempt's row: set by a watcher that traces."""
        self.limit: SoftTimeLimitExceeded | None = None
        """The step's time limit, when it struck while a watcher had its turn: before the body, which does not begin."""


@dataclass
class Call:
    """One call to the outside: `kind` is send, lookup or model. What it came to is filled in when it is known."""

    kind: str
    name: str
    provider: str = ""
    operation: str = ""
    key: str = ""
    number: int = 0
    version: int = 0
    timeout_seconds: float = 0.0
    request_digest: str = ""
    answer: str = ""
    error_class: str = ""
    receipt: JSON = None
    state: str = ""
    cost_usd: float | None = None
    timed: Timed | None = field(default=None, repr=False)
    ended_at: datetime | None = None

    def end(self) -> None:
        """Its answer is here; what is written afterwards is not part of the call."""
        self.ended_at = self.timed.now() if self.timed is not None else None


class Watcher:
    """Override what you need. Nothing here may block for long; what it raises stops nothing."""

    def start(self, run: WorkflowRun, cause: StepRun | None) -> "Root | None":
        """A run begins, inside its transaction, or has begun before anybody traced. Do nothing outside of memory.

        cause   the step of another run that starts it
        """

    def begin(self, attempt: Attempt) -> None:
        """A step was claimed; its body comes next."""

    def end(self, attempt: Attempt) -> None:
        """The attempt is settled, or its lease was lost."""

    def call(self, attempt: Attempt | None, about: "Asked", call: Call) -> None:
        """A call to the outside comes next."""

    def answered(self, attempt: Attempt | None, about: "Asked", call: Call) -> None:
        """It was answered, and what it came to is stored."""

    def told(self, fact: Fact) -> None:
        """A fact of a run, outside of its attempts; those of an attempt are in `attempt.facts`."""

    def swept(self, seconds: float, error: BaseException | None) -> None:
        """A ticker has done all that was due. `error`: what of it failed first, if anything did."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which step a call belongs to, and the trace that its run has."""

    run_id: UUID
    step_id: UUID
    workflow: str
    step: str
    trace_context: dict[str, JSON]
    at: datetime


class Root:
    """What a run's trace hangs on. `context` is kept in the run's row."""

    context: dict[str, JSON]

    def keep(self) -> None:
        """The run is stored."""


def watchers() -> "tuple[Watcher, ...]":
    """Those that the project has named."""
    return _load(tuple(settings().WATCHERS))


@lru_cache(maxsize=8)
def _load(paths: tuple[str, ...]) -> "tuple[Watcher, ...]":
    return tuple(watcher for path in paths if (watcher := _one(path)) is not None)


def _one(path: str) -> Watcher | None:
    try:
        return load(path)
    except Exception:
        logger.exception("WATCHERS: %s cannot be used, and is left out", path)
        return None


def load(path: str) -> Watcher:
    """Import a watcher. Raises whatever its module does, TypeError when it is none."""
    found = import_string(path)()
    if not isinstance(found, Watcher):
        raise TypeError(f"it gives {type(found).__name__}, not a Watcher")
    return found


_current: ContextVar[Attempt | None] = ContextVar("durableflows_attempt", default=None)
_failed: set[tuple[str, str, str]] = set()


def _tell(method: str, *told: object) -> SoftTimeLimitExceeded | None:
    """Returns the step's own time limit when it struck here: that is not the watcher's failure."""
    limit = None
    for watcher in watchers():
        try:
            getattr(watcher, method)(*told)
        except Exception as error:  # noqa: BLE001 - whoever watches must not break what is watched
            limit = error if isinstance(error, SoftTimeLimitExceeded) else limit
            _note_failure(watcher, method, error)
    return limit


def _note_failure(watcher: Watcher, method: str, error: Exception) -> None:
    known = (type(watcher).__qualname__, method, type(error).__qualname__)
    if known not in _failed:
        _failed.add(known)
        logger.warning("the watcher %s failed in `%s`; said once", *known[:2], exc_info=error)


class attempt:  # noqa: N801 - reads as a statement
    """Let watchers follow an attempt: `with watching.attempt(claim, step):`."""

    def __init__(self, claim: Claim, step: StepDefinition) -> None:
        self._attempt = Attempt(claim, step)
        lease = claim.lease
        self._lines = working_on(About(str(lease.run_id), lease.workflow, lease.step, lease.attempt))

    def __enter__(self) -> Attempt:
        self._lines.__enter__()
        self._token = _current.set(self._attempt)
        self._attempt.limit = _tell("begin", self._attempt)
        return self._attempt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _tell("end", self._attempt)
        _current.reset(self._token)
        self._lines.__exit__(None, None, None)


@contextmanager
def call(about: Asked | None, what: Call) -> Iterator[Call]:
    """Let watchers follow a call to the outside.

    about    of a call without an attempt (a lookup); None: it is the current attempt's
    Raises   SoftTimeLimitExceeded, when it struck while a watcher had its turn: after the call, which has its own limit
    """
    inside = _current.get() if about is None else None
    asked = _asked(inside) if inside is not None else about
    if asked is None or not watchers():
        yield what
        return
    what.timed = inside if inside is not None else Timed(asked.at)
    limit = _tell("call", inside, asked, what)
    try:
        yield what
    finally:
        if what.ended_at is None:
            what.end()
        limit = _tell("answered", inside, asked, what) or limit
    if limit is not None:
        raise limit


def _asked(attempt: Attempt) -> Asked:
    lease = attempt.claim.lease
    context = attempt.claim.trace_context
    return Asked(lease.run_id, lease.step_id, lease.workflow, lease.step, context, attempt.now())


def check_limit() -> None:
    """Raise SoftTimeLimitExceeded when the current attempt's time was over before its body: Celery says so once."""
    current = _current.get()
    if current is not None and current.limit is not None:
        raise current.limit


def raised(error: BaseException) -> None:
    """Note what ended the current attempt's body."""
    current = _current.get()
    if current is not None:
        current.error = error


def settled(outcome: Outcome, decision: Decision) -> None:
    """Note what the current attempt came to; its settlement has committed."""
    current = _current.get()
    if current is not None:
        current.outcome, current.decision = outcome, decision


def told(fact: Fact) -> None:
    """A fact has committed: the current attempt's, or everybody's."""
    current = _current.get()
    if current is not None and current.claim.lease.run_id == fact.run_id:
        current.facts.append(fact)
    else:
        _tell("told", fact)


def swept(seconds: float, error: BaseException | None) -> None:
    """A ticker has done all that was due, or failed in it."""
    _tell("swept", seconds, error)


def ids_of(token: UUID | None) -> tuple[str, str]:
    """Trace and span of the attempt that holds this lease, if it is under way in this process."""
    current = _current.get()
    return current.ids if current is not None and current.claim.lease.token == token else NO_IDS


def root(run: WorkflowRun, cause: StepRun | None = None) -> Root | None:
    """Give a run that has none its trace; in memory, the caller stores `trace_context`, then calls `keep`."""
    for watcher in watchers():
        try:
            found = watcher.start(run, cause)
        except Exception as error:  # noqa: BLE001 - as in `_tell`
            _note_failure(watcher, "start", error)
            continue
        if found is not None:
            run.trace_context = found.context
            return found
    return None


def keep(found: Root | None) -> None:
    """The run is stored in the open transaction: its trace begins when that has committed."""
    if found is not None:
        after_commit(found.keep, "the beginning of a trace")
