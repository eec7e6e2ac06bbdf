"""The providers of a simulation: they act, answer, stay silent or lie still as a schedule says, and keep books.

Each respects what the effect declares: with `key_window` a key acts once inside it; with `lookup` they can be asked.
The books count acts by logical operation (run, step, visit, item, operation), whatever the keys were.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from durableflows import clock
from durableflows.core.definition import EffectDefinition
from durableflows.core.effects import CannotTell, EffectCall, Found, NotFound
from durableflows.core.states import EffectState, RunState
from durableflows.errors import NeverSent, Permanent, Transient, UnknownOutcome
from durableflows.models import SideEffect
from durableflows.testing.faults import Behaviour, Schedule
from durableflows.testing.receipts import Receipts
from durableflows.testing.scenarios import Scenario
from durableflows.testing.telling import Events
from durableflows.transactions import database

PENDING_SECONDS = 60.0
LATE_SHARE = 0.8
"""Of the settle time: when a slow request lands, and when a late index shows what was done."""
CANNOT_TELL_TIMES = 2


class ServerError(Exception):
    """A provider's 500: it may have acted. No error of the engine, as a client library would raise it."""


@dataclass
class Entry:
    """What was done under one key."""

    operation: str
    at: datetime
    arguments: Mapping[str, object]
    receipt: object
    pending: object = None
    pending_until: datetime | None = None
    visible_at: datetime | None = None
    cannot_tell: int = 0

    def answer(self, now: datetime) -> object:
        """What the provider says of it now."""
        return self.pending if self.pending_until is not None and now < self.pending_until else self.receipt


@dataclass
class Books:
    """What the providers of one simulation know."""

    acts: dict[str, list[str]] = field(default_factory=dict)
    """Logical operation -> the key of each act."""
    entries: dict[str, Entry] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    """Effect -> how many requests arrived."""


@dataclass
class _Flying:
    lands_at: datetime
    act: Callable[[], object]


class Provider:
    """Every provider of one simulation. Calls `blame` for promises that a request breaks."""

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        events: Events,
        blame: Callable[[str, str], None],
        pass_time: Callable[[float], None],
        answered: Callable[[str], None],
        meet: Callable[[str, int], None],
    ) -> None:
        self.books = Books()
        self.played: set[str] = set()
        self.schedule = schedule
        self._scenario, self._events, self._blame = scenario, events, blame
        self._pass_time, self._answered, self._meet = pass_time, answered, meet
        self._receipts = Receipts()
        self._flying: list[_Flying] = []

    def send(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> object:
        """Take a request, and do with it what the schedule says."""
        self.land()
        self._check_intent(effect, call)
        nth = self.books.sends[effect.name] = self.books.sends.get(effect.name, 0) + 1
        self._meet(effect.name, nth)
        behaviour = self.schedule.at(effect.name, Behaviour, nth) or Behaviour.ANSWERS
        self.played.add(str(behaviour))
        answer = _BEHAVIOURS[Behaviour(behaviour)](self, effect, call, arguments)
        self._answered(call.key)
        return answer

    def look_up(self, effect: EffectDefinition[Any], call: EffectCall) -> object:
        """Say what was done under a key, as far as it can be seen now."""
        self.land()
        entry, now = self.books.entries.get(call.key), clock.now()
        if entry is not None and entry.cannot_tell:
            entry.cannot_tell -= 1
            return CannotTell("the provider's search does not answer")
        if entry is None or (entry.visible_at is not None and now < entry.visible_at):
            return NotFound()
        return Found(entry.answer(now))

    def land(self) -> None:
        """Let requests arrive whose time has come."""
        now = clock.now()
        due = [one for one in self._flying if one.lands_at <= now]
        self._flying = [one for one in self._flying if one.lands_at > now]
        for one in due:
            one.act()

    def next_landing(self) -> datetime | None:
        """When the next request arrives that is still on its way."""
        return min((one.lands_at for one in self._flying), default=None)

    def act(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> Entry:
        """Do it, unless the key says that it is done."""
        now = clock.now()
        known = self.books.entries.get(call.key)
        if known is not None and known.arguments != arguments:
            self._blame("P4", f"{effect.name} was sent twice under {call.key[:20]}… with different arguments")
        if known is not None and effect.key_window is not None and now - known.at < effect.key_window:
            return known
        if SideEffect.objects.using(database()).filter(key=call.key, run__state=RunState.CANCELLED).exists():
            self._blame("P6", f"{effect.name} happened after the run was confirmed to be cancelled")
        operation = operation_of(call)
        self.books.acts.setdefault(operation, []).append(call.key)
        entry = Entry(operation, now, arguments, self._receipt(effect, call, arguments))
        self.books.entries[call.key] = entry
        if effect.name not in self._scenario.pending or self.schedule.at(
            effect.name, Behaviour, self.books.sends.get(effect.name, 1)
        ) != str(Behaviour.PENDING):
            self._tell(effect, call, arguments, entry.receipt, now)
        return entry

    def fly(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> None:
        """Put a request on its way, and wait for its answer in vain: it lands within the settle time."""
        lands_at = clock.now() + timedelta(seconds=effect.settle_seconds * LATE_SHARE)
        self._flying.append(_Flying(lands_at, lambda: self.act(effect, call, arguments)))
        self._pass_time(effect.timeout_seconds)

    def pend(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> object:
        """Act, and say that it is not done yet; without a way to say so, answer."""
        entry = self.act(effect, call, arguments)
        make = self._scenario.pending.get(effect.name)
        if make is not None and entry.pending is None:
            entry.pending = make(call, **arguments)
            entry.pending_until = clock.now() + timedelta(seconds=PENDING_SECONDS)
            self._tell(effect, call, arguments, entry.pending, clock.now())
            self._tell(effect, call, arguments, entry.receipt, entry.pending_until)
        return entry.answer(clock.now())

    def _tell(
        self,
        effect: EffectDefinition[Any],
        call: EffectCall,
        arguments: Mapping[str, object],
        receipt: object,
        at: datetime,
    ) -> None:
        """Let an event leave about an act, where the scenario says what its body is."""
        make = self._scenario.events.get(effect.name)
        if make is not None:
            body = make(call, receipt=receipt, **arguments)
            assert isinstance(body, dict), f"the event of {effect.name} is {type(body).__name__}: give its body, a dict"
            self._events.emit(effect, body, at)

    def _receipt(self, effect: EffectDefinition[Any], call: EffectCall, arguments: Mapping[str, object]) -> object:
        make = self._scenario.receipts.get(effect.name)
        return make(call, **arguments) if make else self._receipts.plain(effect, call, arguments)

    def _check_intent(self, effect: EffectDefinition[Any], call: EffectCall) -> None:
        """P3 and P4 at the moment in which a request leaves: its row says DISPATCHED, under this very key."""
        row = SideEffect.objects.using(database()).filter(key=call.key).values_list("state", flat=True).first()
        if row is None:
            self._blame("P3", f"a request of {effect.name} left under a key that no row has")
        elif row != EffectState.DISPATCHED:
            self._blame("P4", f"a request of {effect.name} left while its row says {row}, not DISPATCHED")


def operation_of(call: EffectCall) -> str:
    """The logical operation of a call: of its row, or of what the call says where the key is of no row."""
    rows = SideEffect.objects.using(database()).filter(run_id=UUID(call.run_id), operation=call.operation)
    names = rows.filter(key=call.key).values_list("step_name", "visit", "item_key").first()
    if names is None:
        names = rows.filter(step_name=call.step).values_list("step_name", "visit", "item_key").first()
    step, visit, item = names or (call.step, 1, "")
    return f"{call.operation} in {step}, visit {visit}{f', item {item}' if item else ''}, of run {call.run_id}"


Played = Callable[[Provider, EffectDefinition[Any], EffectCall, Mapping[str, object]], object]


def _answers(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> object:
    return provider.act(effect, call, arguments).answer(clock.now())


def _answer_lost(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    provider.act(effect, call, arguments)
    raise UnknownOutcome("read timed out")


def _request_lost(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    raise UnknownOutcome("read timed out")


def _refused(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    raise NeverSent("connection refused")


def _busy(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    raise Transient("429: too many requests, not processed")


def _error_acted(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    provider.act(effect, call, arguments)
    raise ServerError("500: internal error")


def _error(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    raise ServerError("502: bad gateway")


def _pending(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> object:
    return provider.pend(effect, call, arguments)


def _slow(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    provider.fly(effect, call, arguments)
    raise UnknownOutcome(f"{effect.name} gave no answer within {effect.timeout_seconds:g} s")


def _index_late(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    entry = provider.act(effect, call, arguments)
    entry.visible_at = clock.now() + timedelta(seconds=effect.settle_seconds * LATE_SHARE)
    raise UnknownOutcome("read timed out")


def _cannot_tell(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    provider.act(effect, call, arguments).cannot_tell = CANNOT_TELL_TIMES
    raise UnknownOutcome("read timed out")


def _rejected(provider: Provider, effect: EffectDefinition[Any], call: EffectCall, arguments: Any) -> NoReturn:
    known = provider.books.entries.get(call.key)
    if known is not None and effect.key_window is not None:
        raise UnknownOutcome("the key is known, and the answer was lost")  # what is done is not refused afterwards
    raise Permanent("402: refused for good")


_BEHAVIOURS: Mapping[Behaviour, Played] = {
    Behaviour.ANSWERS: _answers,
    Behaviour.ANSWER_LOST: _answer_lost,
    Behaviour.REQUEST_LOST: _request_lost,
    Behaviour.REFUSED: _refused,
    Behaviour.BUSY: _busy,
    Behaviour.ERROR_ACTED: _error_acted,
    Behaviour.ERROR: _error,
    Behaviour.PENDING: _pending,
    Behaviour.SLOW: _slow,
    Behaviour.INDEX_LATE: _index_late,
    Behaviour.CANNOT_TELL: _cannot_tell,
    Behaviour.REJECTED: _rejected,
}
