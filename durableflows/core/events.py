"""What an event of a provider makes of the effect that it is about.

Pure: (event, effect, what was told before) -> move, alert and verdict; rows and locks are `services.provider_events`.
An event settles only what it fits in every fact, and never puts back what is known.
Source: P2, P5, P15; protocol, rules 3, 7 and 8; R17, R20, R21.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from durableflows.core.effects import EventOutcome
from durableflows.core.fold import Fold, fold
from durableflows.core.outcomes import AnswerKind
from durableflows.core.payload import JSON, same
from durableflows.core.states import EffectState

_RANK = {EventOutcome.PENDING: 0, EventOutcome.HAPPENED: 1, EventOutcome.FAILED: 2}


class EventVerdict(StrEnum):
    """What became of an event. WAITING: not judged yet."""

    WAITING = ""
    SETTLED = "settled"
    KNOWN = "known"
    OLDER = "older"
    REVERSED = "reversed"
    CONTRADICTION = "contradiction"
    UNMATCHED = "unmatched"
    UNREADABLE = "unreadable"
    OTHER = "about no effect"


OPEN_VERDICTS = frozenset({EventVerdict.WAITING, EventVerdict.UNMATCHED})
"""An event with one of these is judged when its effect is there."""
BELIEVED = frozenset({EventVerdict.SETTLED, EventVerdict.KNOWN, EventVerdict.REVERSED})
"""Events with one of these say how far the provider's story has come."""


@dataclass(frozen=True, slots=True)
class Event:
    """A stored event, as far as it is judged. `other`: why it is about an effect of another kind; '' when it is not."""

    outcome: EventOutcome
    reference: str
    receipt: JSON
    facts: Mapping[str, JSON]
    reason: str
    at: datetime | None
    other: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """The effect as of its lock. `before`: what believed events have said of it; `one_act`: its sends cannot have
    acted twice; `run_ended`: nothing of its run is open; `said_by_person`: that it did not happen."""

    state: EffectState
    receipt: JSON
    arguments: Mapping[str, JSON]
    settled_at: datetime | None
    was_accepted: bool
    one_act: bool
    run_ended: bool
    said_by_person: bool = False
    before: tuple[tuple[EventOutcome, datetime | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, what the row makes of it, and why in words."""

    verdict: EventVerdict
    change: Fold = field(default_factory=Fold)
    reason: str = ""


def judge(event: Event, effect: Standing) -> Judgement:
    """Say what an event makes of its effect."""
    wrong = _differences(event, effect)
    if wrong:
        return _contradicts(f"an event of the provider does not fit what was asked: {wrong}")
    if any(_is_later(told, event) for told in effect.before):
        return Judgement(EventVerdict.OLDER, reason="later news of it is here already")
    return _BY_OUTCOME[event.outcome](event, effect)


def reference_of(receipt: JSON) -> str:
    """The provider's own name of an act: the `id` of its receipt; '' for none."""
    found = receipt.get("id") if isinstance(receipt, dict) else None
    return found if isinstance(found, str) else ""


def is_same_act(one: JSON, other: JSON) -> bool:
    """Are two receipts about one act? Their status may have moved on between them."""
    return same(one, other) or (reference_of(one) != "" and reference_of(one) == reference_of(other))


def is_overtaken(state: EffectState, receipt: JSON, answer: JSON) -> bool:
    """Has an event told the end of this very act before the answer to its send came? The answer is the older news."""
    return (
        state in (EffectState.REJECTED, EffectState.REVERSED) and receipt is not None and is_same_act(receipt, answer)
    )


def _differences(event: Event, effect: Standing) -> str:
    """What of an event does not fit: another amount, currency or charge, or another act under our key."""
    absent = object()
    found = [
        f"{name} is {value!r}, asked was {effect.arguments.get(name, '(nothing)')!r}"
        for name, value in event.facts.items()
        if not same(effect.arguments.get(name, absent), value)
    ]
    if event.other:
        found.append(event.other)
    known, told = reference_of(effect.receipt), event.reference or reference_of(event.receipt)
    if known and told and known != told:
        found.append(f"it is about {told}, and what happened is {known}")
    return "; ".join(found)


def _is_later(told: tuple[EventOutcome, datetime | None], event: Event) -> bool:
    """Is what was told before the later news? An end is later than "pending"; of two ends the provider's clock says."""
    outcome, at = told
    if EventOutcome.PENDING in (outcome, event.outcome) or at is None or event.at is None or at == event.at:
        return _RANK[outcome] > _RANK[event.outcome]
    return at > event.at and outcome is not event.outcome


def _contradicts(text: str) -> Judgement:
    return Judgement(EventVerdict.CONTRADICTION, Fold(alert=text), text)


def _folded(answer: AnswerKind, effect: Standing) -> Fold:
    return fold(effect.state, answer, is_holder=False, doubted=False, run_ended=effect.run_ended, same_receipt=True)


def _after(change: Fold, quiet: EventVerdict = EventVerdict.KNOWN) -> Judgement:
    """The verdict that goes with a fold: it moved something, it surprises, or nothing of it is new."""
    if change.verb is not None:
        return Judgement(EventVerdict.SETTLED, change, change.alert)
    return _contradicts(change.alert) if change.alert else Judgement(quiet)


_OVER = frozenset({EffectState.CONFIRMED, EffectState.REVERSED, EffectState.UNDOING, EffectState.UNDONE})
_UNDONE = frozenset({EffectState.UNDOING, EffectState.UNDONE, EffectState.UNDO_FAILED})


def _pending(event: Event, effect: Standing) -> Judgement:
    if effect.state in _OVER | _UNDONE or _has_failed(effect):
        return Judgement(EventVerdict.OLDER, reason="it has come to its end since")
    return _after(_folded(AnswerKind.ACCEPTED, effect))


def _happened(event: Event, effect: Standing) -> Judgement:
    if effect.state in _UNDONE:
        return Judgement(EventVerdict.OLDER, reason="it was undone since")
    is_old = event.at is None or (effect.settled_at is not None and event.at <= effect.settled_at)
    if _has_failed(effect) and is_old:
        return Judgement(EventVerdict.OLDER, reason="it has failed since")
    return _after(_folded(AnswerKind.RECEIPT, effect))


def _has_failed(effect: Standing) -> bool:
    """Was it accepted or made, and has failed then? What was refused at once is REJECTED without either."""
    if effect.state is not EffectState.REJECTED or effect.said_by_person:
        return False
    return effect.was_accepted or effect.receipt is not None


def _failed(event: Event, effect: Standing) -> Judgement:
    why = f": {event.reason}" if event.reason else ""
    if effect.state is EffectState.CONFIRMED:
        text = f"the provider has taken it back{why}"
        return Judgement(EventVerdict.REVERSED, Fold("reverse", alert=text), text)
    if effect.state is EffectState.ACCEPTED:
        text = f"it was accepted, and has failed{why}"
        return Judgement(EventVerdict.SETTLED, Fold("reject", notice=text), text)
    if effect.state in (EffectState.DISPATCHED, EffectState.UNKNOWN):
        return _failed_unanswered(effect, why)
    if effect.state in (EffectState.PLANNED, EffectState.ABSENT):
        return _contradicts(f"the provider has made it, and it failed{why}: it was taken for {effect.state}")
    return Judgement(EventVerdict.KNOWN)


def _failed_unanswered(effect: Standing, why: str) -> Judgement:
    """A failure speaks for one act: where the sends may have acted twice, the other one stays in doubt (rule 7)."""
    if effect.one_act:
        return Judgement(
            EventVerdict.SETTLED, Fold("reject", notice=f"it was made, and has failed{why}"), f"failed{why}"
        )
    return _contradicts(f"one request of it has failed{why}; an earlier one may have been done")


_BY_OUTCOME: Mapping[EventOutcome, Callable[[Event, Standing], Judgement]] = {
    EventOutcome.PENDING: _pending,
    EventOutcome.HAPPENED: _happened,
    EventOutcome.FAILED: _failed,
}
